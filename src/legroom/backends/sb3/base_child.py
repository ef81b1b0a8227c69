"""Measured process of `base_figures`: a small SB3 script that reports its own memory. Run it, do not import it.

    python base_child.py trainer|forkserver|fork|light

It imports nothing of legroom but its light workers, because what is measured is what a user's script costs. Its
imports stand at the top as in most training scripts: forkserver and spawn workers import the main module again, so they
pay for whatever stands there.
"""

import json
import os
import sys
import types
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np

if len(sys.argv) > 1 and sys.argv[1] == "light":
    from legroom.sharing.crew import LightEnvs
else:
    import stable_baselines3
    import torch
    from stable_baselines3.common.vec_env import DummyVecEnv, SubprocVecEnv


class TinyEnv(gymnasium.Env[Any, Any]):
    """The least an environment can be, so that what is left is the libraries."""

    observation_space = gymnasium.spaces.Box(-1, 1, (4,), np.float32)
    action_space = gymnasium.spaces.Discrete(2)

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        super().reset(seed=seed)
        return np.zeros(4, np.float32), {}

    def step(self, action: Any) -> Any:
        return np.zeros(4, np.float32), 0.0, False, False, {}


def rollup(pid: int | str = "self") -> Any:
    """Return resident, anonymous, proportionally shared anonymous and unique bytes of a process."""
    lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
    fields = {line.split(":")[0]: int(line.split()[1]) * 1024 for line in lines[1:]}
    return {
        "rss": fields["Rss"],
        "anon": fields["Anonymous"],
        "pss_anon": fields.get("Pss_Anon", fields["Anonymous"]),
        "unique": fields["Private_Clean"] + fields["Private_Dirty"],
    }


def resident() -> Any:
    """Return this process's bytes as a lone training run would show them, and how many are pages of mapped files.

    Such pages are counted in full, though other processes that have torch loaded may share them.
    """
    held = rollup()
    return held["rss"], held["rss"] - held["anon"]


def children(pid: int) -> Any:
    return [int(c) for task in Path(f"/proc/{pid}/task").iterdir() for c in (task / "children").read_text().split()]


def learn(vec_env: Any) -> Any:
    """Build the smallest model and update it once: what torch and SB3 load and set up on first use is then there."""
    model = stable_baselines3.PPO("MlpPolicy", vec_env, n_steps=8, batch_size=8, n_epochs=1, device="cpu")
    model.learn(16)


def measure_trainer() -> Any:
    """Return what the training process holds after a first update, with torch's compiler, without, and before."""
    vec_env = DummyVecEnv([TinyEnv])
    with torch.no_grad():
        torch.nn.Linear(4, 2)(torch.as_tensor(vec_env.reset()))
    before, _ = resident()
    without = learn_without_compiler(vec_env)
    learn(vec_env)
    trainer, libraries = resident()
    return {"trainer": trainer, "without_compiler": without, "without_updates": before, "libraries": libraries}


def learn_without_compiler(vec_env: Any) -> Any:
    """Return what the process holds after an update, where an optimizer does not import torch's compiler."""
    stand_in: Any = types.ModuleType("torch._dynamo")
    stand_in.disable, stand_in.graph_break = (lambda function, *rest, **options: function), (lambda: None)
    sys.modules["torch._dynamo"] = torch._dynamo = stand_in
    learn(vec_env)
    held, _ = resident()
    del sys.modules["torch._dynamo"], torch._dynamo
    return held


def measure_forkserver() -> Any:
    """Return the trainer, what a worker holds alone, and the processes multiprocessing adds."""
    figures = measure_trainer()
    vec_env = SubprocVecEnv([TinyEnv], start_method="forkserver")  # one: the next ones are like it
    vec_env.reset()
    for _ in range(20):
        vec_env.step(np.zeros(1, np.int64))
    (worker,) = (process.pid for process in vec_env.processes)
    helpers = set(children(os.getpid())) - {worker}
    # Libraries are shared with the trainer, so unique bytes are what one more process adds.
    figures["worker"] = rollup(worker)["unique"]
    figures["helpers"] = sum(rollup(pid)["anon"] for pid in helpers)
    vec_env.close()
    return figures


def measure_fork() -> Any:
    """Return what forked workers hold alone, and what they keep alive together.

    They are forked before the model exists, as in most scripts. Pages that the trainer writes to afterwards (reference
    counts are enough) exist twice from then on: its new ones, and the old ones, shared by all workers.
    """
    vec_env = SubprocVecEnv([TinyEnv] * 2, start_method="fork")
    learn(vec_env)
    workers = [rollup(process.pid) for process in vec_env.processes]
    figures = {
        "fork_worker": sum(each["unique"] for each in workers) // len(workers),
        "tree": rollup()["pss_anon"] + sum(each["pss_anon"] for each in workers),
    }
    vec_env.close()
    learn(DummyVecEnv([TinyEnv]))
    alone = rollup()["anon"]
    figures["fork_shared"] = max(figures.pop("tree") - alone - 2 * figures["fork_worker"], 0)
    return figures


def measure_light() -> Any:
    """Return what a worker without torch holds alone: a fresh interpreter, and one forked from a template."""
    fresh, forked = measure_workers(1, None), measure_workers(2, ["gymnasium.envs.classic_control"])
    return {"light_worker": fresh, "light_forked": forked}


def measure_workers(count: int, preload: Any) -> Any:
    """Return the unique bytes of one of `count` workers that have played a little."""
    with closing(LightEnvs(partial(gymnasium.make, "CartPole-v1"), count, preload)) as envs:
        envs.ask_each("reset", 0, each=lambda index: (0, None))
        for step in range(100):
            envs.ask_each("step", step % 2, each=lambda index: (0,))
        return rollup(envs.pids[-1])["unique"]


STAGES = {"trainer": measure_trainer, "forkserver": measure_forkserver, "fork": measure_fork, "light": measure_light}

if __name__ == "__main__":
    print(json.dumps(STAGES[sys.argv[1]]()))  # noqa: T201
