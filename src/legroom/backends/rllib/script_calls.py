"""RLlib configurations as scripts write them: `PPOConfig().training(...)`, one long chain or several statements."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass

from legroom.reading.interpreter.asker import integer_of
from legroom.reading.interpreter.script import Script

# ray/rllib/algorithms/ppo/ppo.py, release 2.60
DEFAULT_BATCH, DEFAULT_MINIBATCH = 4000, 128
_BATCH = ("train_batch_size_per_learner", "train_batch_size")
_MINIBATCH = ("minibatch_size", "sgd_minibatch_size")


@dataclass(frozen=True)
class RllibSettings:
    """Sizes of one PPO configuration; what is not given has RLlib's default."""

    batch: int
    minibatch: int
    gives_batch: bool
    gives_minibatch: bool
    line: int
    batch_name: str


def rllib_settings(script: Script) -> Iterator[RllibSettings]:
    """Yield the PPO configurations whose sizes are known."""
    if not script.imports("ray"):
        return
    for root in script.calls:
        if (script.qualified(root.func) or "").rpartition(".")[2] != "PPOConfig":
            continue
        if not (script.qualified(root.func) or "").startswith("ray."):
            continue
        calls = list(_trainings(script, root))
        if any(k.arg is None for call in calls for k in call.keywords):
            continue  # **settings may hold any of them
        given: dict[str | None, ast.expr] = {k.arg: k.value for call in calls for k in call.keywords}
        given |= _assigned(script, root)
        batch_name = next((name for name in _BATCH if name in given), "train_batch_size")
        small_name = next((name for name in _MINIBATCH if name in given), "minibatch_size")
        batch = integer_of(script, given[batch_name]) if batch_name in given else DEFAULT_BATCH
        small = integer_of(script, given[small_name]) if small_name in given else DEFAULT_MINIBATCH
        if batch is None or small is None or not given or _has_learners(script, root, batch_name):
            continue
        place = given.get(small_name, given.get(batch_name))
        if place is not None:
            yield RllibSettings(batch, small, batch_name in given, small_name in given, place.lineno, batch_name)


def _chain(script: Script, root: ast.Call) -> Iterator[ast.Call]:
    """Yield the method calls on a configuration: those chained to it, and those on the name it is bound to."""
    last = root
    for last in script.scopes.chained(root):
        yield last
    for use in script.scopes.uses_of(last):
        yield from script.scopes.chained(use)


def _assigned(script: Script, root: ast.Call) -> dict[str | None, ast.expr]:
    """Return what `config.minibatch_size = 512` gives, on the name that the configuration is bound to."""
    *_, last = root, *script.scopes.chained(root)
    given: dict[str | None, ast.expr] = {}
    for use in script.scopes.uses_of(last):
        target = script.scopes.parents.get(id(use))
        where = script.scopes.parents.get(id(target))
        if isinstance(target, ast.Attribute) and isinstance(where, ast.Assign) and target in where.targets:
            given[target.attr] = where.value
    return given


def _trainings(script: Script, root: ast.Call) -> Iterator[ast.Call]:
    for call in _chain(script, root):
        if isinstance(call.func, ast.Attribute) and call.func.attr == "training":
            yield call


def _has_learners(script: Script, root: ast.Call, batch_name: str) -> bool:
    """train_batch_size is divided by the number of learners; then it is not the size that counts."""
    return batch_name == "train_batch_size" and any(
        isinstance(call.func, ast.Attribute) and call.func.attr in ("learners", "resources")
        for call in _chain(script, root)
    )
