"""Writes down how a program makes and trains SB3's models: enough for the parent to know the run file that is the same.

Class names and plain values only; SB3 is not imported here, its objects are looked at.
"""

from __future__ import annotations

import os
import sys
from typing import Any

_PASSING = ("VecMonitor", "VecCheckNan")  # wrappers that hand observations on as they get them


def on_base_class(journal: Any, module: Any) -> None:
    """Write down the arguments of the outermost constructor, and how long the model is to learn."""
    begin_model, set_up = module.BaseAlgorithm.__init__, module.BaseAlgorithm._setup_learn

    def made(self: Any, *args: Any, **kwargs: Any) -> None:
        begin_model(self, *args, **kwargs)
        frame: Any = sys._getframe(1)
        found = None
        while frame is not None and frame.f_code.co_name == "__init__" and frame.f_locals.get("self") is self:
            found, frame = frame, frame.f_back
        if found is not None and os.getpid() == journal.pid:
            _quietly(journal, lambda: _call(self, found, frame))

    def learns(self: Any, total_timesteps: int, *args: Any, **kwargs: Any) -> Any:
        if os.getpid() == journal.pid:
            _quietly(journal, lambda: {"kind": "learn", "id": id(self), **_learning(self, total_timesteps)})
        return set_up(self, total_timesteps, *args, **kwargs)

    module.BaseAlgorithm.__init__, module.BaseAlgorithm._setup_learn = made, learns


def _quietly(journal: Any, tell: Any) -> None:
    try:
        message = tell()
        journal.json(message.pop("kind"), **message)
    except Exception as error:  # the program goes on, whatever is wrong with us
        journal.json("note", text=f"a model was made, but not understood ({type(error).__name__}: {error})")


def _call(model: Any, constructor: Any, caller: Any) -> dict[str, Any]:
    code, given = constructor.f_code, constructor.f_locals
    names = code.co_varnames[1 : code.co_argcount + code.co_kwonlyargcount]
    arguments = {name: given.get(name) for name in names if name not in ("env", "policy")}
    policy = getattr(model, "policy_class", None)
    aliases = getattr(model, "policy_aliases", {})
    alias = next((name for name, known in aliases.items() if known is policy), None)
    return {
        "kind": "call", "id": id(model),
        "bases": [[base.__module__.partition(".")[0], base.__name__] for base in type(model).__mro__],
        "policy": alias or plain(policy),
        "arguments": {name: plain(value) for name, value in arguments.items()},
        "device": str(getattr(model, "device", "auto")).partition(":")[0],
        "env": None if model.env is None else environment(model.env),
        "file": caller.f_code.co_filename if caller is not None else "",
        "line": caller.f_lineno if caller is not None else 0,
    }  # fmt: skip


def _learning(model: Any, steps: int) -> dict[str, Any]:
    """Return how many steps are to be learned from, and the files of the buffer that keeps them."""
    buffer = getattr(model, "replay_buffer", None) or getattr(model, "rollout_buffer", None)
    files = [getattr(sys.modules.get(base.__module__), "__file__", None) for base in type(buffer).__mro__]
    return {"total_timesteps": int(steps), "buffer_files": sorted({file for file in files if file})}


def environment(env: Any) -> dict[str, Any]:
    """Return what a vectorised environment is: how many, in which processes, its spaces and wrappers."""
    layers = [env]
    while hasattr(layers[-1], "venv"):
        layers.append(layers[-1].venv)
    innermost, names = layers[-1], [type(layer).__name__ for layer in layers]
    shown = _visible(layers, names)
    frames = shown
    while type(frames).__name__ in _PASSING:
        frames = frames.venv
    processes = getattr(innermost, "processes", None) or ()
    normalize = next((layer for layer in layers if type(layer).__name__ == "VecNormalize"), None)
    found: dict[str, Any] = {
        "n_envs": env.num_envs, "workers": "subproc" if names[-1] == "SubprocVecEnv" else "dummy",
        "start_method": getattr(processes[0], "_start_method", None) if processes else None,
        "id": _registered(innermost), "observation": space(shown.observation_space),
        "action": space(shown.action_space),
    }  # fmt: skip
    if normalize is not None:
        found["normalize"] = {"norm_obs": bool(normalize.norm_obs), "norm_reward": bool(normalize.norm_reward)}
    if type(frames).__name__ == "VecFrameStack":
        found["frame_stack"] = frames.stacked_obs.n_stack
        found["frame"] = space(frames.venv.observation_space)
    return found


def _visible(layers: list[Any], names: list[str]) -> Any:
    """Return the layer whose observations a run file declares: below SB3's own transposition of pictures."""
    for layer, name in zip(layers, names):
        if name == "VecTransposeImage":
            return layer.venv
        if name not in _PASSING:
            break
    return layers[0]


def _registered(env: Any) -> Any:
    """Return the id of a registered environment without wrappers of its own; None where there is none to be seen."""
    inside = getattr(env, "envs", None)
    spec = getattr(inside[0], "spec", None) if inside else None
    return getattr(spec, "id", None)


def space(one: Any) -> dict[str, Any]:
    """Return a space in the words of run files."""
    kind = type(one).__name__
    if kind == "Box":
        low, high = one.low.reshape(-1), one.high.reshape(-1)
        bounds = [float(each[0]) if len(each) and each.min() == each.max() else None for each in (low, high)]
        return {"type": "box", "shape": list(one.shape), "dtype": one.dtype.name, "low": bounds[0], "high": bounds[1]}
    if kind == "Discrete":
        return {"type": "discrete", "n": int(one.n)}
    if kind == "MultiDiscrete":
        return {"type": "multidiscrete", "nvec": [int(each) for each in one.nvec.reshape(-1)]}
    if kind == "MultiBinary":
        return {"type": "multibinary", "n": int(one.n) if isinstance(one.n, int) else [int(each) for each in one.n]}
    if kind == "Dict":
        return {"type": "dict", "spaces": {str(key): space(each) for key, each in one.spaces.items()}}
    raise TypeError(f"a {kind} space")


def plain(value: Any) -> Any:
    """Return a value as JSON can hold it: classes by name, other objects in angle brackets."""
    if value is None or isinstance(value, (bool, int, float, str)):
        return value
    if isinstance(value, dict):
        return {str(key): plain(each) for key, each in value.items()}
    if isinstance(value, (list, tuple)):
        return [plain(each) for each in value]
    if isinstance(value, type):
        return f"{value.__module__}:{value.__qualname__}"
    if hasattr(value, "item") and getattr(value, "shape", None) == ():
        return value.item()
    return f"<{type(value).__module__}.{type(value).__qualname__}>"
