"""What the workload makes of a policy that RLlib has trained; the twin of `backends.sb3.score`."""

from __future__ import annotations

from typing import Any

from ray.rllib.core import DEFAULT_MODULE_ID

from legroom.backends.rllib.translation import RllibPlan
from legroom.backends.sb3.score import judgement
from legroom.environments.env_make import build
from legroom.model.run import Run


def judge(run: Run, plan: RllibPlan, algorithm: Any) -> dict[str, Any]:
    """Return the workload's own figures by name; none where it has no judge, or wrappers it cannot know of."""
    if run.env.wrappers or run.env.id is None or plan.algo == "SAC":
        return {}
    env = build(run.env.id, run.env.arguments, ())
    try:
        name = env.get_wrapper_attr("score")
    except AttributeError:
        return {}
    finally:
        env.close()
    policy = algorithm.get_module(DEFAULT_MODULE_ID).policy

    def predict(observation: Any, *, deterministic: bool, **masks: Any) -> Any:
        return policy.predict(observation, deterministic=deterministic, **(masks if plan.masked else {}))

    stacked = run.env.frame_stack is not None and run.env.frame_stack > 1
    return judgement(run, name, predict, run.env.frame_stack if stacked else None)
