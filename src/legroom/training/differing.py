"""What a resume is asked for, compared with the run that its folder was begun with.

Both are runs as they were asked for, before any knob was turned. What changes learning is refused unless the user
allows it; then only what differs is taken over, and the knobs that were turned stay. What keeps learning the same
(memory, workers) stays as the folder has it, and is said.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from legroom.errors import BadInput
from legroom.model.run import Run

Name = tuple[str, ...]
Differences = dict[Name, tuple[Any, Any]]
ABSENT = object()
# Taken from what is asked for now, or only words.
FREE = ("total_timesteps", "checkpoint", "seed", "name", "description", "recommended_for", "source", "legroom")
SAME_LEARNING: tuple[Name, ...] = (
    ("memory",), ("eval",), ("device",), ("env", "workers"), ("env", "envs_per_worker"), ("env", "start_method"),
    ("env", "spaces"), ("env", "episode_steps"), ("env", "nbytes"), ("env", "timeout"), ("env", "on_timeout"),
)  # fmt: skip


def differences(then: Run, now: Run) -> Differences:
    """Return the settings in which two runs differ, with both values; `ABSENT` where one does not say."""
    before, after = (dict(_flat(run.model_dump())) for run in (then, now))
    return {
        name: (before.get(name, ABSENT), after.get(name, ABSENT))
        for name in [*before, *(name for name in after if name not in before)]
        if name[0] not in FREE and before.get(name, ABSENT) != after.get(name, ABSENT)
    }


def changing_learning(found: Differences) -> Differences:
    return {name: values for name, values in found.items() if not _within(name, SAME_LEARNING)}


def with_changes(run: Run, changes: Differences) -> Run:
    """Return the run with the later values.

    Raises:
        BadInput: they are no run together.
    """
    data = run.model_dump()
    for name, (_, value) in changes.items():
        *way, last = name
        inner = data
        for key in way:
            if not isinstance(inner.get(key), dict):
                inner[key] = {}
            inner = inner[key]
        if value is ABSENT:
            inner.pop(last, None)
        else:
            inner[last] = value
    try:
        return Run.model_validate(data)
    except ValueError as error:  # of pydantic
        raise BadInput(f"the changes cannot be applied: {error}", path=run.source) from None


def refuse(found: Differences, folder: Path) -> None:
    """Raise where something changes learning.

    Raises:
        BadInput: says what, with both values.
    """
    for name, values in found.items():
        which = f"{_said(name)} " if len(name) > 1 else ""
        raise BadInput(
            f"was started with another {name[0]}: {which}{shown(values[0])}, not {shown(values[1])}"
            + (f", and {len(found) - 1} more" if len(found) > 1 else ""),
            path=folder,
            hint="resume with the same run, accept the change with --allow-changes, or use another --out",
        )


def listed(found: Differences) -> str:
    return ", ".join(f"{_said(name)} {shown(then)} -> {shown(now)}" for name, (then, now) in found.items())


def shown(value: Any) -> str:
    text = "not set" if value is ABSENT or value is None else str(value)
    return text if len(text) <= 60 else f"{text[:59]}…"


def _said(name: Name) -> str:
    return ".".join(name)


def _within(name: Name, parts: Sequence[Name]) -> bool:
    return any(name[: len(part)] == part for part in parts)


def _flat(data: Mapping[str, Any], way: Name = ()) -> Iterator[tuple[Name, Any]]:
    for key, value in data.items():
        if isinstance(value, dict) and value:
            yield from _flat(value, (*way, key))
        elif value != {}:  # an empty dict says nothing; one that is filled later differs by its entries
            yield (*way, key), value
