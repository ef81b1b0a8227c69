"""The measured process of the accuracy bench: a plain Stable-Baselines3 script, no legroom in it.

    python bench/accuracy_run.py '{"algo": "PPO", ...}'

takes a run in the words of a run file and trains it the way a user's script would.
"""

import json
import sys
from functools import partial

import stable_baselines3 as sb3
from stable_baselines3.common.vec_env import DummyVecEnv, SubprocVecEnv, VecFrameStack, VecNormalize

from envs import SmallEnv


def main(run: dict) -> None:
    env = run["env"]
    make = partial(SmallEnv, env["spaces"]["observation"], env["spaces"]["action"], env.get("episode_steps", 100))
    makers = [make for _ in range(env.get("n_envs", 1))]
    if env.get("workers", "dummy") == "subproc":
        vec_env = SubprocVecEnv(makers, start_method=env.get("start_method"))
    else:
        vec_env = DummyVecEnv(makers)
    if env.get("frame_stack"):
        vec_env = VecFrameStack(vec_env, env["frame_stack"])
    if env.get("normalize"):
        vec_env = VecNormalize(vec_env)
    policy = run.get("policy", {})
    algorithm = getattr(sb3, run["algo"], None)
    if algorithm is None:
        import sb3_contrib

        algorithm = getattr(sb3_contrib, run["algo"])
    model = algorithm(
        policy.get("name", "MlpPolicy"), vec_env, device="cpu", policy_kwargs=policy.get("kwargs"), **run["hyperparams"]
    )
    model.learn(run["total_timesteps"])
    vec_env.close()


if __name__ == "__main__":
    main(json.loads(sys.argv[1]))
