"""Lean storage, predicted by a probe of a second, against what real buffers of real SB3 runs then occupy and take.

Bytes are the buffer's observations; time is that of storing and reading in SB3's own loops, relative to SB3's buffers
on the same environment, everything else that those do included: what the price, which follows the bytes, says of it.
Time varies with the machine, so only the bytes decide whether the bench fails.

    make bench-lean-prediction
"""

import statistics
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import stable_baselines3
import torch
from stable_baselines3.common.torch_layers import BaseFeaturesExtractor
from stable_baselines3.common.vec_env import DummyVecEnv, VecFrameStack

import legroom
from bench import envs as lean_envs
from bench.results import write_section
from legroom.backends.base import algorithm_of, hyper
from legroom.backends.sb3.base_figures import BaseFigures
from legroom.backends.sb3.bill.buffers import replay_items, rollout_items
from legroom.backends.sb3.bill.lean import storage_price
from legroom.backends.sb3.stored import batch_samples, env_task
from legroom.environments.env_look import look_at_env
from legroom.model.evidence import Evidence
from legroom.model.footprint import Known
from legroom.model.machine import Machine
from legroom.model.run import EnvSpec, MemorySpec, Run

MACHINE = Machine(ram=1, limit=None, available=1, swap=0, shm=0)
NOTHING = BaseFigures(0, 0, 0, {}, Known.DEFAULT)
MB = 1e6
CACHE_NBYTES = 64 << 20


@dataclass(frozen=True)
class Case:
    """A run: `rows` are the steps of a rollout, or the ring's rows."""

    env: str
    algo: str
    n_envs: int
    rows: int
    frame_stack: int | None = None
    kwargs: dict[str, Any] = field(default_factory=dict)

    def run(self) -> Run:
        """Return it as legroom sees it."""
        sizes = {"n_steps": self.rows} if self.algo == "PPO" else {"buffer_size": self.rows * self.n_envs}
        env = EnvSpec(id=f"bench.envs:{self.env}", n_envs=self.n_envs, frame_stack=self.frame_stack, kwargs=self.kwargs)
        return Run(algo=self.algo, env=env, hyperparams=sizes, memory=MemorySpec(rollout="lean", replay="lean"))


CASES = (
    Case("Menu", "PPO", 4, 2048),
    Case("Menu", "DQN", 1, 10_000, 4),
    Case("Paddles", "PPO", 8, 1024, 4),
    Case("Paddles", "DQN", 1, 20_000, 4),
    Case("Scroller", "PPO", 2, 1024, 4),
    Case("Scroller", "DQN", 2, 2000),
    Case("Mine", "PPO", 4, 512),
    Case("Mine", "PPO", 2, 512, kwargs={"length": 3000}),
    Case("Robot", "PPO", 4, 2048),
    Case("Robot", "SAC", 1, 50_000),
    Case("Snow", "PPO", 2, 2048),
    Case("Snow", "DQN", 1, 5000),
)


class Glance(BaseFeaturesExtractor):
    """The smallest network there is: the buffers are what counts."""

    def __init__(self, space: Any) -> None:
        super().__init__(space, 2)
        self.layer = torch.nn.Linear(1, 2)

    def forward(self, observations: torch.Tensor) -> torch.Tensor:
        return self.layer(observations.flatten(1)[:, :1].float())


def predict(case: Case) -> tuple[int, int, str]:
    """Return the observations' bytes, their error, and the price."""
    run = case.run()
    look = look_at_env(run, env_task(run), trust=True)
    if look.probe is None:
        raise RuntimeError(f"{case}: {look.not_probed}")
    run = run.replace(env=run.env.model_copy(update={"spaces": look.spaces}))
    evidence = Evidence(MACHINE, "cpu", NOTHING, lean=look.probe)
    items = [*rollout_items(run, evidence), *replay_items(run, evidence)]
    measured = [item for item in items if item.known is Known.MEASURED]
    total, error = sum(item.nbytes for item in measured), sum(item.error for item in measured)
    return total, error, storage_price(run, evidence)


def reads_per_row(run: Run) -> float:
    """Return how often an observation that was stored is read."""
    if algorithm_of(run).family == "on-policy":
        return float(hyper(run, "n_epochs") or 1)
    return batch_samples(run) / (int(hyper(run, "train_freq")) * run.env.n_envs)


def build(case: Case, *, lean: bool) -> Any:
    """Return a real model, with lean storage or SB3's own."""
    env: Any = DummyVecEnv([lambda: getattr(lean_envs, case.env)(**case.kwargs)] * case.n_envs)
    if case.frame_stack:
        env = VecFrameStack(env, case.frame_stack)
    sizes: dict[str, Any] = {"n_steps": case.rows, "batch_size": 64}
    classes: dict[str, Any] = {"rollout_buffer_class": legroom.LeanRolloutBuffer}
    if case.algo != "PPO":
        sizes = {"buffer_size": case.rows * case.n_envs, "learning_starts": 10**9}
        classes = {"replay_buffer_class": legroom.LeanReplayBuffer}
    policy_kwargs = {"features_extractor_class": Glance}
    algorithm = getattr(stable_baselines3, case.algo)
    return algorithm(
        "MlpPolicy", env, seed=11, device="cpu", policy_kwargs=policy_kwargs, **sizes, **(classes if lean else {})
    )


def fill_and_read(case: Case, model: Any) -> float:
    """Fill the buffer, a ring a third beyond its size, and return the seconds of storing and reading an observation."""
    buffer = model.rollout_buffer if case.algo == "PPO" else model.replay_buffer
    spent = [0.0]
    add = buffer.add

    def timed_add(*args: Any, **kwargs: Any) -> None:
        began = time.thread_time()
        add(*args, **kwargs)
        spent[0] += time.thread_time() - began

    buffer.add = timed_add
    if case.algo == "PPO":
        buffer.prefetch = False  # decoding counts, also what a second core would hide
        _, callback = model._setup_learn(10**9)
        model.collect_rollouts(model.env, callback, buffer, case.rows)
        added = case.rows * case.n_envs
        first, second = _seconds(buffer.get(64)), _seconds(buffer.get(64))
        each = statistics.median(second)
        once, reading = max(first[0] - each, 0.0) / added, each / 64  # the first of all flattens, once per rollout
    else:
        added, once = case.rows * case.n_envs * 4 // 3, 0.0
        model.learn(added)
        samples = (buffer.sample(model.batch_size) for _ in range(200))
        reading = statistics.median(_seconds(samples)) / model.batch_size
    del buffer.add
    return spent[0] / added + once + reads_per_row(case.run()) * reading


def _seconds(batches: Iterator[Any]) -> list[float]:
    """Return how long making each of the batches takes, caches emptied in between as an update would."""
    spent, used = [], np.ones(CACHE_NBYTES // 8)
    while True:
        used.sum()
        began = time.thread_time()
        if next(batches, None) is None:
            return spent
        spent.append(time.thread_time() - began)


def main() -> int:
    torch.set_num_threads(1)
    rows, errors, outside = [], [], 0
    for case in CASES:
        total, error, price = predict(case)
        plain_s = fill_and_read(case, build(case, lean=False))
        model = build(case, lean=True)
        lean_s = fill_and_read(case, model)
        buffer = model.rollout_buffer if case.algo == "PPO" else model.replay_buffer
        (column,) = buffer.columns.values()
        real = sum(nbytes for purpose, nbytes in column.breakdown().items() if purpose != "spilled")
        plain = column.item_bytes * case.rows * case.n_envs * (1 if case.algo == "PPO" else 2)
        inside = abs(total - real) <= error
        errors.append(abs(total - real) / real)
        outside += not inside
        stack = f", stack of {case.frame_stack}" if case.frame_stack else ""
        long = ", long episodes" if case.kwargs else ""
        rows.append([
            f"{case.env} {case.algo}, {case.rows:,} x {case.n_envs}{stack}{long}", f"{plain / MB:,.1f}",
            f"{total / MB:,.2f}", f"{max(total - error, 0) / MB:,.2f}", f"{(total + error) / MB:,.2f}",
            f"{real / MB:,.2f}", f"{(total - real) / real:+.1%}", "yes" if inside else "no",
            price, f"{lean_s / plain_s:.2f}",
        ])  # fmt: skip
        print(*rows[-1], sep="  ", flush=True)
    inside_count = len(CASES) - outside
    summary = f"median error {statistics.median(errors):.1%}, {inside_count} of {len(CASES)} inside their band"
    rows.append([summary, *[""] * 9])
    write_section(
        "Lean storage predicted by a probe",
        ["run (MB)", "plain", "predicted", "low", "high", "real", "error", "in band", "price", "time"],
        rows,
        "make bench-lean-prediction",
    )
    return 1 if outside else 0


if __name__ == "__main__":
    sys.exit(main())
