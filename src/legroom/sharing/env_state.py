"""The state of an environment with all its wrappers, as plain data, so that training resumes exactly.

`capture` walks from the outermost wrapper to the environment. A link is captured by its own `get_state`/`set_state`; or
by the table of attributes below, which says for the wrappers of gymnasium and SB3 what changes between steps; or it has
no attributes of its own and therefore no state. Anything else is a link nobody knows, and then there is no state at
all: a state that lacks a part would resume without complaint and diverge. The environment itself must offer
`get_state`. Random generators (the environment's `np_random`, those of its spaces) are captured for every environment.

State is nested dicts and lists of None, bool, int, float, str, NumPy arrays and NumPy scalars, and nothing else.

`EpisodeStatistics` is the outermost wrapper, so that what it offers as state is that of everything below.

The table mirrors gymnasium 1.2 and stable-baselines3 2.9; classes stand there by name, since importing SB3 imports
torch. It applies to these very classes: a subclass may have more state.
"""

from __future__ import annotations

import time
from collections import deque
from typing import Any, SupportsFloat

import gymnasium as gym
import numpy as np
from gymnasium import spaces

from legroom.errors import BadInput
from legroom.sharing.slots import ObservationForm

DIGITS = 6  # of episode statistics, as in SB3's Monitor
_OBSERVATION = "gymnasium.wrappers.transform_observation."
_ACTION = "gymnasium.wrappers.transform_action."
_ATARI = "stable_baselines3.common.atari_wrappers."

# What changes between steps. `a.b` reaches into an attribute.
ATTRIBUTES: dict[str, tuple[str, ...]] = {
    "gymnasium.wrappers.common.TimeLimit": ("_elapsed_steps",),
    "gymnasium.wrappers.common.OrderEnforcing": ("_has_reset",),
    "gymnasium.wrappers.common.PassiveEnvChecker": ("checked_reset", "checked_step", "checked_render", "close_called"),
    "gymnasium.wrappers.common.Autoreset": ("autoreset",),
    "gymnasium.wrappers.common.RecordEpisodeStatistics": (
        "episode_count", "episode_start_time", "episode_returns", "episode_lengths",
        "time_queue", "return_queue", "length_queue",
    ),
    "gymnasium.wrappers.stateful_observation.FrameStackObservation": ("obs_queue", "padding_value"),
    "gymnasium.wrappers.stateful_observation.DelayObservation": ("observation_queue",),
    "gymnasium.wrappers.stateful_observation.TimeAwareObservation": ("timesteps",),
    "gymnasium.wrappers.stateful_observation.NormalizeObservation": (
        "obs_rms.mean", "obs_rms.var", "obs_rms.count", "_update_running_mean",
    ),
    "gymnasium.wrappers.stateful_observation.MaxAndSkipObservation": ("_obs_buffer",),
    "gymnasium.wrappers.stateful_action.StickyAction": (
        "last_action", "is_sticky_actions", "num_repeats", "repeats_taken",
    ),
    "gymnasium.wrappers.stateful_reward.NormalizeReward": (
        "return_rms.mean", "return_rms.var", "return_rms.count", "discounted_reward", "_update_running_mean",
    ),
    "stable_baselines3.common.monitor.Monitor": (
        "t_start", "rewards", "needs_reset", "episode_returns", "episode_lengths", "episode_times", "total_steps",
        "current_reset_info",
    ),
    **{
        f"{_OBSERVATION}{name}": ()
        for name in (
            "TransformObservation", "FilterObservation", "FlattenObservation", "GrayscaleObservation",
            "ResizeObservation", "ReshapeObservation", "RescaleObservation", "DtypeObservation", "AddRenderObservation",
            "DiscretizeObservation",
        )
    },
    **{f"gymnasium.wrappers.transform_reward.{name}": () for name in ("TransformReward", "ClipReward")},
    **{f"{_ACTION}{name}": () for name in ("TransformAction", "ClipAction", "RescaleAction", "DiscretizeAction")},
    f"{_ATARI}StickyActionEnv": ("_sticky_action",),
    f"{_ATARI}EpisodicLifeEnv": ("lives", "was_real_done"),
    f"{_ATARI}MaxAndSkipEnv": ("_obs_buffer",),
    **{
        f"{_ATARI}{name}": ()
        for name in ("NoopResetEnv", "FireResetEnv", "ClipRewardEnv", "WarpFrame", "AtariWrapper")
    },
}  # fmt: skip

# Moments on a clock that another process does not share: kept as the time that has passed since.
CLOCKS = {"episode_start_time": time.perf_counter, "t_start": time.time}

# What every wrapper has; one with nothing beside these has no state of its own.
PLAIN_WRAPPER = {"env", "_action_space", "_observation_space", "_metadata", "_cached_spec", "_saved_kwargs"}


class _Unknown(Exception):
    """A link whose state nobody knows, or a value that state must not contain; says which."""


def capture(env: gym.Env[Any, Any]) -> dict[str, Any] | None:
    """Return the state of `env` and everything below it, None where a link's state cannot be known."""
    try:
        return _capture(env)
    except _Unknown:
        return None


def obstacle(env: gym.Env[Any, Any]) -> str:
    """Return why `capture` gives None for this environment, an empty text where it does not."""
    try:
        _capture(env)
    except _Unknown as unknown:
        return str(unknown)
    return ""


def _capture(env: gym.Env[Any, Any]) -> dict[str, Any]:
    links = [
        {"class": _name(type(link)), "state": _capture_link(link), "spaces": _capture_spaces(link)}
        for link in _chain(env)
    ]
    base = env.unwrapped
    random = {"generator": _capture_generator(_generator(base)), "seed": getattr(base, "_np_random_seed", None)}
    return {"links": links, "random": _plain(random)}


def restore(env: gym.Env[Any, Any], state: dict[str, Any]) -> None:
    """Put `env` and everything below it back into a captured state.

    Raises:
        BadInput: the state is that of another chain of wrappers.
    """
    links = list(_chain(env))
    had = [link["class"] for link in state["links"]]
    has = [_name(type(link)) for link in links]
    if had != has:
        raise BadInput(f"the state is that of {' of '.join(had)}, and the environment is {' of '.join(has)}")
    for link, captured in zip(reversed(links), reversed(state["links"]), strict=True):
        _restore_link(link, captured["state"])
        _restore_spaces(link, captured["spaces"])
    # Last, since an environment's own set_state may well draw numbers.
    base, random = env.unwrapped, state["random"]
    base._np_random = random["generator"] and _restore_generator(_generator(base), random["generator"])
    base._np_random_seed = random["seed"]


def _chain(env: gym.Env[Any, Any]) -> list[gym.Env[Any, Any]]:
    links = [env]
    while isinstance(links[-1], gym.Wrapper):
        links.append(links[-1].env)
    return links


def _capture_link(link: gym.Env[Any, Any]) -> Any:
    """Return the state of one link."""
    kind = type(link)
    if hasattr(kind, "own_state"):  # its get_state means the whole chain
        return _plain(link.own_state())  # type: ignore[attr-defined]
    if hasattr(kind, "get_state") and hasattr(kind, "set_state"):
        own = link.get_state()  # type: ignore[attr-defined]
        if own is None:
            raise _Unknown(f"{_name(kind)} has no state to give")
        return _plain(own)
    if _name(kind) in ATTRIBUTES:
        return {name: _plain(_since(name, _get(link, name))) for name in ATTRIBUTES[_name(kind)]}
    if isinstance(link, gym.Wrapper) and set(vars(link)) <= PLAIN_WRAPPER:
        return {}
    raise _Unknown(f"{_name(kind)} cannot save its state: it has no get_state and set_state")


def _restore_link(link: gym.Env[Any, Any], state: Any) -> None:
    if hasattr(type(link), "set_own_state"):
        link.set_own_state(state)  # type: ignore[attr-defined]
    elif hasattr(type(link), "set_state"):
        link.set_state(state)  # type: ignore[attr-defined]
    else:
        for name in ATTRIBUTES.get(_name(type(link)), ()):
            _set(link, name, state[name])


def _since(name: str, value: Any) -> Any:
    return CLOCKS[name]() - value if name in CLOCKS else value


def _get(link: Any, path: str) -> Any:
    for name in path.split("."):
        if not hasattr(link, name):  # another release of the library: the table does not fit it
            raise _Unknown(f"{_name(type(link))} has no attribute {name}")
        link = getattr(link, name)
    return link


def _set(link: Any, path: str, value: Any) -> None:
    *outer, name = path.split(".")
    target = _get(link, ".".join(outer)) if outer else link
    current = getattr(target, name)
    value = _plain(value)  # a copy: the environment may write into it
    if isinstance(current, deque):
        value = deque(value, maxlen=current.maxlen)
    setattr(target, name, _since(name, value))


def _plain(value: Any) -> Any:
    """Return a copy of plain data, with deques as lists."""
    if value is None or isinstance(value, bool | int | float | str | np.generic):
        return value
    if isinstance(value, np.ndarray):
        if value.dtype.hasobject:
            raise _Unknown("an array of objects is not plain data")
        return value.copy()
    if isinstance(value, dict) and all(isinstance(key, str) for key in value):
        return {key: _plain(each) for key, each in value.items()}
    if isinstance(value, list | deque):
        return [_plain(each) for each in value]
    raise _Unknown(f"{type(value).__name__} is not plain data")


def _capture_spaces(link: gym.Env[Any, Any]) -> dict[str, Any]:
    """Return the generators of the spaces that this link defines itself; one never drawn from has none."""
    return {
        f"{which}.{path}": _capture_generator(space._np_random)
        for which, path, space in _own_spaces(link)
        if space._np_random is not None
    }


def _restore_spaces(link: gym.Env[Any, Any], state: dict[str, Any]) -> None:
    for which, path, space in _own_spaces(link):
        captured = state.get(f"{which}.{path}")
        space._np_random = None if captured is None else _restore_generator(space._np_random, captured)


def _own_spaces(link: gym.Env[Any, Any]) -> list[tuple[str, str, spaces.Space[Any]]]:
    found = []
    for which in ("action_space", "observation_space"):
        space = getattr(link, f"_{which}") if isinstance(link, gym.Wrapper) else getattr(link, which, None)
        if isinstance(space, spaces.Space):
            found += [(which, path, part) for path, part in _parts("", space)]
    return found


def _parts(path: str, space: spaces.Space[Any]) -> list[tuple[str, spaces.Space[Any]]]:
    inner = getattr(space, "spaces", None)
    items = inner.items() if isinstance(inner, dict) else enumerate(inner) if isinstance(inner, tuple) else ()
    return [(path, space), *(part for key, each in items for part in _parts(f"{path}/{key}", each))]


def _generator(base: gym.Env[Any, Any]) -> np.random.Generator | None:
    generator = getattr(base, "_np_random", None)
    return generator if isinstance(generator, np.random.Generator) else None


def _capture_generator(generator: np.random.Generator | None) -> Any:
    return None if generator is None else _plain(generator.bit_generator.state)


def _restore_generator(generator: np.random.Generator | None, state: dict[str, Any]) -> np.random.Generator:
    """Return `generator` itself, put into the state, where it is of that kind: the environment may refer to it."""
    name = state["bit_generator"]
    if generator is None or type(generator.bit_generator).__name__ != name:
        kind = getattr(np.random, str(name), None)
        if not (isinstance(kind, type) and issubclass(kind, np.random.BitGenerator)):
            raise BadInput(f"the state names a random generator that NumPy does not have: {name!r}")
        generator = np.random.Generator(kind())
    generator.bit_generator.state = _plain(state)
    return generator


def _name(kind: type) -> str:
    """Return the name under which states know a class, wherever it stands by now."""
    name: str = vars(kind).get("name_in_states", f"{kind.__module__}.{kind.__qualname__}")
    return name


class EpisodeStatistics(gym.Wrapper[Any, Any, Any, Any]):
    """Adds `info["episode"] = {"r": return, "l": length, "t": seconds since the start}` at the end of each episode.

    SB3's Monitor does the same counting, but importing it imports torch; `LeanVecEnv.env_is_wrapped(Monitor)` is true.
    An inner wrapper that has already written `info["episode"]` (Monitor with its own keywords, say) is left alone.

    Attributes:
        form: what observations are held against; None where whoever stores them does that.
    """

    name_in_states = "legroom.sharing.statistics.EpisodeStatistics"  # where checkpoints have it from

    def __init__(self, env: gym.Env[Any, Any]) -> None:
        super().__init__(env)
        self._began_s = time.time()
        self._return = 0.0
        self._length = 0
        self.form: ObservationForm | None = ObservationForm(env.observation_space, type(env.unwrapped).__name__)

    def reset(self, **arguments: Any) -> tuple[Any, dict[str, Any]]:  # only what is given: some know no `options`
        self._return = 0.0
        self._length = 0
        observation, info = self.env.reset(**arguments)
        if self.form is not None:
            self.form.check(observation, "reset")
        return observation, info

    def step(self, action: Any) -> tuple[Any, SupportsFloat, bool, bool, dict[str, Any]]:
        observation, reward, terminated, truncated, info = self.env.step(action)
        if self.form is not None:
            self.form.check(observation, "step")
        self._return += float(reward)
        self._length += 1
        if (terminated or truncated) and "episode" not in info:
            elapsed_s = round(time.time() - self._began_s, DIGITS)
            info["episode"] = {"r": round(self._return, DIGITS), "l": self._length, "t": elapsed_s}
        return observation, reward, terminated, truncated, info

    def __getattr__(self, name: str) -> Any:
        # An attribute and not a method: SB3-contrib takes its existence for support of masks.
        if name == "action_masks" and "env" in self.__dict__:
            return self.env.get_wrapper_attr(name)
        raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")

    def offers_state(self) -> bool:
        """Return whether `get_state` can capture everything below this wrapper."""
        return not obstacle(self)

    def why_no_state(self) -> str:
        """Return which part of the chain offers no state, an empty text where all do."""
        return obstacle(self)

    def get_state(self) -> dict[str, Any] | None:
        """Return the state of this wrapper and of everything below it, None where a part of it offers none."""
        return capture(self)

    def set_state(self, state: dict[str, Any]) -> None:
        """Put everything back to where `get_state` was called."""
        restore(self, state)

    def own_state(self) -> dict[str, Any]:
        """Return the counters of this wrapper alone."""
        return {"return": self._return, "length": self._length, "elapsed_s": time.time() - self._began_s}

    def set_own_state(self, state: dict[str, Any]) -> None:
        """Put the counters back; time goes on from where it stopped."""
        self._return, self._length = float(state["return"]), int(state["length"])
        self._began_s = time.time() - float(state["elapsed_s"])
