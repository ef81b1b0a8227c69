"""The environment that an env runner makes: the run's own, with what SB3 would put around all of them put around one.

SB3 stacks frames and transposes images for a whole vector of environments; RLlib's runners have vectors of their own:
both happen per environment here, with the same axes. A mask of actions travels as a part of the observation, which
is the only thing RLlib keeps beside each step.
"""

from collections.abc import Callable, Mapping
from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium import spaces
from stable_baselines3.common.preprocessing import is_image_space
from stable_baselines3.common.preprocessing import is_image_space_channels_first as is_channels_first
from stable_baselines3.common.vec_env.stacked_observations import StackedObservations
from stable_baselines3.common.vec_env.vec_transpose import VecTransposeImage

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
    """Frames stacked and images with channels first, by SB3's own functions for whole vectors of environments."""

    def __init__(self, env: gym.Env[Any, Any], n_stack: int) -> None:
        super().__init__(env)
        seen: Any = env.observation_space
        self._stacked: Any = StackedObservations(1, n_stack, seen) if n_stack > 1 else None
        space: Any = seen if self._stacked is None else self._stacked.stacked_observation_space
        leaves: dict[str, Any] = space.spaces if isinstance(space, spaces.Dict) else {"": space}
        self._moved = [key for key, leaf in leaves.items() if is_image_space(leaf) and not is_channels_first(leaf)]
        made = {
            key: VecTransposeImage.transpose_space(leaf) if key in self._moved else leaf for key, leaf in leaves.items()
        }
        self.observation_space = spaces.Dict(made) if isinstance(space, spaces.Dict) else made[""]

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        observation, info = self.env.reset(seed=seed, options=options)
        if self._stacked is not None:
            observation = self._stacked.reset(_each(lambda leaf: leaf[None], observation))
        return self._seen(observation), info

    def step(self, action: Any) -> tuple[Any, Any, bool, bool, dict[str, Any]]:
        observation, reward, terminated, truncated, info = self.env.step(action)
        if self._stacked is not None:  # which would begin anew where an episode ends: here `reset` does
            batch = _each(lambda leaf: leaf[None], observation)
            observation, _ = self._stacked.update(batch, np.zeros(1, bool), [{}])
        return self._seen(observation), reward, terminated, truncated, info

    def _seen(self, observation: Any) -> Any:
        """Return an observation with its axes; SB3 goes on with the array that it stacks in."""
        if self._stacked is not None:
            observation = _each(lambda leaf: leaf[0].copy(), observation)
        if isinstance(observation, dict):
            return observation | {key: _moved(observation[key]) for key in self._moved}
        return _moved(observation) if self._moved else observation


def _moved(image: Any) -> Any:
    return np.ascontiguousarray(VecTransposeImage.transpose_image(image))


def _each(function: Callable[[Any], Any], observation: Any) -> Any:
    """Return what the function makes of an observation, or of each of its parts."""
    if isinstance(observation, dict):
        return {key: function(leaf) for key, leaf in observation.items()}
    return function(observation)
