"""brax training calls of a script: `ppo.train(...)`, also through `functools.partial`, with their arguments."""

import ast
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from legroom.backends.base import find_algorithm
from legroom.reading.interpreter.asker import integer_of, value_of
from legroom.reading.interpreter.script import Script
from legroom.reading.interpreter.values import Unfoldable

_TRAIN = {"brax.training.agents.ppo.train.train": "PPO", "brax.training.agents.sac.train.train": "SAC",
          "brax.training.agents.ppo.train": "PPO", "brax.training.agents.sac.train": "SAC"}  # fmt: skip


@dataclass(frozen=True)
class BraxCall:
    """One training call.

    Args:
        given: the keyword arguments as expressions; those of `**settings` as their values.
        complete: whether what is not in `given` certainly has brax's default.
    """

    algorithm: str
    call: ast.Call
    given: Mapping[str, ast.expr]
    complete: bool

    def count(self, script: Script, name: str) -> int | None:
        """Return the whole number a keyword has, given or by default; None when not known."""
        if name in self.given:
            return integer_of(script, self.given[name])
        algorithm = find_algorithm("brax", self.algorithm)
        default = algorithm.defaults.get(name) if algorithm is not None and self.complete else None
        if name == "num_envs" and self.complete:
            return 1
        return default if isinstance(default, int) else None


def follows(script: Script) -> bool | None:
    """Return whether the sizes of a training of the script are known; None where it has none."""
    calls = list(brax_calls(script))
    return any(each.count(script, "num_envs") for each in calls) if calls else None


def brax_calls(script: Script) -> Iterator[BraxCall]:
    """Yield the brax PPO and SAC trainings."""
    if not any(s.imports("brax") for s in script.followed):
        return
    for call in script.calls:
        algorithm = _TRAIN.get(script.qualified(call.func) or "")
        if algorithm is not None:
            yield _read(script, algorithm, [call])
        elif (script.qualified(call.func) or "").endswith("partial") and call.args:
            algorithm = _TRAIN.get(script.qualified(call.args[0]) or "")
            if algorithm is not None:
                yield _read(script, algorithm, [call, *_later_calls(script, call)])


def _read(script: Script, algorithm: str, calls: list[ast.Call]) -> BraxCall:
    given: dict[str, ast.expr] = {}
    complete = True
    for call in calls:
        for keyword in call.keywords:
            if keyword.arg is not None:
                given[keyword.arg] = keyword.value
                continue
            try:
                settings = value_of(script, keyword.value)
            except Unfoldable:
                settings = None
            if isinstance(settings, dict):
                place = keyword.value
                given |= {str(k): ast.copy_location(ast.Constant(v), place) for k, v in settings.items()}
            else:
                complete = False
    if len(calls) == 1 and not isinstance(calls[0].func, ast.Attribute | ast.Name):
        complete = False
    return BraxCall(algorithm, calls[0], given, complete)


def _later_calls(script: Script, partial: ast.Call) -> Iterator[ast.Call]:
    """Yield the calls of the name that a partial is bound to."""
    for use in script.scopes.uses_of(partial):
        call = script.scopes.parents.get(id(use))
        if isinstance(call, ast.Call) and call.func is use:
            yield call
