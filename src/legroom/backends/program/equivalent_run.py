"""The training library inside a program: the run file that would be the same, and the items of its storage.

A program that makes a model of a library we have a backend for has told its guest how. The backend knows the run, so
what the memory is for: the fields of a replay buffer, a rollout and the copy that flattening it makes. The figures of
the bill stay those of the rehearsal; the backend gives them their names, where both agree.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from typing import Any

from legroom.backends.base import backend_of, backends
from legroom.errors import BadInput
from legroom.machine import probe
from legroom.model.footprint import Item, Phase
from legroom.model.rehearsal import Filling, SameRun
from legroom.predicting.predict import add_up, gather
from legroom.units import duration_text

AGREEMENT = 0.05  # between what a library's buffer takes by arithmetic and the arrays that were asked for


def same_runs(calls: Iterable[dict[str, Any]], learned: Iterable[dict[str, Any]]) -> Iterator[SameRun]:
    """Yield the runs that were made and trained, the last of each constructor's line."""
    trained = {message.get("id"): message for message in learned}
    found: dict[tuple[str, int], SameRun] = {}
    for call in calls:
        place = str(call.get("file") or ""), int(call.get("line") or 0)
        learning = trained.get(call.get("id")) or {}
        record = {**call, "total_timesteps": learning.get("total_timesteps")}
        run = next(
            (run for backend in backends() if (run := backend.reader.run_of_object(record, None)) is not None), None
        )
        if run is not None:
            items = tuple(_stored(run))
            found[place] = SameRun(run, items, *place, tuple(learning.get("buffer_files") or ()))
    yield from found.values()


def _stored(run: Any) -> Iterator[Item]:
    """Yield what the run keeps of its steps: the items of its rollout or replay."""
    try:
        known, evidence = gather(run, probe(), mode="arithmetic")
        footprint = add_up(known, evidence)
    except BadInput:
        return
    kind = f"{backend_of(run).predictor.storage(run).kind}."
    for item in footprint.items:
        if item.name.startswith(kind) and item.phases != (Phase.START,):
            yield item


def divided(
    own: int, filling: Sequence[Filling], same: SameRun | None
) -> tuple[int, tuple[Filling, ...], tuple[Item, ...]]:
    """Return what is left of the process and of its buffers, and the library's items that were taken out of them."""
    if same is None or not same.items:
        return own, tuple(filling), ()
    whole = sum(item.total for item in same.items)
    theirs = [one for one in filling if one.file in same.buffer_files]
    rest = tuple(one for one in filling if one not in theirs)
    if (
        backend_of(same.run).predictor.storage(same.run).kind == "rollout"
    ):  # was full before the first update: in the process
        left = min(own, own - whole + sum(one.nbytes for one in theirs))  # which are not in the process's own memory
        return (left, rest, same.items) if left >= 0 else (own, tuple(filling), ())
    asked = sum(one.nbytes for one in theirs)
    if abs(asked - whole) > AGREEMENT * whole:
        return own, tuple(filling), ()
    return own, rest, tuple(_with_times(item, theirs) for item in same.items)


def _with_times(item: Item, theirs: Sequence[Filling]) -> Item:
    seconds = [one.seconds for one in theirs if one.seconds is not None]
    if not seconds:
        return item
    return replace(item, why=f"{item.why}; full in about {duration_text(max(seconds))}")
