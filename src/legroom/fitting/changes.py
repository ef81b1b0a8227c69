"""A run with some of its settings changed, by the names they have in a run file; how two runs differ; and mends.

What a library would refuse or silently do differently is mended, so that a fitted run satisfies every constraint, by
the smallest change: the nearest number of minibatches that brax accepts, the nearest minibatch that divides the
rollout. What has no such mend is an error of the file, which no amount of memory helps.
"""

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from legroom.backends.base import backend_of, hyper
from legroom.errors import BadInput
from legroom.model.evidence import Evidence
from legroom.model.footprint import Finding
from legroom.model.plan import Change, Growth, Price
from legroom.model.run import Run
from legroom.model.spaces import Data
from legroom.predicting.constraints import broken_rules


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


Ladder = Callable[[Run, Evidence], Iterator[Run]]
NARROWEST_LAYER = 8
NEVER_FILLS = "a buffer over the run's total would never fill"


def one_setting(where: Callable[[Run, Evidence], bool], **parts: dict[str, Any]) -> Ladder:
    """Return the ladder of a knob with one setting (`with_settings`), `where` that does something for a run."""

    def ladder(run: Run, evidence: Evidence) -> Iterator[Run]:
        if where(run, evidence):
            yield with_settings(run, **parts)

    return ladder


def halves(size: float) -> Iterator[int]:
    """Yield half of it, a quarter, ... down to 1."""
    whole = int(size)
    while whole > 1:
        whole //= 2
        yield whole


def divisors_below(whole: int) -> list[int]:
    """Return the divisors of `whole` below it, largest first."""
    small = [n for n in range(1, math.isqrt(whole) + 1) if whole % n == 0]
    return sorted({n for d in small for n in (d, whole // d)} - {whole}, reverse=True)


def narrower_layers(run: Run, widths: Mapping[str, Any]) -> Iterator[Run]:
    """Yield the run with hidden layers of half the width, a quarter, ...; `widths` are its own, by policy keyword."""
    while any(_widest(value) > NARROWEST_LAYER for value in widths.values()):
        widths = {key: _narrower(value) for key, value in widths.items()}
        yield with_settings(run, policy={"kwargs": {**run.policy.kwargs, **widths}})


def smaller_rings(run: Run, key: str, size: int, least: int) -> Iterator[Run]:
    """Yield the run with replay buffers of three quarters of the size, and again, down to the least."""
    while size > least:
        size = max(int(size * 0.75), least)
        yield with_settings(run, hyperparams={key: size})


def larger_replay(run: Run, key: str) -> Growth:
    """Return the way to a larger replay buffer, whose size is the hyperparameter `key`."""

    def larger(factor: float) -> Run | None:
        size = int((hyper(run, key) or 0) * factor)
        fills = run.total_timesteps is None or size <= run.total_timesteps
        return with_settings(run, hyperparams={key: size}) if size and fills else None

    return Growth("older experience stays longer", larger, "" if run.total_timesteps is None else NEVER_FILLS)


def _widest(value: Any) -> int:
    parts = value.values() if isinstance(value, dict) else [value]
    return max((n if isinstance(n, int) else _widest(n) for part in parts for n in part), default=0)


def _narrower(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _narrower(part) for key, part in value.items()}
    if isinstance(value, list | tuple):
        return [_narrower(part) for part in value]
    return max(value // 2, min(value, NARROWEST_LAYER))


@dataclass(frozen=True)
class Mend:
    """One rule mended: what changed, what that costs, and the rule's own sentence."""

    changes: tuple[Change, ...]
    price: Price
    say: str


def breaks_rules(run: Run) -> bool:
    """Return whether the library would refuse the run, or cut its last minibatch short."""
    return bool(_broken(run))


def repaired(run: Run) -> tuple[Run, list[Mend]]:
    """Return the run with what breaks a rule mended, and the mends.

    Raises:
        BadInput: a broken rule has no mechanical mend.
    """
    mends: list[Mend] = []
    while findings := _broken(run):
        finding = findings[0]
        fitter = backend_of(run).fitter
        mended = fitter.mends.get(finding.name, lambda run: None)(run) or _by_its_fix(run, finding)
        if mended is None or len(mends) > 10:
            raise BadInput(finding.message, path=run.source, hint=finding.hint)
        price = fitter.must_hold.get(finding.name, "changes-learning")
        mends.append(Mend(differences(run, mended), price, finding.message))
        run = mended
    return run, mends


def _broken(run: Run) -> list[Finding]:
    also = backend_of(run).fitter.must_hold
    return [each for each in broken_rules(run) if each.severity == "error" or each.name in also]


def _by_its_fix(run: Run, finding: Finding) -> Run | None:
    fix = finding.fix or {}
    if not fix or not all(isinstance(key, str) and "." in key for key in fix):
        return None
    changes = tuple(Change(key, None, value) for key, value in fix.items())
    return with_changes(run, changes)
