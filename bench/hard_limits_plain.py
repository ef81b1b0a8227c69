"""A run of the hard-limits bench as a plain SB3 script, with nothing of legroom's but the workload's environment."""

import json
import sys
from functools import partial
from importlib import import_module

import sb3_contrib
import stable_baselines3
from stable_baselines3.common.vec_env import DummyVecEnv, SubprocVecEnv, VecFrameStack


def find(name: str) -> object:
    module, _, attribute = name.partition(":")
    return getattr(import_module(module), attribute)


def main(run: dict) -> None:
    env, policy = run["env"], run["policy"]
    kwargs = dict(env["kwargs"]) | ({"grid": env["grid"]} if "grid" in env else {})
    makers = [partial(find(env["id"]), **kwargs)] * env["n_envs"]
    vec_env = SubprocVecEnv(makers) if env["workers"] == "subproc" else DummyVecEnv(makers)
    if "frame_stack" in env:
        vec_env = VecFrameStack(vec_env, env["frame_stack"])
    policy_kwargs = dict(policy.get("kwargs", {}))
    if "features_extractor" in policy:
        policy_kwargs["features_extractor_class"] = find(policy["features_extractor"])
        policy_kwargs["features_extractor_kwargs"] = policy["features_extractor_kwargs"]
    algorithm = getattr(stable_baselines3, run["algo"], None) or getattr(sb3_contrib, run["algo"])
    model = algorithm(policy["name"], vec_env, policy_kwargs=policy_kwargs, device="cpu", **run["hyperparams"])
    model.learn(run["total_timesteps"])


if __name__ == "__main__":
    main(json.loads(sys.argv[1]))
