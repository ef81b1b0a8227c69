"""A rehearsal's result from its document: what `legroom predict --json -- COMMAND` printed, drawn again.

The page opens such files. They may come from anywhere: every value is checked, and no file that they name is read; the
text of a source line is in the document itself.
"""

from __future__ import annotations

from collections.abc import Mapping
from json import dumps
from typing import Any, TypeVar, cast

from legroom.errors import BadInput
from legroom.model.finding import Finding
from legroom.model.footprint import AllocatorPeaks, Assumed, Footprint, Item
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
    """Say whether parsed JSON is the document of a rehearsed program."""
    runs = data.get("runs") if isinstance(data, Mapping) else None
    return bool(isinstance(runs, list) and runs and isinstance(runs[0], Mapping) and "program" in runs[0])


def prediction_from(data: Any) -> ProgramPrediction:
    """The prediction that a document tells of.

    Raises:
        BadInput: something in it is not what `predict` writes.
    """
    try:
        return _prediction(data["runs"][0])
    except (KeyError, IndexError, TypeError, ValueError, AttributeError) as wrong:
        said = " ".join(str(wrong).split())[:120]
        raise BadInput(
            f"not the result of a rehearsal ({type(wrong).__name__}: {said})", hint="legroom predict --json -- COMMAND"
        ) from None


def _prediction(run: Mapping[str, Any]) -> ProgramPrediction:
    program = run["program"]
    allocator = (run.get("gpu") or {}).get("allocator")
    footprint = Footprint(
        name=_made(str, run["name"]),
        items=items_of(run),
        device="cuda" if run.get("gpu") else "cpu",
        findings=_made(tuple[Finding, ...], run["findings"]),
        allocator=None if allocator is None else _allocator(allocator),
        notes=_made(tuple[str, ...], run["notes"]),
        unknown=_made(tuple[str, ...], run.get("unknown") or []),
        assumed=_made(tuple[Assumed, ...], program["assumed"]),
    )
    return ProgramPrediction(
        _rehearsal(program, footprint), footprint, _made(Budget, program["budget"]),
        run["fits"] if isinstance(run["fits"], bool) else None, _made(tuple[str, ...], program["ways"]),
        so_far=bool(program.get("so_far")),
    )  # fmt: skip


def items_of(run: Mapping[str, Any]) -> tuple[Item, ...]:
    """The items of a run in a document of `predict`."""
    return _made(tuple[Item, ...], run["items"])


def _rehearsal(program: Mapping[str, Any], footprint: Footprint) -> Rehearsal:
    at, oom, over, code = program["at"], program["out_of_memory"], program["timeline"], program["exit_code"]
    failed = [each for each in program.get("failed_requests") or [] if each["retried"] is not None]
    retried = [{**each, **_NO_REQUEST, "caught": True, "retried": list(each["retried"].values())} for each in failed]
    refused = retried if oom is None else [{**_NO_REQUEST, "file": "", "line": 0, "text": oom, "caught": False}]
    return Rehearsal(
        command=_made(tuple[str, ...], program["command"]),
        exit_code=code if isinstance(code, int) else None,
        stopped=_made(cast(Any, Stopped), program["stopped"]),
        updates=_made(int, program["updates"]),
        repeats=_made(int, program["repeats"]),
        seconds=_made(float, program["seconds"]),
        host=HostSeen(footprint.host.nbytes, _made(int, program["host"]["now"]), 0, 1),
        card=_card(program["card"], program["areas"], footprint.allocator),
        failure=_made(str, program["failure"]),
        jax=_made(str, program.get("jax") or ""),
        jax_alone=bool(program.get("jax")),
        failed_at=None if at is None else _made(tuple[str, int], [at["file"], at["line"]]),
        out_of_memory=_made(tuple[OutOfMemory, ...], refused),
        not_reached=_made(tuple[NotReached, ...], program.get("not_reached") or []),
        leaks=_made(tuple[Leak, ...], [{"steps": 0, "made": ["", 0], **each} for each in program["leaks"]]),
        points=_made(tuple[tuple[float, int, int], ...], over["points"]),
        step_times=_made(tuple[float, ...], over["steps"]),
    )


_NO_REQUEST = {"text": "", "requested": 0, "free": 0}


def _card(card: Mapping[str, Any] | None, areas: Any, peaks: AllocatorPeaks | None) -> CardSeen | None:
    if card is None:
        return None
    lines = _made(tuple[SourceLine, ...], areas)
    if peaks is None:  # of XLA's allocator, which a document has in its items alone
        whole = sum(line.nbytes for line in lines)
        peaks = AllocatorPeaks(whole, whole, 0)
    at = None if card["at"] is None else _made(SourceLine, card["at"])
    phase, interval = _made(str, card["phase"]), _made(int, card["interval"])
    return CardSeen(0, 1, peaks.peak_allocated, peaks.peak_reserved, (), lines, at, phase, interval)


def _allocator(data: Mapping[str, Any]) -> AllocatorPeaks:
    allocated, reserved, high = _made(
        tuple[int, int, int], [data["peak_allocated"], data["peak_reserved"], data["band"][1]]
    )
    return AllocatorPeaks(allocated, reserved, max(high - reserved, 0))


def _made(kind: type[T], data: Any) -> T:
    """Plain data as what it has to be.

    Raises:
        ValueError: it is something else, too long, or a number that is no size or count.
    """
    from pydantic import TypeAdapter  # heavy

    return TypeAdapter(kind).validate_json(dumps(_bounded(data)), strict=True)


def _bounded(value: Any) -> Any:
    if isinstance(value, str):
        return value[:LONGEST_TEXT]
    if isinstance(value, int | float) and not 0 <= value <= LARGEST:
        raise ValueError(f"{value!r}"[:80] + " is not a size or count")
    if isinstance(value, list):
        if len(value) > MOST_ROWS:
            raise ValueError("a list is too long")
        return [_bounded(each) for each in value]
    return {key: _bounded(each) for key, each in value.items()} if isinstance(value, dict) else value
