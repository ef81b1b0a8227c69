"""How good the trained policy is: the training's own episodes, and what the workload makes of it.

A workload's environment names its judge in the attribute `score`: a function `module:name` that gets a function from
observation and action mask to action, the environment's arguments, and a time limit, and returns numbers by name.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from stable_baselines3.common.base_class import BaseAlgorithm
from stable_baselines3.common.vec_env import VecEnv, VecFrameStack, VecNormalize, unwrap_vec_wrapper

from legroom.backends.objects import resolve_object
from legroom.backends.sb3_evaluate import untouched_randomness
from legroom.backends.sb3_pictures import first_attribute
from legroom.model.run import Run

TIME_LIMIT_S = 60.0


def score_of(run: Run, model: BaseAlgorithm, env: VecEnv, *, finished: bool) -> dict[str, Any]:
    """Return numbers by name: mean return and length of the last episodes, and the workload's own judgement."""
    episodes = list(model.ep_info_buffer or ())
    score: dict[str, Any] = {"episodes": len(episodes)}
    if episodes:
        score["reward_mean"] = float(np.mean([episode["r"] for episode in episodes]))
        score["length_mean"] = float(np.mean([episode["l"] for episode in episodes]))
    judge = first_attribute(env, "score")
    # the judge plays on a bare environment, so what a wrapper makes of observations would be missing
    bare = unwrap_vec_wrapper(env, VecNormalize) is None and unwrap_vec_wrapper(env, VecFrameStack) is None
    if isinstance(judge, str) and finished and bare and not run.env.wrappers:
        kwargs = run.env.kwargs if run.env.grid is None else {"grid": run.env.grid} | run.env.kwargs

        def act(observation: np.ndarray, mask: np.ndarray | None) -> int:
            masks = {} if mask is None else {"action_masks": mask}
            return int(model.predict(observation, deterministic=True, **masks)[0])  # type: ignore[arg-type]

        with untouched_randomness():
            score |= resolve_object(judge)(act, kwargs, time_limit_s=TIME_LIMIT_S)
    return score
