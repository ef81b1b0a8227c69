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
    name = first_attribute(env, "score")
    judge = resolve_object(name) if isinstance(name, str) and finished and not run.env.wrappers else None
    asked = None if judge is None else _what_wrappers_do(judge, env)
    if judge is not None and asked is not None:
        kwargs = run.env.kwargs if run.env.grid is None else {"grid": run.env.grid} | run.env.kwargs

        def act(observation: np.ndarray, mask: np.ndarray | None) -> int | np.ndarray:
            masks = {} if mask is None else {"action_masks": mask}
            action = np.asarray(model.predict(observation, deterministic=True, **masks)[0])  # type: ignore[arg-type]
            return action if action.ndim else int(action)  # a set of cells, or one action

        with untouched_randomness():
            score |= judge(act, kwargs, time_limit_s=TIME_LIMIT_S, **asked)
    return score


def _what_wrappers_do(judge: Callable[..., Any], env: VecEnv) -> dict[str, Any] | None:
    """Return what to tell a judge of the wrappers' work on observations, None if it could not do the same.

    It plays on a bare environment: a policy would not see there what it was trained on.
    """
    stacking = unwrap_vec_wrapper(env, VecFrameStack)
    if unwrap_vec_wrapper(env, VecNormalize) is not None:
        return None
    if stacking is None:
        return {}
    takes_it = "frame_stack" in inspect.signature(judge).parameters
    return {"frame_stack": stacking.stacked_obs.n_stack} if takes_it else None
