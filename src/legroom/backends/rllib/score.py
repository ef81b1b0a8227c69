"""What the workload makes of a policy that RLlib has trained; the twin of `sb3_score`."""

from __future__ import annotations

import inspect
from typing import Any

import numpy as np
from ray.rllib.core import DEFAULT_MODULE_ID

from legroom.backends.rllib.translation import RllibPlan
from legroom.environments.env_make import build
from legroom.environments.objects import resolve_object
from legroom.model.run import Run

TIME_LIMIT_S = 60.0


def judge(run: Run, plan: RllibPlan, algorithm: Any) -> dict[str, Any]:
    """Return the workload's own figures by name; none where it has no judge, or wrappers it cannot know of."""
    kwargs = run.env.kwargs if run.env.grid is None else {"grid": run.env.grid} | run.env.kwargs
    if run.env.wrappers or run.env.id is None:
        return {}
    env = build(run.env.id, kwargs, ())
    try:
        name = env.get_wrapper_attr("score")
    except AttributeError:
        return {}
    finally:
        env.close()
    function = resolve_object(name) if isinstance(name, str) else None
    if function is None or plan.algo == "SAC":
        return {}
    more: dict[str, Any] = {}
    if run.env.frame_stack and run.env.frame_stack > 1:
        if "frame_stack" not in inspect.signature(function).parameters:
            return {}
        more["frame_stack"] = run.env.frame_stack
    policy = algorithm.get_module(DEFAULT_MODULE_ID).policy

    def act(observation: np.ndarray, mask: np.ndarray | None) -> int | np.ndarray:
        masks = {} if mask is None or not plan.masked else {"action_masks": mask}
        action = np.asarray(policy.predict(observation, deterministic=True, **masks)[0])
        return action if action.ndim else int(action)

    return function(act, kwargs, time_limit_s=TIME_LIMIT_S, **more)
