"""The environment that an env runner makes: the run's own, with what SB3 would put around all of them put around one.

SB3 stacks frames and transposes images for a whole vector of environments; RLlib's runners have vectors of their own:
both happen per environment here, with the same axes. A mask of actions travels as a part of the observation, which
is the only thing RLlib keeps beside each step.
"""

from collections.abc import Mapping
from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium import spaces

from legroom.environments.env_make import build
from legroom.environments.env_steps import mask_function
from legroom.errors import BadInput
from legroom.model.run import Run

OBSERVATION, MASK = "observation", "action_mask"


def make_runner_env(config: Mapping[str, Any]) -> gym.Env[Any, Any]:
    """Return the environment of `config["run"]`, a Run as plain data; RLlib's runners call it.

    Raises:
        EnvError: the environment cannot be made.
        BadInput: masks are asked for and it has none.
    """
    run = Run.model_validate(config["run"])
    spec = run.env
    if spec.id is None:
        raise BadInput("the run names no environment", path=run.source, hint="set env.id")
    env = build(spec.id, spec.arguments, spec.wrappers)
    masked = mask_function(env) if config["masked"] else None
    if config["masked"] and masked is None:
        raise BadInput(
            f"{run.algo} needs masks, and {spec.id} has no method action_masks()", path=run.source, hint="algo: PPO"
        )
    env = WithAxes(env, spec.frame_stack or 1)
    return env if masked is None else WithMask(env, masked)


class WithMask(gym.Wrapper[Any, Any, Any, Any]):
    """Observations become `{observation, action_mask}`."""

    def __init__(self, env: gym.Env[Any, Any], masks: Any) -> None:
        super().__init__(env)
        self._masks = masks
        action = env.action_space
        if isinstance(action, spaces.Discrete):
            size = int(action.n)
        elif isinstance(action, spaces.MultiDiscrete):
            size = int(action.nvec.sum())
        else:
            raise BadInput(f"actions of {type(action).__name__} have no mask that RLlib could keep", hint="algo: PPO")
        mask = spaces.Box(0, 1, (size,), np.int8)
        self.observation_space = spaces.Dict({MASK: mask, OBSERVATION: env.observation_space})

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        observation, info = self.env.reset(seed=seed, options=options)
        return self._with_mask(observation), info

    def step(self, action: Any) -> tuple[Any, Any, bool, bool, dict[str, Any]]:
        observation, reward, terminated, truncated, info = self.env.step(action)
        return self._with_mask(observation), reward, terminated, truncated, info

    def _with_mask(self, observation: Any) -> dict[str, Any]:
        return {MASK: np.asarray(self._masks(), np.int8).reshape(-1), OBSERVATION: observation}


class WithAxes(gym.Wrapper[Any, Any, Any, Any]):
    """Frames stacked and images with channels first, as VecFrameStack and VecTransposeImage of SB3 2.9 do it.

    The first observation of an episode stands last in a stack of zeros, as there.
    """

    def __init__(self, env: gym.Env[Any, Any], n_stack: int) -> None:
        super().__init__(env)
        self._stack = n_stack
        space = env.observation_space
        self._keys = list(space.spaces) if isinstance(space, spaces.Dict) else None
        leaves = space.spaces if isinstance(space, spaces.Dict) else {"": space}
        self._leaves = {key: _Axes(leaf, n_stack) for key, leaf in leaves.items()}
        made = {key: axes.space for key, axes in self._leaves.items()}
        self.observation_space = spaces.Dict(made) if self._keys is not None else made[""]

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        observation, info = self.env.reset(seed=seed, options=options)
        for axes in self._leaves.values():
            axes.clear()
        return self._seen(observation), info

    def step(self, action: Any) -> tuple[Any, Any, bool, bool, dict[str, Any]]:
        observation, reward, terminated, truncated, info = self.env.step(action)
        return self._seen(observation), reward, terminated, truncated, info

    def _seen(self, observation: Any) -> Any:
        if self._keys is None:
            return self._leaves[""](observation)
        return {key: self._leaves[key](observation[key]) for key in self._keys}


class _Axes:
    """What happens to one array of an observation."""

    def __init__(self, space: spaces.Space[Any], n_stack: int) -> None:
        self._image = isinstance(space, spaces.Box) and _is_image(space)
        first = self._image and space.shape is not None and int(np.argmin(space.shape)) == 0
        self._moved = self._image and not first
        self._n = n_stack if isinstance(space, spaces.Box) else 1
        self._axis = 0 if first else -1
        self._frames: np.ndarray | None = None
        self.space = space
        if not isinstance(space, spaces.Box) or (self._n == 1 and not self._moved):
            return
        low, high = (np.repeat(bound, self._n, axis=self._axis) for bound in (space.low, space.high))
        self._zeros = np.zeros(low.shape, space.dtype)
        if self._moved:
            low, high = low.transpose(2, 0, 1), high.transpose(2, 0, 1)
        self.space = spaces.Box(low, high, dtype=space.dtype)  # type: ignore[arg-type]

    def clear(self) -> None:
        self._frames = None

    def __call__(self, frame: Any) -> Any:
        if self._n > 1:
            before = self._zeros if self._frames is None else self._frames
            width = frame.shape[self._axis]
            kept = before[width:] if self._axis == 0 else before[..., width:]
            frame = self._frames = np.concatenate([kept, frame], axis=self._axis)
        return np.ascontiguousarray(frame.transpose(2, 0, 1)) if self._moved else frame


def _is_image(space: spaces.Box) -> bool:
    full = space.dtype == np.uint8 and len(space.shape) == 3
    return full and bool(np.all(space.low == 0) and np.all(space.high == 255))
