"""Updates that are done again where memory runs out, attached to a program from inside its own interpreter.

The algorithm's `train`, and no more than that, is that of a class whose updates are done again. A model is of its own
class whenever code of the user's runs: callbacks, its own methods, `save`.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable
from functools import wraps
from typing import Any

from legroom.backends.sb3.attaching import program_line, tell_once, wanted
from legroom.backends.sb3.mirrored import unknown_code
from legroom.hollow.attaching import plan, tell

_KEPT = ("micro_batch", "_minibatches_done", "_policy_buffers")  # from one update to the next


def on_ppo(module: Any) -> None:
    """PPO's update."""
    _redo_updates(module, "PPO")


def on_a2c(module: Any) -> None:
    """A2C's update."""
    _redo_updates(module, "A2C")


def on_dqn(module: Any) -> None:
    """DQN's update."""
    _redo_updates(module, "DQN")


def on_maskable_ppo(module: Any) -> None:
    """MaskablePPO's update."""
    _redo_updates(module, "MaskablePPO")


_updates: weakref.WeakKeyDictionary[Any, _Update] = weakref.WeakKeyDictionary()


def _redo_updates(module: Any, name: str) -> None:
    """Let the algorithm's `train` be that of a class whose updates are done again."""
    owner = getattr(module, name)
    original = owner.train

    @wraps(original)
    def train(self: Any, *args: Any, **kwargs: Any) -> Any:
        if type(self).train is not train:  # a subclass's own update, or ours, has called it
            return original(self, *args, **kwargs)
        if self not in _updates:
            _updates[self] = _Update(self, known=known)
        return _updates[self].run(self, original, args, kwargs)

    known = not unknown_code(module, (f"{name}.train",))
    owner.train = train


class _Update:
    """What is kept of a model's updates from one to the next: nothing that refers to the model."""

    def __init__(self, model: Any, *, known: bool) -> None:
        self._form: type | None = None
        self._kept: dict[str, Any] = {}
        name, where = type(model).__name__, program_line()
        size = plan()["with"].get("micro_batch")
        why = "" if known else f"{name}.train of this release is not the code that it mirrors"
        if not why:
            try:
                self._attach(model, size, where)
            except Exception as error:  # a release that we do not know: the program goes on
                why = str(error)
        for each in ("redo", *(["micro_batch"] if size else [])) if why else ():
            tell_once(each, False, why, where)

    def _attach(self, model: Any, size: int | None, where: str) -> None:
        from legroom.backends.sb3.microbatch import surviving

        name, size = type(model).__name__, _exact_size(model, size, where)
        if size is not None or wanted("redo"):
            self._form = surviving(type(model), size)
        if size is not None:
            tell_once("micro_batch", True, f"{name} computes minibatches in pieces of {size}", where)
        if self._form is not None:
            tell_once("redo", True, f"{name}'s updates are done again in exact pieces where memory runs out", where)

    def run(self, model: Any, original: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        if self._form is None:
            return original(model, *args, **kwargs)
        from legroom.backends.sb3.microbatch_parts import take_own

        given = type(model)
        vars(model).update(self._kept, on_retreat=_retreated)
        model.__class__ = self._form
        try:
            return model.train(*args, **kwargs)
        finally:
            model.__class__ = given
            kept = take_own(model)
            self._kept = {name: kept[name] for name in _KEPT if name in kept}


def _exact_size(model: Any, size: int | None, where: str) -> int | None:
    """Return the micro-batch if the model's minibatches can be computed in pieces, else None, and say why."""
    from legroom.backends.sb3.microbatch_parts import refuse_unknown_buffer
    from legroom.device.exact_pieces import refuse_inexact
    from legroom.errors import BadInput

    if size is None:
        return None
    try:
        refuse_inexact(model.policy, size)
        refuse_unknown_buffer(getattr(model, "rollout_buffer", None) or model.replay_buffer)
    except BadInput as refused:
        tell_once("micro_batch", False, f"{type(model).__name__}: {refused}", where)
        return None
    return size


def _retreated(retreat: Any) -> None:
    tell("redo", True, f"update {retreat.update}: {retreat.why}; redone with {retreat.what}")


def _tell_of(algorithm: type) -> None:
    try:
        from legroom.backends.sb3.microbatch import can_survive

        able = can_survive(algorithm)
        why = "" if able else f"an update of {algorithm.__name__} cannot be done again once it has begun"
    except Exception as error:  # a release that we do not know: the program goes on
        why = str(error)
    for each in ("redo", "micro_batch") if why else ():
        if wanted(each):
            tell_once(each, False, why, program_line())


def on_base_class(module: Any) -> None:
    """Say of which algorithms an update cannot be done again."""
    begin = module.BaseAlgorithm._setup_learn

    @wraps(begin)
    def _setup_learn(self: Any, *args: Any, **kwargs: Any) -> Any:
        _tell_of(type(self))
        return begin(self, *args, **kwargs)

    module.BaseAlgorithm._setup_learn = _setup_learn
