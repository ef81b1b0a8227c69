"""What a JAX program needs on a card: arrays that are live when a compiled function is called, and XLA's plan of it.

The guest (`hollow/jax_programs.py`) has written down every large function, lowered for a card, and what was live at its
calls; here XLA is asked about each, once per program, card and versions. The peak is the largest sum of live arrays,
results that take no argument's place, and temporaries.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from legroom.backends.program.repeating import LEAST_REPEATS
from legroom.device.xla_programs import plan_program
from legroom.device.xla_target import known_card
from legroom.errors import BadInput, MissingExtra
from legroom.machine.gpu_table import KnownGpu, find_gpu
from legroom.model.machine import Gpu
from legroom.model.rehearsal import CardSeen, OutOfMemory, Rehearsal, SourceLine
from legroom.predicting.xla_allocator import XLA_SHARE
from legroom.units import format_size

Messages = Mapping[str, Sequence[dict[str, Any]]]
MOST_FUNCTIONS = 5  # that are listed
_OUT_OF_MEMORY = re.compile(r"RESOURCE_EXHAUSTED|out of memory|MemoryError|cannot allocate", re.IGNORECASE)
ANY_CARD = "RTX 4090"  # whose compiler is asked where only the memory of a card is given


@dataclass(frozen=True)
class _Moment:
    """What is on the card while a function runs, or between functions."""

    live: int
    results: int
    temporaries: int
    name: str
    file: str
    line: int

    @property
    def nbytes(self) -> int:
        return self.live + self.results + self.temporaries


def with_jax(
    found: Rehearsal, messages: Messages, gpu: Gpu | None, limit: int | None, progress: Callable[[str], None]
) -> Rehearsal:
    """Return the rehearsal with what its JAX functions need on the card; as it is where it used no jax.

    Args:
        limit: bytes of the card that its allocator may take; None for no limit but XLA's own.
    """
    told = messages.get("jax", ())
    if not told:
        return found
    found = _without_its_end(replace(found, jax=str(told[0].get("version") or "?")))
    if gpu is None or found.card is not None:
        note = "jax and torch are both used: only what torch has on the card is in the bill"
        return found if gpu is None else replace(found, notes=(*found.notes, note))
    card = known_card(gpu) or find_gpu(ANY_CARD)
    plans, unknown = _plans(messages, card, progress)
    moments = list(_moments(messages, plans))
    if not moments:
        return replace(found, unmodelled=(*found.unmodelled, *unknown))
    most = max(moments, key=lambda moment: moment.nbytes)
    notes = (*found.notes, *_by_function(moments))
    seen = replace(found, card=_card_seen(most), unmodelled=(*found.unmodelled, *unknown), notes=notes)
    limit = min(gpu.total if limit is None else limit, int(XLA_SHARE * gpu.total))
    failed = next((moment for moment in moments if moment.nbytes > limit), None)
    if failed is None:
        return seen
    asked = failed.results + failed.temporaries
    text = f"RESOURCE_EXHAUSTED: Out of memory while trying to allocate {asked:,} bytes for {failed.name}"
    oom = OutOfMemory(failed.file, failed.line, text, asked, max(limit - failed.live, 0), caught=False)
    return replace(seen, stopped="out-of-memory", out_of_memory=(oom,), failed_at=(failed.file, failed.line))


def _without_its_end(found: Rehearsal) -> Rehearsal:
    """Return a program that failed after its training had repeated as one that was stopped then, with a note.

    Values that were not computed fail where a program draws or saves what it learned, and what it needed until there is
    as well known as that of a program that was stopped a moment before.
    """
    if found.stopped != "failed" or found.repeats < LEAST_REPEATS or _OUT_OF_MEMORY.search(found.failure):
        return found
    at = f" at {Path(found.failed_at[0]).name}:{found.failed_at[1]}" if found.failed_at else ""
    why = (found.failure.strip().splitlines() or [f"exit code {found.exit_code}"])[0][:200]
    note = f"the program ended with {why}{at}, after {found.updates:,} calls of large functions: memory until there"
    return replace(found, stopped="repeats", notes=(*found.notes, note))


def _plans(
    messages: Messages, card: KnownGpu, progress: Callable[[str], None]
) -> tuple[dict[tuple[int, int], dict[str, int]], list[str]]:
    """Return XLA's plans by process and number of the program, and why there is none of others."""
    plans: dict[tuple[int, int], dict[str, int]] = {}
    unknown: list[str] = []
    programs = messages.get("xla program", ())
    for count, program in enumerate(programs, 1):
        name, at = str(program["name"]), f"{Path(str(program['file'])).name}:{program['line']}"
        progress(f"XLA plans the memory of {name} for a {card.name} ({count} of {len(programs)})")
        try:
            plans[program["pid"], program["number"]] = plan_program(Path(program["path"]), card)
        except (BadInput, MissingExtra, OSError) as wrong:
            unknown.append(f"{name} ({at}): {wrong}")
    return plans, list(dict.fromkeys(unknown))


def _moments(messages: Messages, plans: Mapping[tuple[int, int], dict[str, int]]) -> list[_Moment]:
    """Return the moments in their order: calls of large functions, and what is live after small ones."""
    about = {(each["pid"], each["number"]): each for each in messages.get("xla program", ())}
    found: list[tuple[float, _Moment]] = []
    for call in messages.get("xla call", ()):
        key = call["pid"], call["number"]
        planned, program = plans.get(key, {}), about[key]
        live = int(call["live"]) + int(program.get("consts") or 0) + planned.get("constants", 0)
        name, place = str(program["name"]), (str(call["file"]), int(call["line"]))
        found.append((
            float(call["t"]), _Moment(live, planned.get("results", 0), planned.get("temporaries", 0), name, *place),
        ))  # fmt: skip
    for each in messages.get("xla live", ()):
        found.append((float(each["t"]), _Moment(int(each["live"]), 0, 0, "", str(each["file"]), int(each["line"]))))
    return [moment for _, moment in sorted(found, key=lambda pair: pair[0])]


def _by_function(moments: Sequence[_Moment]) -> list[str]:
    """Return what each compiled function needs at its fullest call, where there are several."""
    fullest: dict[str, _Moment] = {}
    for moment in moments:
        if moment.name and (moment.name not in fullest or fullest[moment.name].nbytes < moment.nbytes):
            fullest[moment.name] = moment
    largest = sorted(fullest.values(), key=lambda moment: -moment.nbytes)
    if len(largest) < 2:
        return []
    shown = [f"{each.name} {format_size(each.nbytes)} ({Path(each.file).name}:{each.line})" for each in largest]
    more = f", and {len(shown) - MOST_FUNCTIONS} smaller" if len(shown) > MOST_FUNCTIONS else ""
    return [f"compiled functions, with all arrays that are live: {', '.join(shown[:MOST_FUNCTIONS])}{more}"]


def _card_seen(most: _Moment) -> CardSeen:
    parts = {"arrays": most.live, "results": most.results, "program": most.temporaries}
    lines = tuple(
        SourceLine(most.file, most.line, nbytes, most.name, most.name, role)
        for role, nbytes in parts.items() if nbytes
    )  # fmt: skip
    return CardSeen(
        device=0,
        processes=1,
        peak_allocated=most.nbytes,
        peak_reserved=most.nbytes,
        roles=tuple((role, nbytes) for role, nbytes in parts.items() if nbytes),
        lines=lines,
        at=SourceLine(most.file, most.line, most.nbytes, most.name),
        phase="",
        interval=0,
    )
