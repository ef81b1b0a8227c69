"""What a change of a run does to its memory, and because of which values.

Both versions are predicted by arithmetic. Which value matters is found by turning one at a time: the old run with the
new value, and the new run with the old one; the mean of both is what the value is charged with. So two values that only
together are large share it.

Spaces that only the environment knows are replaced by a stand-in, the same on both sides: the sizes are then not the
user's, which is said, but the cause is. A value that memory depends on in general and hardly in this run (a replay
buffer that the run is too short to fill) is listed apart, since it was changed on purpose.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from difflib import SequenceMatcher
from typing import Any

from legroom.backends.base import algorithm_of
from legroom.comparing.size_names import matters
from legroom.errors import BadInput, LegroomError
from legroom.model.footprint import Footprint
from legroom.model.machine import Machine
from legroom.model.run import Run
from legroom.model.verdict import Budget, fits
from legroom.predicting.predict import DeviceName, add_up, gather

NO_CAUSE = ("name", "description", "recommended_for", "source", "seed")
WHOLE = ("env.spaces", "env.kwargs", "eval", "checkpoint")  # compared as one value
WORTH_NAMING = 0.05  # of the largest effect
SAME_RUN = 0.8  # how alike the names of a run before and after are: Walker-v2 and Walker-v3
_PICTURE = {"type": "box", "shape": [84, 84, 4], "dtype": "uint8"}
_VECTOR = {"type": "box", "shape": [64]}


@dataclass(frozen=True)
class Cause:
    """A value that changed; `effect` in bytes of host and GPU together, None where it cannot be said."""

    key: str
    before: Any
    after: Any
    effect: int | None


@dataclass(frozen=True)
class Difference:
    """One run before and after; None for a version that has it not, or of which memory is not known.

    Args:
        causes: the values that changed and matter, the largest effect first.
        minor: those that changed, that memory depends on, and that make little or no difference here.
        stand_in: what was taken for spaces that are not known; empty where they are.
        fits: of the version after; None where there is no budget or it is not known.
    """

    name: str
    before: Footprint | None
    after: Footprint | None
    causes: tuple[Cause, ...] = ()
    minor: tuple[Cause, ...] = ()
    stand_in: str = ""
    fits: bool | None = None


def compare(
    old: Sequence[Run], new: Sequence[Run], machine: Machine, budget: Budget, device: DeviceName | None
) -> list[Difference]:
    """Return what changed, run by run: those of the same name, or in order where names changed."""
    return [_difference(*pair, machine, budget, device) for pair in _pairs(old, new)]


def _pairs(old: Sequence[Run], new: Sequence[Run]) -> list[tuple[Run | None, Run | None]]:
    """Return which run became which: by name, by a name much like it, in order where no name stayed."""
    named = {run.name: run for run in old}
    if len(old) == len(new) and not {run.name for run in new} & set(named):
        return list(zip(old, new, strict=True))
    pairs: list[tuple[Run | None, Run | None]] = [(named.pop(run.name, None), run) for run in new]
    for place, (before, after) in enumerate(pairs):
        if before is None and after is not None and named:
            alike = max(named, key=lambda name: _alike(name, after.name))
            if _alike(alike, after.name) >= SAME_RUN:
                pairs[place] = (named.pop(alike), after)
    return [*pairs, *((run, None) for run in named.values())]


def _alike(one: str, two: str) -> float:
    return SequenceMatcher(None, one, two, autojunk=False).ratio()


def _difference(
    old: Run | None, new: Run | None, machine: Machine, budget: Budget, device: DeviceName | None
) -> Difference:
    both = [run for run in (old, new) if run is not None]
    adder = _Adder(machine, device, both)
    before, after = (None if run is None else adder.footprint(run) for run in (old, new))
    causes, minor = _causes(old, new, adder) if old is not None and new is not None else ([], [])
    judged = fits(after, budget) if after is not None and not adder.stand_in else None
    return Difference(both[-1].name, before, after, tuple(causes), tuple(minor), adder.stand_in, judged)


class _Adder:
    """Predicts runs by arithmetic, with stand-ins for spaces that are not known."""

    def __init__(self, machine: Machine, device: DeviceName | None, runs: Sequence[Run]) -> None:
        self._machine, self._device, self._spaces, self.stand_in = machine, device, None, ""
        if all(self.footprint(run) is not None for run in runs):
            return
        kind, observation = _stand_in(runs[-1])
        for action in ({"type": "discrete", "n": 6}, {"type": "box", "shape": [4]}):
            self._spaces, self.stand_in = {"observation": observation, "action": action}, kind
            if all(self.footprint(run) is not None for run in runs):
                return
        self._spaces, self.stand_in = None, ""

    def footprint(self, run: Run) -> Footprint | None:
        """Return what a run needs, None where that cannot be said."""
        try:
            if self._spaces is not None:
                run = Run.model_validate(_with(run.model_dump(), "env.spaces", self._spaces))
            return add_up(*gather(run, self._machine, mode="arithmetic", device=self._device))
        except (LegroomError, ValueError, TypeError):
            return None

    def nbytes(self, data: dict[str, Any]) -> int | None:
        """Return the upper ends of host and GPU together, None where such a run cannot be."""
        try:
            footprint = self.footprint(Run.model_validate(data))
        except (BadInput, ValueError, TypeError):
            return None
        if footprint is None:
            return None
        return footprint.host.nbytes + (footprint.gpu.nbytes if footprint.gpu is not None else 0)


def _stand_in(run: Run) -> tuple[str, dict[str, Any]]:
    if "Cnn" in run.policy.name:
        return "pictures of 84×84×4", _PICTURE
    if "MultiInput" in run.policy.name:
        return "a picture of 84×84×4 and 64 numbers", {"type": "dict", "spaces": {"image": _PICTURE, "state": _VECTOR}}
    return "64 numbers", _VECTOR


def _causes(old: Run, new: Run, adder: _Adder) -> tuple[list[Cause], list[Cause]]:
    """Return the values that changed, by their effect, and those of sizes that have next to none."""
    one, two = _filled(old), _filled(new)
    first, second = _flat(one), _flat(two)
    changed = [key for key in {**first, **second} if first.get(key) != second.get(key) and key not in NO_CAUSE]
    begin, end = adder.nbytes(one), adder.nbytes(two)
    causes = []
    for key in changed:
        forth, back = adder.nbytes(_with(one, key, second.get(key))), adder.nbytes(_with(two, key, first.get(key)))
        effects = [a - b for a, b in ((forth, begin), (end, back)) if a is not None and b is not None]
        causes.append(Cause(key, first.get(key), second.get(key), sum(effects) // len(effects) if effects else None))
    causes.sort(key=lambda cause: -abs(cause.effect or 0))
    largest = abs(causes[0].effect or 0) if causes else 0
    worth = [cause for cause in causes if cause.effect is None or abs(cause.effect) > WORTH_NAMING * largest]
    return worth, [cause for cause in causes if cause not in worth and matters(cause.key)]


def _filled(run: Run) -> dict[str, Any]:
    """Return the run as plain data, its library's defaults for what it does not say included."""
    data = run.model_dump()
    data["hyperparams"] = {**_plain_defaults(algorithm_of(run).defaults), **data["hyperparams"]}
    return data


def _plain_defaults(defaults: Mapping[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in defaults.items() if isinstance(value, int | float | str | bool)}


def _flat(data: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    found: dict[str, Any] = {}
    for name, value in data.items():
        key = f"{prefix}{name}"
        if isinstance(value, Mapping) and key not in WHOLE:
            found |= _flat(value, f"{key}.")
        else:
            found[key] = value
    return found


def _with(data: dict[str, Any], key: str, value: Any) -> dict[str, Any]:
    """Return plain data with one key of it set; None takes it away."""
    name, _, rest = key.partition(".")
    copied = dict(data)
    if rest:
        copied[name] = _with(copied.get(name) or {}, rest, value)
    elif value is None:
        copied.pop(name, None)
    else:
        copied[name] = value
    return copied
