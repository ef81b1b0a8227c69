"""One training in a process whose data segment is limited while it updates: real allocation failures on the host.

    python -m tests.backends.sb3.retreat_child '{"over": 150000000, "micro_batch": null}'

`over` is how many bytes updates may take beyond what the process has before the first one (RLIMIT_DATA), null for any.
Prints one line of JSON: what happened, and the hash of what was learned. The outputs of the network's wide layer for a
whole minibatch are 102 MB: far larger than everything else, so that what fails is them, and no library that takes it
for granted to get a few bytes.
"""

from __future__ import annotations

import json
import resource
import sys
from pathlib import Path

import torch
from bench.envs import Drift
from stable_baselines3 import PPO
from stable_baselines3.common.callbacks import BaseCallback
from stable_baselines3.common.vec_env import DummyVecEnv
from tests.backends.sb3.retreat_nets import Wide

import legroom
from legroom.backends.sb3.state import policy_arrays
from legroom.training.checkpoint import parameters_sha256

BATCH = 256
UNLIMITED = resource.RLIM_INFINITY


class Limit(BaseCallback):
    """Limits updates only: what fails while collecting is another story."""

    def __init__(self, over: int | None) -> None:
        super().__init__()
        self.over, self.before = over, 0

    def _on_step(self) -> bool:
        return True

    def _on_rollout_start(self) -> None:
        resource.setrlimit(resource.RLIMIT_DATA, (UNLIMITED, UNLIMITED))

    def _on_rollout_end(self) -> None:
        self.before = self.before or data_nbytes()
        if self.over is not None:
            resource.setrlimit(resource.RLIMIT_DATA, (self.before + self.over, UNLIMITED))


def data_nbytes() -> int:
    """Return what RLIMIT_DATA counts of this process."""
    fields = dict(line.split(":", 1) for line in Path("/proc/self/status").read_text().splitlines())
    return int(fields["VmData"].split()[0]) * 1024


def main() -> None:
    """Train once."""
    task = json.loads(sys.argv[1])
    torch.set_num_threads(1)
    policy = dict(net_arch=[], features_extractor_class=Wide)
    model = PPO(
        "MlpPolicy", DummyVecEnv([Drift] * 8), n_steps=BATCH // 8, batch_size=BATCH, n_epochs=2, seed=7, device="cpu",
        policy_kwargs=policy,
    )  # fmt: skip
    with legroom.guard(model, micro_batch=task["micro_batch"]) as guarded:
        model.learn(2 * BATCH, callback=Limit(task["over"]))
    found = {
        "retreats": [[each.update, each.size_before, each.size, each.why] for each in guarded.retreats],
        "micro_batch": guarded.micro_batch,
        "sha256": parameters_sha256(policy_arrays(model)),
    }
    sys.stdout.write(json.dumps(found) + "\n")


if __name__ == "__main__":
    main()
