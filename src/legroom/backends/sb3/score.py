"""How good the trained policy is: the training's own episodes, and what the workload makes of it.

A workload's environment names its judge in the attribute `score`: a function `module:name` that gets a function from
observation and action mask to action, the environment's arguments, and a time limit, and returns numbers by name. One
that also takes `frame_stack` stacks so many frames itself, as the policy is used to.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

import numpy as np
from stable_baselines3.common.base_class import BaseAlgorithm
from stable_baselines3.common.vec_env import VecEnv, VecFrameStack, VecNormalize, unwrap_vec_wrapper

from legroom.backends.sb3.evaluating import untouched_randomness
from legroom.backends.sb3.pictures import first_attribute
from legroom.environments.objects import resolve_object
from legroom.model.run import Run

TIME_LIMIT_S = 60.0


def score_of(run: Run, model: BaseAlgorithm, env: VecEnv, *, finished: bool) -> dict[str, Any]:
    """Return numbers by name: mean return and length of the last episodes, and the workload's own judgement."""
    episodes = list(model.ep_info_buffer or ())
    score: dict[str, Any] = {"episodes": len(episodes)}
    if episodes:
        score["reward_mean"] = float(np.mean([episode["r"] for episode in episodes]))
        score["length_mean"] = float(np.mean([episode["l"] for episode in episodes]))
    if finished and unwrap_vec_wrapper(env, VecNormalize) is None:  # a judge could not normalise as it did
        stacking = unwrap_vec_wrapper(env, VecFrameStack)
        with untouched_randomness():
            frames = None if stacking is None else stacking.stacked_obs.n_stack
            score |= judgement(run, first_attribute(env, "score"), model.predict, frames)
    return score


def judgement(run: Run, judge_name: Any, predict: Callable[..., Any], frame_stack: int | None) -> dict[str, Any]:
    """Return the workload's own figures by name; none where it has no judge, or wrappers that it cannot know of.

    It plays on a bare environment: a policy would not see there what it was trained on.

    Args:
        predict: as of SB3's policies.
    """
    if not isinstance(judge_name, str) or run.env.wrappers:
        return {}
    judge = resolve_object(judge_name)
    asked = {} if frame_stack is None else {"frame_stack": frame_stack}
    if not asked.keys() <= inspect.signature(judge).parameters.keys():
        return {}

    def act(observation: np.ndarray, mask: np.ndarray | None) -> int | np.ndarray:
        masks = {} if mask is None else {"action_masks": mask}
        action = np.asarray(predict(observation, deterministic=True, **masks)[0])
        return action if action.ndim else int(action)  # a set of cells, or one action

    figures: dict[str, Any] = judge(act, run.env.arguments, time_limit_s=TIME_LIMIT_S, **asked)
    return figures
