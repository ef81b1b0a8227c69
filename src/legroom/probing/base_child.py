"""Measured process of `probing.base`: a small SB3 script that reports its own memory. Run it, do not import it.

    python base_child.py trainer|light

It imports no legroom, because what is measured is what a user's script costs. Its imports stand at the top as in most
training scripts: forkserver and spawn workers import the main module again, so they pay for whatever stands there.
"""

import json
import os
import sys
from pathlib import Path

import gymnasium
import numpy as np

if len(sys.argv) < 2 or sys.argv[1] != "light":
    import stable_baselines3
    from stable_baselines3.common.vec_env import DummyVecEnv, SubprocVecEnv


class TinyEnv(gymnasium.Env):
    """The least an environment can be, so that what is left is the libraries."""

    observation_space = gymnasium.spaces.Box(-1, 1, (4,), np.float32)
    action_space = gymnasium.spaces.Discrete(2)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        return np.zeros(4, np.float32), {}

    def step(self, action):
        return np.zeros(4, np.float32), 0.0, False, False, {}


def rollup(pid="self"):
    """Return (resident, anonymous, unique) bytes of a process."""
    fields = {}
    for line in Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()[1:]:
        name, _, rest = line.partition(":")
        fields[name] = int(rest.split()[0]) * 1024
    return fields["Rss"], fields["Anonymous"], fields["Private_Clean"] + fields["Private_Dirty"]


def resident():
    """Return this process's bytes as a lone training run would show them.

    Pages of mapped files are divided among all processes that map them. Those of the training libraries are counted in
    full, whoever else has torch loaded at the moment; those of the interpreter and the system at their present share,
    because some other Python, the one that measures, is always there.
    """
    total, library = 0, False
    for line in Path("/proc/self/smaps").read_text().splitlines():
        name, *rest = line.split()
        if not name.endswith(":"):
            library = "site-packages" in line or "dist-packages" in line
        elif name == ("Rss:" if library else "Pss:"):
            total += int(rest[0]) * 1024
    return total


def children(pid):
    return [int(c) for task in Path(f"/proc/{pid}/task").iterdir() for c in (task / "children").read_text().split()]


def measure_trainer():
    """Return the bytes of a process that made its first update."""
    model = stable_baselines3.PPO("MlpPolicy", DummyVecEnv([TinyEnv]), n_steps=8, batch_size=8, n_epochs=1, device="cpu")
    model.learn(16)
    return {"trainer": resident()}


def measure_workers(start_method):
    """Return what each worker and the processes multiprocessing adds beside them hold alone."""
    before = set(children(os.getpid()))
    vec_env = SubprocVecEnv([TinyEnv] * 2, start_method=start_method)
    vec_env.reset()
    for _ in range(20):
        vec_env.step(np.zeros(2, np.int64))
    workers = {process.pid for process in vec_env.processes}
    helpers = set(children(os.getpid())) - before - workers
    # Libraries are shared with the trainer, so unique bytes are what one more process adds; two workers share what
    # a forkserver gave them, which is counted with the forkserver.
    figures = {"worker": sum(rollup(pid)[2] for pid in workers) // 2, "helpers": sum(rollup(pid)[1] for pid in helpers)}
    vec_env.close()
    return figures


def main(what):
    if what == "light":
        env = TinyEnv()
        env.reset()
        env.step(0)
        return {"light_worker": rollup()[1]}
    figures = measure_trainer()
    for start_method in ("forkserver", "fork"):
        measured = measure_workers(start_method)
        figures |= {f"{start_method}.{name}": nbytes for name, nbytes in measured.items()}
    return figures


if __name__ == "__main__":
    print(json.dumps(main(sys.argv[1])))  # noqa: T201
