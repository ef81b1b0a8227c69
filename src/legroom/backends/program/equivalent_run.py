"""The training library inside a program: the run file that would be the same.

A program that makes a model of a library we have a backend for has told its guest how; the backend knows the run.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from legroom.backends.base import backends
from legroom.model.rehearsal import SameRun


def same_runs(calls: Iterable[dict[str, Any]], learned: Iterable[dict[str, Any]]) -> Iterator[SameRun]:
    """Yield the runs that were made and trained, the last of each constructor's line."""
    steps = {message.get("id"): message.get("total_timesteps") for message in learned}
    found: dict[tuple[str, int], SameRun] = {}
    for call in calls:
        place = str(call.get("file") or ""), int(call.get("line") or 0)
        record = {**call, "total_timesteps": steps.get(call.get("id"))}
        known = (backend.reader.run_of_object(record, None) for backend in backends())
        if (run := next((run for run in known if run is not None), None)) is not None:
            found[place] = SameRun(run, *place)
    yield from found.values()
