"""The environments of an SB3 model as plain data, and back: each environment, and what is wrapped around all of them.

Only what is read before it is written again counts: the buffers in which a VecEnv collects a step's results are not.
What `_last_obs` needs is there as well: SB3 keeps the observation it will act on next, not the environments.

An environment's state is what `sharing.env_state` captures of it and its wrappers. In other processes it is reached
through `get_state` and `set_state`; but SB3's way to a method looks through all wrappers of an environment, and a
TimeLimit around one that has them would be passed over in silence. So the outermost must say that its state is the
whole chain's, by having `offers_state`, as EpisodeStatistics does. Otherwise, and where the state of a link is not
known, resuming is approximate: the environments begin new episodes.
"""

import time
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from gymnasium import spaces
from stable_baselines3.common.base_class import BaseAlgorithm
from stable_baselines3.common.running_mean_std import RunningMeanStd
from stable_baselines3.common.vec_env import (
    DummyVecEnv,
    VecCheckNan,
    VecEnv,
    VecEnvWrapper,
    VecExtractDictObs,
    VecFrameStack,
    VecMonitor,
    VecNormalize,
    VecTransposeImage,
)
from stable_baselines3.common.vec_env.stacked_observations import StackedObservations

from legroom.backends.sb3.state_torch import misfit
from legroom.errors import BadInput
from legroom.model.learner import SavedState
from legroom.sharing import env_state
from legroom.training.arrays import NotPlain, take_apart


def describe_space(space: spaces.Space[Any]) -> dict[str, Any]:
    """Return the space as a tree of plain values and arrays.

    Raises:
        BadInput: SB3 takes no such space.
    """
    match space:
        case spaces.Box():
            bounds = {"low": _short(space.low), "high": _short(space.high)}
            return {"type": "box", "shape": list(space.shape), "dtype": space.dtype.str, **bounds}  # type: ignore[union-attr]
        case spaces.Discrete():
            return {"type": "discrete", "n": int(space.n), "start": int(space.start)}
        case spaces.MultiDiscrete():
            return {"type": "multidiscrete", "nvec": space.nvec, "start": space.start, "dtype": space.dtype.str}  # type: ignore[union-attr]
        case spaces.MultiBinary():
            return {"type": "multibinary", "n": space.n if isinstance(space.n, int) else [int(n) for n in space.n]}
        case spaces.Dict():
            return {"type": "dict", "spaces": {key: describe_space(part) for key, part in space.spaces.items()}}
    raise BadInput(f"a {type(space).__name__} space is not supported", hint="box, discrete, multidiscrete, multibinary")


def make_space(tree: dict[str, Any]) -> spaces.Space[Any]:
    """Return the space that `describe_space` described.

    Raises:
        BadInput: it describes none.
    """
    try:
        match tree["type"]:
            case "box":
                shape, dtype = tuple(tree["shape"]), np.dtype(tree["dtype"])
                low, high = (np.broadcast_to(tree[side], shape).astype(dtype) for side in ("low", "high"))
                return spaces.Box(low, high, shape, dtype.type)
            case "discrete":
                return spaces.Discrete(tree["n"], start=tree["start"])
            case "multidiscrete":
                return spaces.MultiDiscrete(tree["nvec"], dtype=np.dtype(tree["dtype"]).type, start=tree["start"])
            case "multibinary":
                return spaces.MultiBinary(tree["n"])
            case "dict":
                return spaces.Dict({key: make_space(part) for key, part in tree["spaces"].items()})
    except (KeyError, ValueError, TypeError, AssertionError) as error:
        raise BadInput(f"a space of the checkpoint is damaged: {error}") from error
    raise BadInput(f"a space of the checkpoint is of unknown type {tree['type']!r}")


def _short(bounds: np.ndarray) -> np.ndarray | np.generic:
    """Return one number where all are the same: bounds are as large as two observations otherwise."""
    first = bounds.reshape(-1)[:1]
    return first[0] if bounds.size and bool((bounds == first).all()) else bounds


_STATELESS = (VecTransposeImage, VecCheckNan, VecExtractDictObs)
_EPISODES = ("episode_returns", "episode_lengths", "episode_count")
_SWITCHES = ("training", "norm_obs", "norm_reward")


def capture_envs(model: BaseAlgorithm) -> tuple[dict[str, Any] | None, str]:
    """Return the environments' state, and why it is not all of it ("" if it is)."""
    env = model.get_env()
    if env is None:
        return None, "there is no environment"
    wrappers, base = _layers(env)
    states, why = _env_states(base)
    saved = []
    for wrapper in wrappers:
        state, unknown = _wrapper_state(wrapper)
        saved.append({"class": type(wrapper).__name__, "state": state})
        why = why or unknown
    return {
        "n_envs": env.num_envs,
        "wrappers": saved,
        "states": states,
        "seeds": list(base._seeds),
        "options": _plain_or(list(base._options), None),
        "reset_infos": _plain_or(list(base.reset_infos), None),
        "last_obs": model._last_obs,
        "last_episode_starts": model._last_episode_starts,
        # without VecNormalize SB3 sets it anew before it reads it
        "last_original_obs": model._last_original_obs if model.get_vec_normalize_env() is not None else None,
    }, why


def prepare_envs(
    model: BaseAlgorithm, saved: Mapping[str, Any] | None, checkpoint: SavedState
) -> tuple[Callable[[], None], str]:
    """Check that the wrappers are this model's; return what restores the environments, and why not exactly so.

    Raises:
        BadInput: the wrappers differ, or the environments do not take their states.
    """
    env = model.get_env()
    if env is None:
        return (lambda: None), "there is no environment"
    if saved is None:
        return (lambda: _begin_anew(model, env, checkpoint.step)), "the checkpoint holds no environments"
    wrappers, base = _layers(env)
    theirs, ours = [each["class"] for each in saved["wrappers"]], [type(each).__name__ for each in wrappers]
    if theirs != ours:
        theirs, ours = theirs or ["nothing"], ours or ["nothing"]
        raise misfit(checkpoint, f"its environments are wrapped in {', '.join(theirs)}, here in {', '.join(ours)}")
    why = ""
    if saved["n_envs"] != env.num_envs:
        why = f"{saved['n_envs']} environments were trained on, and {env.num_envs} are here"
    elif saved["states"] is None:
        why = "the environments' states were not captured"
    elif saved["last_obs"] is None:
        why = "training had not begun"

    def restore() -> None:
        if why:
            for wrapper, each in zip(wrappers, saved["wrappers"], strict=True):
                if isinstance(wrapper, VecNormalize):
                    _set_statistics(wrapper, each["state"])
            _begin_anew(model, env, checkpoint.step)
            return
        first = env.reset()  # brings environments and wrappers to life; everything it sets is set again below
        try:
            _set_env_states(base, saved["states"])
        except Exception as error:  # it is the user's method
            raise misfit(checkpoint, f"an environment rejects its state: {type(error).__name__}: {error}") from error
        for wrapper, each in zip(wrappers, saved["wrappers"], strict=True):
            _set_wrapper_state(wrapper, each["state"])
        base._seeds = list(saved["seeds"])
        if saved["options"] is not None:
            base._options = list(saved["options"])
        if saved["reset_infos"] is not None:
            base.reset_infos = list(saved["reset_infos"])
        model._last_obs = _laid_out_like(saved["last_obs"], first)
        model._last_episode_starts = saved["last_episode_starts"]
        model._last_original_obs = saved["last_original_obs"]

    return restore, why


def _laid_out_like(saved: Any, shown: Any) -> Any:
    """Return the saved observation in the order of bytes that this environment's observations have.

    VecTransposeImage hands out views with the channels last in memory, for which torch takes other kernels than for
    channels that come first: the same numbers, rounded differently.
    """
    if isinstance(saved, Mapping):
        return {key: _laid_out_like(part, shown[key]) for key, part in saved.items()}
    if not isinstance(saved, np.ndarray) or not isinstance(shown, np.ndarray) or saved.shape != shown.shape:
        return saved
    laid_out = np.empty_like(shown, dtype=saved.dtype)
    laid_out[...] = saved
    return laid_out


def _begin_anew(model: BaseAlgorithm, env: VecEnv, step: int) -> None:
    """Let SB3 reset the environments when it learns; with seeds of their own, so that no episode is seen twice."""
    model._last_obs = None
    if model.seed is not None:
        env.seed((model.seed + step) % 2**31)


def _layers(env: VecEnv) -> tuple[list[VecEnvWrapper], VecEnv]:
    """Return the wrappers, outermost first, and what they are wrapped around."""
    wrappers = []
    while isinstance(env, VecEnvWrapper):
        wrappers.append(env)
        env = env.venv
    return wrappers, env


def _env_states(base: VecEnv) -> tuple[list[Any] | None, str]:
    """Return the state of every environment, or why there is none."""
    if isinstance(base, DummyVecEnv):
        states = [env_state.capture(env) for env in base.envs]
        why = next((env_state.obstacle(env) for env, state in zip(base.envs, states, strict=True) if state is None), "")
    elif not base.has_attr("offers_state"):
        return None, "the environments are in processes of their own, and none is in an EpisodeStatistics"
    else:
        states, why = base.env_method("get_state"), ""
        if any(state is None for state in states):
            reasons = base.env_method("why_no_state") if base.has_attr("why_no_state") else []
            why = next(filter(None, reasons), "an environment could not report its state")
    for state in states:
        try:
            take_apart(state, "", {})
        except NotPlain as foreign:
            why = why or f"an environment's state holds more than plain data: {foreign}"
    return (None if why else states), why


def _set_env_states(base: VecEnv, states: list[Any]) -> None:
    for i, state in enumerate(states):
        if isinstance(base, DummyVecEnv):
            env_state.restore(base.envs[i], state)
        else:
            base.env_method("set_state", state, indices=i)


def _has_own_state(one: Any) -> bool:
    return all(callable(getattr(type(one), name, None)) for name in ("get_state", "set_state"))


def _wrapper_state(wrapper: VecEnvWrapper) -> tuple[Any, str]:
    """Return a wrapper's state, and what is not known about it."""
    kind = type(wrapper)  # not isinstance: what a subclass adds is not known
    if kind in _STATELESS:
        return {}, ""
    if kind is VecFrameStack:
        return _stacks(wrapper.stacked_obs), ""
    if kind is VecMonitor:
        age_s = time.time() - wrapper.t_start
        return {**{name: getattr(wrapper, name) for name in _EPISODES}, "age_s": age_s}, ""
    if kind is VecNormalize:
        return _statistics(wrapper), ""  # type: ignore[arg-type]
    if _has_own_state(wrapper):
        return _plain_or(wrapper.get_state(), None), ""
    return None, f"what {type(wrapper).__name__} keeps is not known to legroom"


def _set_wrapper_state(wrapper: VecEnvWrapper, state: Any) -> None:
    if isinstance(wrapper, VecFrameStack):
        _set_stacks(wrapper.stacked_obs, state)
    elif isinstance(wrapper, VecMonitor):
        for name in _EPISODES:
            setattr(wrapper, name, state[name])
        wrapper.t_start = time.time() - state["age_s"]
    elif isinstance(wrapper, VecNormalize):
        _set_statistics(wrapper, state)
        wrapper.returns = state["returns"]
    elif state is not None and _has_own_state(wrapper):
        wrapper.set_state(state)


def _stacks(stacked: StackedObservations[Any]) -> Any:
    if hasattr(stacked, "sub_stacked_observations"):
        return {key: _stacks(part) for key, part in stacked.sub_stacked_observations.items()}
    return stacked.stacked_obs


def _set_stacks(stacked: StackedObservations[Any], state: Any) -> None:
    if isinstance(state, Mapping):
        for key, part in state.items():
            _set_stacks(stacked.sub_stacked_observations[key], part)
    else:
        stacked.stacked_obs = state


def _statistics(wrapper: VecNormalize) -> dict[str, Any]:
    state: dict[str, Any] = {name: getattr(wrapper, name) for name in _SWITCHES}
    if wrapper.norm_obs:
        rms = wrapper.obs_rms
        state["obs_rms"] = {key: vars(part) for key, part in rms.items()} if isinstance(rms, dict) else vars(rms)
    return {**state, "ret_rms": vars(wrapper.ret_rms), "returns": wrapper.returns}


def _set_statistics(wrapper: VecNormalize, state: Mapping[str, Any]) -> None:
    for name in _SWITCHES:
        setattr(wrapper, name, state[name])
    moments: list[tuple[RunningMeanStd, Mapping[str, Any]]] = [(wrapper.ret_rms, state["ret_rms"])]
    if "obs_rms" in state:
        rms, saved = wrapper.obs_rms, state["obs_rms"]
        moments += [(part, saved[key]) for key, part in rms.items()] if isinstance(rms, dict) else [(rms, saved)]
    for part, saved in moments:
        part.mean, part.var, part.count = saved["mean"], saved["var"], saved["count"]


def _plain_or(value: Any, otherwise: Any) -> Any:
    """Return the value if it is plain data: what nobody reads back is no reason to call a resume approximate."""
    try:
        take_apart(value, "", {})
    except NotPlain:
        return otherwise
    return value
