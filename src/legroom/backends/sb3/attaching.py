"""Lean storage, light workers and exact pieces attached to a program that uses SB3, from inside its own interpreter.

Each `on_...`, here and in the modules beside it, is called once the module of that name is loaded, and changes no more
than what a call of one of its classes makes: `RolloutBuffer(...)` makes a lean one, a subclass of it. Attributes of
models, their archives and what `type`, `isinstance` and `super` say of them stay as they are without legroom. Our own
modules are imported when something is first made: at the time of these calls the library is only half imported.

`SubprocVecEnv(...)` makes a subclass of it that behaves the same: what environments return is stacked as it is, infos
are a tuple, closing waits.

Whatever cannot be attached is left as it is, with one line that says why.
"""

from __future__ import annotations

import atexit
import sys
import weakref
from collections.abc import Callable
from copy import deepcopy
from functools import cache, partial, wraps
from importlib import import_module
from pathlib import Path
from typing import Any, ClassVar

from legroom.backends.sb3.mirrored import MASKABLE, OWN_PINNED, OWN_REPLAY, REPLAY, ROLLOUT, unknown_code
from legroom.hollow.attaching import plan, record, substitute, tell, user_line

_HERE = "legroom.backends.sb3."


def on_buffers(module: Any) -> None:
    """Rollouts and replay of SB3's own algorithms, and of loops that use its buffers."""
    for name, lean in {
        "RolloutBuffer": "lean_rollout:LeanRolloutBuffer",
        "DictRolloutBuffer": "lean_rollout:LeanDictRolloutBuffer",
        "ReplayBuffer": "lean_replay:LeanReplayBuffer",
        "DictReplayBuffer": "lean_replay:LeanDictReplayBuffer",
        "NStepReplayBuffer": "lean_replay:LeanReplayBuffer",
    }.items():
        _store_leanly(module, name, f"{_HERE}{lean}", ROLLOUT if "Rollout" in name else REPLAY)


def on_maskable_buffers(module: Any) -> None:
    """Rollouts of sb3-contrib's MaskablePPO."""
    for name in ("MaskableRolloutBuffer", "MaskableDictRolloutBuffer"):
        _store_leanly(module, name, f"{_HERE}lean_maskable:Lean{name}", MASKABLE)


def on_own_buffers(module: Any) -> None:
    """Replay of a module with SB3's interface and without SB3, as CleanRL's is."""
    if hasattr(module, "ReplayBuffer"):
        unknown = partial(unknown_code, module, OWN_REPLAY, OWN_PINNED)
        substitute(
            module.ReplayBuffer, _LeanForm(module.ReplayBuffer, partial(_own_form, module), unknown), _left_alone
        )


def _own_form(module: Any) -> type:
    """Return a lean class of a module's own replay buffer."""
    from legroom.storing.budget import Options
    from legroom.storing.replay import LeanReplay

    class LeanReplayBuffer(LeanReplay, module.ReplayBuffer):
        samples: ClassVar[dict[bool, Any]] = {False: module.ReplayBufferSamples}

        def __init__(
            self, buffer_size: int, observation_space: Any, action_space: Any, device: Any = "auto", n_envs: int = 1,
            optimize_memory_usage: bool = False, handle_timeout_termination: bool = True,
        ) -> None:  # fmt: skip
            module.BaseBuffer.__init__(self, buffer_size, observation_space, action_space, device, n_envs=n_envs)
            self.buffer_size = max(buffer_size // n_envs, 1)
            self.begin_replay(Options(), handle_timeout_termination=handle_timeout_termination)

    return LeanReplayBuffer


def _store_leanly(module: Any, name: str, lean: str, mirrored: tuple[str, ...]) -> None:
    owner = getattr(module, name, None)
    if owner is not None:  # an older release has not got all of them
        form = partial(_imported, lean)
        substitute(owner, _LeanForm(owner, form, partial(unknown_code, module, mirrored)), _left_alone)


def _imported(name: str) -> Any:
    module, _, what = name.partition(":")
    return getattr(import_module(module), what)


def _left_alone(cls: type) -> None:
    """Say that a class of the user's, or one with a storage of its own, is not replaced."""
    if not cls.__module__.startswith("legroom."):
        tell_once("lean", False, f"{cls.__name__} keeps what lean storage does not hold", program_line())


class _LeanForm:
    """Makes a lean buffer where one of the library's is asked for."""

    def __init__(self, owner: type, lean: Callable[[], type], unknown: Callable[[], str]) -> None:
        self._owner, self._lean = owner, lean
        self._unknown = cache(unknown)
        self._form: Any = None

    def __call__(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        name, where = self._owner.__name__, program_line()
        why = self._reason_not_to(args, kwargs)
        if not why:
            try:
                if self._form is None:
                    self._form = _attached_form(self._lean(), self._owner)
                made = self._form.__new__(self._form)
                made.begin(*args, **kwargs)
                why = _nothing_to_gain(made)
            except Exception as error:  # arguments that it refuses, or a release that we do not know
                why = f"{name}: {error}"
            if not why:
                _stored.add(made)
                tell_once("lean", True, f"{name} of {_whose()} is stored losslessly in less memory", where)
                return made
        tell_once("lean", False, why, where)
        return None

    def _reason_not_to(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> str:
        if why := import_module("legroom.storing.core").WHY_NOT:
            return str(why)
        if unknown := self._unknown():
            return f"{unknown} of this release is not the code that it mirrors"
        shares, timeouts = _flags(args, kwargs)
        if _is_replay(self._owner) and shares and (timeouts or self._owner.__name__ != "ReplayBuffer"):
            return f"{self._owner.__name__} refuses optimize_memory_usage=True with these arguments"
        return ""


def _is_replay(owner: type) -> bool:
    return "Replay" in owner.__name__


def _flags(args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[bool, bool]:
    """Return a replay buffer's `optimize_memory_usage` and `handle_timeout_termination`."""
    given = dict(zip(("optimize_memory_usage", "handle_timeout_termination"), args[5:7], strict=False)) | kwargs
    return bool(given.get("optimize_memory_usage", False)), bool(given.get("handle_timeout_termination", True))


def _nothing_to_gain(buffer: Any) -> str:
    """Return why a buffer had better be the library's own; empty where it is smaller than that."""
    if all(column.is_plain for column in buffer.columns.values()):
        nbytes = max(column.item_bytes for column in buffer.columns.values())
        return f"observations of {nbytes} bytes are stored as small as they can be"
    return ""


_stored: weakref.WeakSet[Any] = weakref.WeakSet()  # and not told of yet
# what the library's own buffers have not got
_OURS = ("columns", "options", "prefetch", "sampler", "_discrete", "_most_nbytes")


def _attached_form(lean: Any, owner: Any) -> Any:
    """Return a lean class whose objects are pickled as the library's own, and tell in the end what they took."""
    is_nstep = "NStep" in owner.__name__
    leave_out = _OURS if is_nstep or not _is_replay(owner) else (*_OURS, "n_steps", "gamma")
    bases = (lean,) if issubclass(lean, owner) else (lean, owner)

    class AttachedAlgorithm(*bases):  # type: ignore[misc]
        is_attached = True

        def __init__(self, *args: Any, **kwargs: Any) -> None:
            """Nothing: `begin` has done it."""

        def begin(self, *args: Any, **kwargs: Any) -> None:
            lean.__init__(self, *args, **({"n_steps": 3} if is_nstep else {}) | kwargs)
            if _is_replay(owner) and _flags(args, kwargs)[0]:
                self.share_rows()

        def reset(self: Any) -> None:
            if "generator_ready" in vars(self):  # of a rollout, and not the first time
                self._most_nbytes = max(getattr(self, "_most_nbytes", 0), self.nbytes)
            super().reset()

        def __reduce_ex__(self, protocol: Any) -> Any:
            from legroom.storing.plain_pickle import plain_reduction

            return plain_reduction(self, owner, leave_out)

        def __deepcopy__(self, memo: dict[int, Any]) -> Any:
            copied: Any = object.__new__(type(self))
            memo[id(self)] = copied
            copied.__dict__.update(deepcopy(self.__dict__, memo))
            return copied

        def __del__(self) -> None:
            _record_stored(self)

    AttachedAlgorithm.__name__, AttachedAlgorithm.__module__ = lean.__name__, lean.__module__
    return AttachedAlgorithm


def on_save_util(module: Any) -> None:
    """Replay buffers that the program saves: as the library's own, and in no more memory than they have."""
    original = module.save_to_pkl

    @wraps(original)
    def save_to_pkl(path: Any, obj: Any, verbose: int = 0) -> None:
        if not getattr(type(obj), "is_attached", False):
            original(path, obj, verbose)
            return
        from legroom.storing.plain_pickle import dump

        file = module.open_path(path, "w", verbose=verbose, suffix="pkl")
        dump(obj, file)
        if isinstance(path, str | Path):
            file.close()

    module.save_to_pkl = save_to_pkl


def _whose() -> str:
    """Return the algorithm that is just making its buffer, or the program where none does."""
    frame: Any = sys._getframe(1)
    while frame is not None:
        if frame.f_code.co_name == "_setup_model" and "self" in frame.f_locals:
            return type(frame.f_locals["self"]).__name__
        frame = frame.f_back
    return "the program"


def _record_stored(buffer: Any) -> None:
    """Tell the parent what a buffer took in the end, and what it would have taken."""
    try:
        if buffer not in _stored:
            return
        nbytes = max(vars(buffer).get("_most_nbytes", 0), buffer.nbytes)
        plain = sum(_plain_nbytes(buffer, column) for column in buffer.columns.values())
        name = type(buffer).__name__.removeprefix("Lean")
        _stored.discard(buffer)
        record({"stored": name, "nbytes": nbytes, "plain_nbytes": plain})
    except Exception:  # at the end of an interpreter anything may be gone already
        return


def _plain_nbytes(buffer: Any, column: Any) -> int:
    """Return what the library's arrays would have taken: of a ring both, of a rollout one and its flattened copy."""
    is_ring = hasattr(column, "next_observations")
    rows = buffer.pos if is_ring and not buffer.full else column.rows
    arrays = 1 if is_ring and buffer.optimize_memory_usage else 2
    nbytes: int = arrays * rows * column.n_envs * column.item_bytes
    return nbytes


@atexit.register
def _record_all() -> None:
    for buffer in list(_stored):
        _record_stored(buffer)


# as they stand in paths: the line that counts is one of the program's
_LIBRARIES = ("/stable_baselines3/", "/sb3_contrib/", "/cleanrl_utils/", "/gymnasium/")
_told: set[tuple[Any, ...]] = set()


def wanted(name: str) -> bool:
    """Return whether this attachment is in the plan."""
    return name in plan().get("with", {})


def program_line() -> str:
    """Return the line of the program that is at work."""
    return user_line(_LIBRARIES)


def tell_once(name: str, attached: bool, text: str, where: str = "") -> None:
    """Say that something was attached, or was not and why; a program may make a thousand models in one line."""
    if (name, attached, text, where) not in _told:
        _told.add((name, attached, text, where))
        tell(name, attached, text, where)


def on_base_class(module: Any) -> None:
    """Updates in pieces, and again where memory runs out, of every model that is told to learn (`updates`)."""
    begin = module.BaseAlgorithm._setup_learn

    @wraps(begin)
    def _setup_learn(self: Any, *args: Any, **kwargs: Any) -> Any:
        try:
            _attach_update(self)
        except Exception as error:  # a release that we do not know: the program goes on
            _tell_of_update(str(error))
        return begin(self, *args, **kwargs)

    module.BaseAlgorithm._setup_learn = _setup_learn


def _attach_update(model: Any) -> None:
    from legroom.backends.sb3.updates import in_pieces, mirrored_owner, update_of
    from legroom.errors import BadInput

    name, where, size = type(model).__name__, program_line(), plan()["with"].get("micro_batch")
    owner = mirrored_owner(type(model))
    if owner is None:
        _tell_of_update(f"an update of {name} cannot be done again once it has begun")
    elif unknown_code(sys.modules[owner.__module__], (f"{owner.__name__}.train",)):
        _tell_of_update(f"{name}.train of this release is not the code that it mirrors")
    elif update_of(model) is None:
        if size is not None:
            try:
                in_pieces(model, size, redoes=wanted("redo"), on_retreat=_retreated)
                tell_once("micro_batch", True, f"{name} computes minibatches in pieces of {size}", where)
            except BadInput as refused:
                tell_once("micro_batch", False, f"{name}: {refused}", where)
        if wanted("redo"):
            if update_of(model) is None:
                in_pieces(model, on_retreat=_retreated)
            tell_once("redo", True, f"{name}'s updates are done again in exact pieces where memory runs out", where)


def _tell_of_update(why: str) -> None:
    for each in filter(wanted, ("redo", "micro_batch")):
        tell_once(each, False, why, program_line())


def _retreated(retreat: Any) -> None:
    tell("redo", True, f"update {retreat.update}: {retreat.why}; redone with {retreat.what}")


CLOSE_WITHIN_S = 3600.0  # SB3 waits for ever; who cannot wait presses Ctrl-C


def on_subproc_vec_env(module: Any) -> None:
    """Worker processes of SubprocVecEnv."""
    substitute(module.SubprocVecEnv, _LightWorkers(module.SubprocVecEnv))


class _LightWorkers:
    """Makes a vector environment with light workers where `SubprocVecEnv` is asked for."""

    def __init__(self, owner: type) -> None:
        self._owner = owner
        self._form: Any = None

    def __call__(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        where = program_line()
        env_fns, start_method = _worker_arguments(*args, **kwargs)
        why = "start_method='fork' shares the program's memory with its workers" if start_method == "fork" else ""
        if not why:
            try:
                self._form = self._form or _light_form(self._owner)
                made = self._form.__new__(self._form)
                made.begin(env_fns)
            except Exception as error:
                why = str(error) or type(error).__name__
            else:
                text = f"{made.num_envs} environments in {made.workers_text} in place of SubprocVecEnv's"
                tell_once("workers", True, text, where)
                return made
        tell_once("workers", False, why, where)
        return None


def _worker_arguments(env_fns: Any, start_method: str | None = None) -> tuple[Any, str | None]:
    return env_fns, start_method


def _light_form(owner: Any) -> type:
    from legroom.backends.sb3.lean_vec_env import LeanVecEnv

    class Light(LeanVecEnv, owner):
        def __init__(self, *args: Any, **kwargs: Any) -> None:
            """Nothing: `begin` has done it."""

        def begin(self, env_fns: Any) -> None:
            LeanVecEnv.__init__(self, env_fns, monitor=False, as_returned=True)
            self._crew.close_within_s = CLOSE_WITHIN_S

        @property
        def workers_text(self) -> str:
            return "forked workers" if not self._crew.why_fresh else f"light workers ({self._crew.why_fresh})"

        @property
        def closed(self) -> bool:
            return self._crew.closed

        def step_wait(self) -> Any:
            observations, rewards, dones, infos = super().step_wait()
            return observations, rewards, dones, tuple(infos)

    Light.__name__ = Light.__qualname__ = owner.__name__
    return Light
