"""A run with some of its settings changed, by the names they have in a run file, and how two runs differ."""

from typing import Any

from legroom.model.data import Data
from legroom.model.plan import Change
from legroom.model.run import Run


def with_settings(run: Run, **parts: dict[str, Any]) -> Run:
    """Return the run with keys of its parts replaced: `with_settings(run, memory={"micro_batch": 8})`.

    A value of None takes the key out of `hyperparams`, where None would be a value.
    """
    changed: dict[str, Any] = {}
    for part, values in parts.items():
        old = getattr(run, part)
        if isinstance(old, Data):
            changed[part] = old.model_copy(update=values)
        else:
            merged = {**old, **values}
            changed[part] = {key: value for key, value in merged.items() if value is not None or key not in values}
    return run.replace(**changed)


def with_changes(run: Run, changes: tuple[Change, ...], *, undo: bool = False) -> Run:
    """Return the run with the changes made, or unmade."""
    for change in changes:
        run = _put(run, change.key.split("."), change.before if undo else change.after)
    return run


def differences(before: Run, after: Run) -> tuple[Change, ...]:
    """Return every setting in which the runs differ, as plain data, in the order of the run file."""
    found: list[Change] = []
    for part in ("env", "policy", "hyperparams", "memory", "eval", "device"):
        _compare(part, getattr(before, part), getattr(after, part), found)
    return tuple(found)


def _compare(key: str, before: Any, after: Any, found: list[Change]) -> None:
    if before == after:
        return
    if isinstance(before, Data) and isinstance(after, Data) and key.count(".") == 0:
        for name in before.model_dump():
            _compare(f"{key}.{name}", getattr(before, name), getattr(after, name), found)
    elif isinstance(before, dict) and isinstance(after, dict) and key != "env.kwargs":
        for name in {**before, **after}:
            _compare(f"{key}.{name}", before.get(name), after.get(name), found)
    else:
        found.append(Change(key, before, after))


def _put(owner: Any, path: list[str], value: Any) -> Any:
    """Return `owner`, a Data or a dict, with the value at `path` replaced."""
    name, rest = path[0], path[1:]
    if isinstance(owner, Data):
        return owner.model_copy(update={name: _put(getattr(owner, name), rest, value) if rest else value})
    if rest:
        return {**owner, name: _put(owner.get(name) or {}, rest, value)}
    if value is None:
        return {key: entry for key, entry in owner.items() if key != name}
    return {**owner, name: value}
