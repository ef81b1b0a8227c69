"""A rehearsal's result from its document: what `legroom predict --json -- COMMAND` printed, drawn again.

The page opens such files. They may come from anywhere: every value is checked, and no file that they name is read; the
text of a source line is in the document itself.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, TypeVar, get_args

from legroom.errors import BadInput
from legroom.model.finding import Finding
from legroom.model.footprint import AllocatorPeaks, Assumed, Footprint, Item, Known, Phase, Place
from legroom.model.rehearsal import (
    CardSeen,
    HostSeen,
    Leak,
    NotReached,
    OutOfMemory,
    ProgramPrediction,
    Rehearsal,
    SourceLine,
    Stopped,
)
from legroom.model.verdict import Budget

MOST_ROWS, LONGEST_TEXT, LARGEST = 5_000, 2_000, 1 << 62
T = TypeVar("T")


def is_rehearsal(data: Any) -> bool:
    """Return whether parsed JSON is the document of a rehearsed program."""
    runs = data.get("runs") if isinstance(data, Mapping) else None
    return bool(isinstance(runs, list) and runs and isinstance(runs[0], Mapping) and "program" in runs[0])


def prediction_from(data: Any) -> ProgramPrediction:
    """Return the prediction that a document tells of.

    Raises:
        BadInput: something in it is not what `predict` writes.
    """
    try:
        return _prediction(data["runs"][0])
    except (KeyError, IndexError, TypeError, ValueError, AttributeError) as wrong:
        raise BadInput(
            f"not the result of a rehearsal ({type(wrong).__name__}: {wrong})", hint="legroom predict --json -- COMMAND"
        ) from None


def _prediction(run: Mapping[str, Any]) -> ProgramPrediction:
    program = run["program"]
    allocator = (run.get("gpu") or {}).get("allocator")
    footprint = Footprint(
        name=_text(run["name"]),
        items=tuple(_item(each) for each in _rows(run["items"])),
        device="cuda" if run.get("gpu") else "cpu",
        findings=tuple(_finding(each) for each in _rows(run["findings"])),
        allocator=None if allocator is None else _allocator(allocator),
        notes=tuple(_text(each) for each in _rows(run["notes"])),
        unknown=tuple(_text(each) for each in _rows(run.get("unknown") or ())),
        assumed=tuple(_assumed(each) for each in _rows(program["assumed"])),
    )
    budget = program["budget"]
    fits = run["fits"]
    return ProgramPrediction(
        _rehearsal(program, footprint), footprint,
        Budget(_whole(budget["ram"]), _whole(budget["vram"]), float(budget["reserve"]), _text(budget["ram_origin"]),
               _text(budget["vram_origin"])),
        fits if fits is None or isinstance(fits, bool) else None,
        tuple(_text(each) for each in _rows(program["ways"])),
        so_far=bool(program.get("so_far")),
    )  # fmt: skip


def _rehearsal(program: Mapping[str, Any], footprint: Footprint) -> Rehearsal:
    stopped = program["stopped"]
    if stopped not in get_args(Stopped):
        raise ValueError(f"stopped: {stopped!r}"[:80])
    at, oom, over = program["at"], program["out_of_memory"], program["timeline"]
    return Rehearsal(
        command=tuple(_text(each) for each in _rows(program["command"])),
        exit_code=_whole(program["exit_code"]),
        stopped=stopped,
        updates=_number(program["updates"]),
        repeats=_number(program["repeats"]),
        seconds=float(program["seconds"]),
        host=HostSeen(footprint.host.nbytes, _number(program["host"]["now"]), 0, 1),
        card=_card(program["card"], program["areas"], footprint.allocator),
        failure=_text(program["failure"]),
        jax=_text(program.get("jax") or ""),
        jax_alone=bool(program.get("jax")),
        failed_at=None if at is None else (_text(at["file"]), _number(at["line"])),
        out_of_memory=tuple(_requests(program)) if oom is None else (OutOfMemory("", 0, _text(oom), 0, 0, False),),
        not_reached=tuple(
            NotReached(_text(each["file"]), _number(each["line"]), _text(each["text"]))
            for each in _rows(program.get("not_reached") or ())
        ),
        leaks=tuple(
            Leak(_text(each["file"]), _number(each["line"]), _number(each["nbytes"]), 0, ("", 0))
            for each in _rows(program["leaks"])
        ),
        points=tuple((float(t), _number(a), _number(b)) for t, a, b in _rows(over["points"])),
        step_times=tuple(float(t) for t in _rows(over["steps"])),
    )


def _requests(program: Mapping[str, Any]) -> Iterator[OutOfMemory]:
    """Yield the requests that failed and were retried with less."""
    for each in _rows(program.get("failed_requests") or ()):
        if (went_on := each["retried"]) is not None:
            retried = _text(went_on["file"]), _number(went_on["line"])
            yield OutOfMemory(_text(each["file"]), _number(each["line"]), "", 0, 0, caught=True, retried=retried)


def _card(card: Mapping[str, Any] | None, areas: Any, peaks: AllocatorPeaks | None) -> CardSeen | None:
    if card is None:
        return None
    lines = tuple(_line(each) for each in _rows(areas))
    if peaks is None:  # of XLA's allocator, which a document has in its items alone
        whole = sum(line.nbytes for line in lines)
        peaks = AllocatorPeaks(whole, whole, 0)
    at = None if card["at"] is None else _line(card["at"])
    return CardSeen(
        0, 1, peaks.peak_allocated, peaks.peak_reserved, (), lines, at, _text(card["phase"]), _number(card["interval"])
    )


def _line(data: Mapping[str, Any]) -> SourceLine:
    return SourceLine(
        _text(data["file"]), _number(data["line"]), _number(data["nbytes"]), module=_text(data["module"]),
        role=_text(data["role"]), source=_text(data["source"]),
    )  # fmt: skip


def _item(data: Mapping[str, Any]) -> Item:
    return Item(
        _text(data["name"]), _number(data["nbytes"]), Place(data["place"]), _text(data["why"]),
        tuple(Phase(each) for each in _rows(data["phases"])), count=_number(data["count"]),
        known=Known(data["known"]), error=_number(data["error"]),
    )  # fmt: skip


def _allocator(data: Mapping[str, Any]) -> AllocatorPeaks:
    reserved = _number(data["peak_reserved"])
    return AllocatorPeaks(_number(data["peak_allocated"]), reserved, max(_number(data["band"][1]) - reserved, 0))


def _finding(data: Mapping[str, Any]) -> Finding:
    if data["severity"] not in ("error", "warning", "info"):
        raise ValueError("severity of a finding")
    path, line = data.get("path"), data.get("line")
    return Finding(
        _text(data["code"]), _text(data["name"]), data["severity"], _text(data["message"]), _text(data["hint"]),
        None if path is None else _text(path), None if line is None else _number(line),
    )  # fmt: skip


def _assumed(data: Mapping[str, Any]) -> Assumed:
    return Assumed(_text(data["file"]), _number(data["line"]), _text(data["what"]), _number(data["count"]))


def _rows(value: Any) -> Sequence[Any]:
    if not isinstance(value, list | tuple) or len(value) > MOST_ROWS:
        raise ValueError("a list is missing or too long")
    return value


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise ValueError(f"{value!r}"[:80] + " is not text")
    return value[:LONGEST_TEXT]


def _number(value: Any) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value <= LARGEST:
        raise ValueError(f"{value!r}"[:80] + " is not a size or count")
    return value


def _whole(value: Any) -> int | None:
    return None if value is None else _number(value)
