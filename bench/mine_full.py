"""The run that died at "Unable to allocate 105. GiB": real environment, real grid, whole rollout, in a few gigabytes.

`mine:full` as it is shipped (49×71×58 blocks, 2048 steps × 4 envs, batch 64, the full extractor), with the savings that
change nothing of what is learned: lean storage, light workers, micro-batches of 8. A whole rollout comes from the same
environments (random valid actions: acting with the full network would take hours here and no more memory); then three
minibatches of 64 are learned from it.

    python -m bench.mine_full
"""

from __future__ import annotations

import json
import subprocess
import sys
import time
from contextlib import suppress
from dataclasses import replace
from typing import Any

import numpy as np

from bench.peak_sampler import PeakSampler
from bench.results import write_section
from legroom.backends.base import backend_of
from legroom.backends.sb3.knobs import lean_storage
from legroom.machine import probe
from legroom.model.footprint import Footprint
from legroom.model.run import Run
from legroom.predicting.predict import add_up, gather
from legroom.reading import read
from legroom.units import GIB, format_size

REQUIRED, MICRO_BATCH, MINIBATCHES = 4 * GIB, 8, 3
CHANGES = [("hyperparams.n_epochs", "1"), ("memory.micro_batch", str(MICRO_BATCH)), ("seed", "1"), ("device", "cpu")]


class Enough(Exception):
    """So many minibatches were asked for."""


def predicted(run: Run) -> tuple[Run, Footprint, Footprint]:
    """Return the run with its savings, its footprint, and that of the run as plain SB3 would do it."""
    known, evidence = gather(run, probe(), device="cpu")
    free = backend_of(known).fitter.with_free_savings(known, evidence)
    lean = next(lean_storage(free, evidence), free)
    plain = replace(known, memory=replace(known.memory, micro_batch=None))
    return lean, add_up(lean, evidence), add_up(plain, evidence)


def main() -> int:
    lean, footprint, plain = predicted(read("mine:full", overrides=CHANGES))
    print(f"predicted {format_size(footprint.host.nbytes)}, plain SB3 {format_size(plain.host.nbytes)}", flush=True)
    command = [sys.executable, "-m", "bench.mine_full", json.dumps(lean.model_dump())]
    child = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    with PeakSampler(child.pid, interval_s=0.1) as sampler:
        output, _ = child.communicate()
    if child.returncode:
        raise SystemExit(f"the child ended with {child.returncode}: {output}")
    good = sampler.peak.pss <= REQUIRED
    row = [
        f"mine:full, full extractor, micro-batch {MICRO_BATCH}", format_size(plain.host.nbytes),
        format_size(footprint.host.nbytes), f"≤ {format_size(REQUIRED)}",
        f"{format_size(sampler.peak.pss)}{'' if good else ' FALLS SHORT'}", output.strip().splitlines()[-1],
    ]  # fmt: skip
    columns = ["run", "plain SB3 would need", "predicted", "required", "measured (PSS of the tree)", "what was done"]
    write_section("mine:full in the machine we have (full)", columns, [row], "python -m bench.mine_full")
    return 0 if good else 1


def train(run: Run) -> None:
    """Fill a whole rollout, learn from a few minibatches and report, in a process of its own."""
    from legroom.backends.sb3.making import make_model, make_vec_env

    env = make_vec_env(run)
    try:
        model = make_model(run, env, "cpu")
        seconds = _collect(model, env)
        before = [parameter.detach().clone() for parameter in model.policy.parameters()]
        began, done = time.monotonic(), _learn(model)
        changed = max(float((a - b).abs().max()) for a, b in zip(before, model.policy.parameters(), strict=True))
    finally:
        env.close()
    rows, took = model.rollout_buffer.buffer_size * env.num_envs, time.monotonic() - began
    print(
        f"{rows:,} steps stored in {seconds / 60:.1f} min, {done} minibatches of {model.batch_size} in "
        f"{took / 60:.1f} min (parameters moved by up to {changed:.1e})"
    )


def _collect(model: Any, env: Any) -> float:
    """Fill the rollout with random valid actions and return the seconds it took."""
    import torch

    began, chosen = time.monotonic(), np.random.default_rng(1)
    buffer, observations = model.rollout_buffer, env.reset()
    starts = np.ones(env.num_envs, bool)
    while not buffer.full:
        masks = np.stack(env.env_method("action_masks"))
        actions = np.array([chosen.choice(np.flatnonzero(mask)) for mask in masks])
        log_prob = torch.tensor(-np.log(masks.sum(1)), dtype=torch.float32)
        following, rewards, dones, _ = env.step(actions)
        values = torch.zeros(env.num_envs, 1)
        buffer.add(observations, actions.reshape(-1, 1), rewards, starts, values, log_prob, action_masks=masks)
        observations, starts = following, dones
    buffer.compute_returns_and_advantage(last_values=torch.zeros(env.num_envs), dones=starts)
    return time.monotonic() - began


def _learn(model: Any) -> int:
    """Let the algorithm's own update go on for so many optimizer steps."""
    from stable_baselines3.common.logger import configure

    steps, step = 0, model.policy.optimizer.step

    def counted(*args: Any, **kwargs: Any) -> Any:
        nonlocal steps
        result = step(*args, **kwargs)
        steps += 1
        if steps == MINIBATCHES:
            raise Enough
        return result

    model.policy.optimizer.step = counted
    model._current_progress_remaining = 1.0
    model.set_logger(configure(None, []))
    with suppress(Enough):
        model.train()
    return steps


if __name__ == "__main__":
    if len(sys.argv) > 1:
        train(Run.model_validate(json.loads(sys.argv[1])))
        sys.exit(0)
    sys.exit(main())
