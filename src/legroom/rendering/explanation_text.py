"""An explanation for a person (what ran out, how much, what allocated it, what helps) and as JSON."""

from __future__ import annotations

import json
import shlex
from collections.abc import Iterator
from dataclasses import asdict

from legroom.model.trace import Explanation
from legroom.rendering.console import JSON_VERSION
from legroom.rendering.document import Document, Note, Part, Section, Table
from legroom.units import format_size

MOST_ADVICE = 5
MOST_NOTES = 2  # beside which all of that fits
LONG = 67  # characters of a command that leave no second line
_FACTS = (
    ("asked", "requested"), ("capacity", "capacity"), ("free", "free"), ("in use", "allocated"),
    ("reserved but unused", "reserved_unallocated"), ("outside PyTorch", "outside"),
    ("other processes", "others"),
)  # fmt: skip
_KEYS = (
    "kind", "requested", "capacity", "free", "allocated", "reserved_unallocated", "shape", "dtype", "certain", "others",
    "outside", "summary", "cause", "dimensions", "notes", "command", "advice",
)  # fmt: skip
TRIED_BY_RUNNING = ("cuda", "cublas", "host-array", "killed", "container", "slurm")  # kinds
_PRICE_STYLE = {"free": "green", "slower": "yellow", "changes-learning": "red"}


def explanation_json(found: Explanation) -> str:
    plain = asdict(found) | {"cause": found.cause or None, "command": found.command or None}
    return json.dumps({"legroom": JSON_VERSION, **{key: plain[key] for key in _KEYS}}, indent=2, ensure_ascii=False)


def explanation_document(found: Explanation, most_advice: int | None = MOST_ADVICE) -> Document:
    """At most about twenty lines of 80 columns, unless all the advice is asked for."""
    head = Note(found.summary, "bold" if found.certain else "yellow")
    return Document("", head, list(_parts(found, most_advice)))


def _parts(found: Explanation, most_advice: int | None) -> Iterator[Part]:
    if not found.recognised:
        yield "If there is one, give the whole log: the first error says more than the last lines."
        return
    said = ((name, key, getattr(found, key)) for name, key in _FACTS)
    facts = [f"{name} {format_size(size)}" for name, key, size in said if size or (size == 0 and key != "others")]
    if facts and len(facts) + (found.requested is None) > 1:  # the summary has said what was asked
        yield ", ".join(facts)
    if found.dimensions:
        yield f"array: {' × '.join(map(str, found.dimensions))}, {found.dtype or 'unknown type'}"
    elif found.shape:
        yield f"array: shape ({', '.join(map(str, found.shape))}), {found.dtype or 'unknown type'}"
    if found.cause:
        yield f"most likely: {found.cause}"
    yield from found.notes
    as_program = rehearsal_of(found)
    if found.advice:
        if most_advice is not None and as_program and len(found.notes) + (len(as_program) > LONG) > MOST_NOTES:
            most_advice -= 1  # the page fits a small terminal
        table = Table(["price", "change", "effect"], "llw")
        for one in found.advice[:most_advice]:
            table.add(Note(one.price, _PRICE_STYLE[one.price]), one.knob, one.say)
        yield Section("What helps", [table])
    if found.command:
        first = Note(f"start with: {found.command}", "bold")
        yield Section("Where to start", [first, *([f"any program: {as_program}"] if as_program else [])])


def rehearsal_of(found: Explanation) -> str:
    """Return the command that runs the program itself on a simulated GPU; empty where none is of use."""
    words = shlex.split(found.command)
    if words[:2] != ["legroom", "fit"] or found.kind not in TRIED_BY_RUNNING:
        return ""
    split = words.index("--") if "--" in words else None
    program = words[split + 1 :] if split else ["python", words[2]] if words[2].endswith(".py") else []
    if not program and found.kind not in ("cuda", "cublas"):
        return ""
    options = words[2:split] if split else words[3:]
    return f"{shlex.join(['legroom', 'predict', *options])} -- {shlex.join(program) or 'YOUR COMMAND'}"
