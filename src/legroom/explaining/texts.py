"""The table of texts (`texts.toml`): by which words each is known, what it says, and the numbers in it.

A log of a failure holds several texts: the array that could not be allocated, the EOFError of the parent whose worker
that was, the shell's `Killed`. The rank says who knows most; among equals the last in the log is what ended the run.

The keys of an entry, all but `words` also of its cases, the first of which that applies is taken:

    words           lower case; the places of each are tried, the last first, until one is read
    where, unless   patterns that have to be found, or must not be, in parts of the log: see `LOOKS`
    before, length  of the message around the place, in characters
    depth           how many of the innermost frames of the traceback before the place count
    facts           patterns searched in the message; the first that finds a group sets it
    needs           groups without which the text is none of these
    kind, rank, say, certain, notes, advice    the Explanation; rank "sized" is "refused" with a size, "said" without
    by              the function of `readers` that reads it instead

In sentences, `{name}` is a fact, `[with {name}|without]` what is said where the facts in it are known and where not. A
note whose facts are not known is dropped.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, fields, replace
from functools import cache
from pathlib import Path
from typing import Any

from legroom.explaining.frames import innermost
from legroom.explaining.log import Log
from legroom.explaining.log_programs import REMEDIES, program_of, remedy, surroundings
from legroom.explaining.readers import KIB, READERS, Rank, Reading, reading
from legroom.explaining.sizes import SIZE, array_bytes, parse_shape, to_bytes
from legroom.model.trace import Advice, Explanation, Kind
from legroom.units import format_size


@dataclass(frozen=True)
class Text:
    """An entry of the table; its keys are explained above."""

    words: tuple[str, ...] = ()
    where: Mapping[str, str] = field(default_factory=dict)
    unless: Mapping[str, str] = field(default_factory=dict)
    before: int = 0
    length: int = 600
    depth: int = 4
    facts: tuple[str, ...] = ()
    needs: tuple[str, ...] = ()
    kind: Kind = "unknown"
    rank: str = "refused"
    say: str = ""
    certain: bool = True
    notes: tuple[str, ...] = ()
    advice: tuple[Any, ...] = ()
    by: str = ""
    case: tuple[Mapping[str, Any], ...] = ()

    def readings(self, log: Log) -> Iterator[Reading]:
        for word in self.words:
            found = next((reading for place in log.places(word) if (reading := self.read(log, place))), None)
            if found is not None:
                yield found

    def read(self, log: Log, place: int) -> Reading | None:
        """Return what is said at a place where one of the words stands; None where it is something else."""
        if not self._is_at(log, place):
            return None
        if self.by:
            return READERS[self.by](log, place)
        if self.case:
            return next((found for each in self.cases if (found := each.read(log, place))), None)
        facts = self._facts_in(log.message(place, length=self.length, before=self.before))
        if any(name not in facts for name in self.needs):
            return None
        program = program_of(log, place) if self.advice else None
        advice = [_advice(one, {"prefix": program.prefix if program else "", **facts}) for one in self.advice]
        sized = "refused" if "requested" in facts else "said"
        return reading(
            place, Rank[(sized if self.rank == "sized" else self.rank).upper()], self.kind, filled(self.say, facts),
            certain=self.certain, notes=tuple(filter(None, (filled(note, facts) for note in self.notes))),
            advice=tuple(advice), **{name: value for name, value in facts.items() if name in _FIELDS},
        )  # fmt: skip

    @property
    def cases(self) -> Iterator[Text]:
        """The entry as each of its cases completes it; what it is known by has been looked at."""
        for one in self.case:
            yield replace(self, **{"where": {}, "unless": {}, "case": (), **one})

    def _is_at(self, log: Log, place: int) -> bool:
        return all(
            bool(re.search(pattern, LOOKS[part](self, log, place))) is wanted
            for wanted, patterns in ((True, self.where), (False, self.unless)) for part, pattern in patterns.items()
        )  # fmt: skip

    def _facts_in(self, message: str) -> dict[str, Any]:
        found: dict[str, Any] = {}
        for pattern in self.facts:
            match = re.search(pattern, message)
            groups: Mapping[str, Any] = match.groupdict() if match is not None else {}
            for name, text in groups.items():
                if text is not None and (value := _value(name, text)) is not None:
                    found.setdefault(name.removesuffix("_kib"), value)
        if "shape" in found and (nbytes := array_bytes(found["shape"], found.get("dtype"))):
            found.setdefault("requested", nbytes)
        return found


_FIELDS = {each.name for each in fields(Explanation)} - {"kind", "certain", "summary", "notes", "advice"}
_OPTIONAL = re.compile(r"\[([^][|]*)\|?([^][|]*)\]")
_NAMED = re.compile(r"\{(\w+)(:,)?\}")
_MACRO = re.compile(r"(?<!\?P)<([a-z_]+)>")
LOOKS: Mapping[str, Callable[[Text, Log, int], str]] = {
    "at": lambda text, log, place: log.text[max(place - 1, 0) : place + 40],
    "line": lambda text, log, place: log.line(place),
    "message": lambda text, log, place: log.message(place, length=text.length, before=text.before),
    "near": lambda text, log, place: log.around(place, before=400, after=400),
    "frames": lambda text, log, place: innermost(log, place, text.depth),
    "frames_or_line": lambda text, log, place: f"{innermost(log, place, text.depth)}\n{log.line(place)}",
    "frames_or_before": lambda text, log, place: (
        f"{innermost(log, place, text.depth)}\n{log.around(place, before=300, after=0)}"
    ),
    "surroundings": lambda text, log, place: surroundings(log, place),
    "program": lambda text, log, place: getattr(program_of(log, place), "name", ""),
}


def _value(name: str, text: str) -> Any:
    """Return a fact as the Explanation has it: bytes where it is a size, else the text; None for a size of nothing."""
    if name == "shape":
        return parse_shape(text)
    if name.endswith("_kib"):
        return int(text) * KIB
    size = int(text) if text.isdigit() and name in _FIELDS else to_bytes(text)
    return text if size is None else size if size or name != "requested" else None


def filled(sentence: str, facts: Mapping[str, Any]) -> str:
    """Return a sentence of the table with the facts in it; empty where it needs one that is not known."""
    known = {name for name, value in facts.items() if value}

    def chosen(option: re.Match[str]) -> str:
        return option[1] if {name for name, _ in _NAMED.findall(option[1])} <= known else option[2]

    def written(match: re.Match[str]) -> str:
        value = facts[match[1]]
        return f"{int(value):,}" if match[2] else format_size(value) if isinstance(value, int) else str(value)

    text = _OPTIONAL.sub(chosen, sentence)
    said = {name for name, _ in _NAMED.findall(text)}
    if not said <= facts.keys() or (not said and _NAMED.search(sentence) and sentence.endswith("]")):
        return ""
    return _NAMED.sub(written, text).rstrip(", ")


def _advice(one: str | list[str], facts: Mapping[str, Any]) -> Advice:
    if isinstance(one, str):
        return REMEDIES[one]
    knob, price, say = one
    return remedy(_NAMED.sub(lambda match: str(facts[match[1]]), knob), price, say)  # type: ignore[arg-type]


@cache
def texts() -> tuple[Text, ...]:
    """Return the table."""
    table = tomllib.loads(Path(__file__).with_name("texts.toml").read_text(encoding="utf-8"))
    sentences = table["sentences"]

    def row(given: Mapping[str, Any]) -> dict[str, Any]:
        made: dict[str, Any] = {k: tuple(value) if isinstance(value, list) else value for k, value in given.items()}
        for key in ("where", "unless"):
            if key in made:
                made[key] = {part: p if isinstance(p, str) else "|".join(p) for part, p in made[key].items()}
        if "facts" in made:
            made["facts"] = tuple(_MACRO.sub(lambda m: SIZE.replace("(", f"(?P<{m[1]}>", 1), p) for p in made["facts"])
        if "say" in made:
            made["say"] = sentences.get(made["say"], made["say"])
        if "case" in made:
            made["case"] = tuple(row(each) for each in made["case"])
        return made

    return tuple(Text(**row(given)) for given in table["text"])
