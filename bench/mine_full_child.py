"""The child of `bench.mine_full` for the full extractor: fill a whole rollout, learn from a few minibatches, report."""

from __future__ import annotations

import json
import sys
import time
from contextlib import suppress

import numpy as np
import torch
from stable_baselines3.common.logger import configure

from legroom.backends.sb3.making import make_model, make_vec_env
from legroom.model.run import Run


class Enough(Exception):
    """So many minibatches were asked for."""


def main() -> None:
    run, minibatches = Run.model_validate(json.loads(sys.argv[1])), int(sys.argv[2])
    env = make_vec_env(run)
    try:
        model = make_model(run, env, "cpu")
        seconds = _collect(model, env)
        before = [parameter.detach().clone() for parameter in model.policy.parameters()]
        began, done = time.monotonic(), _learn(model, minibatches)
        changed = max(float((a - b).abs().max()) for a, b in zip(before, model.policy.parameters(), strict=True))
    finally:
        env.close()
    took = time.monotonic() - began
    rows = model.rollout_buffer.buffer_size * env.num_envs
    sys.stdout.write(
        f"{rows:,} steps stored in {seconds / 60:.1f} min, {done} minibatches of {model.batch_size} in "
        f"{took / 60:.1f} min (parameters moved by up to {changed:.1e})\n"
    )


def _collect(model, env) -> float:
    """Fill the rollout with random valid actions and return the seconds it took."""
    began, chosen = time.monotonic(), np.random.default_rng(1)
    buffer, observations = model.rollout_buffer, env.reset()
    starts = np.ones(env.num_envs, bool)
    while not buffer.full:
        masks = np.stack(env.env_method("action_masks"))
        actions = np.array([chosen.choice(np.flatnonzero(mask)) for mask in masks])
        log_prob = torch.tensor(-np.log(masks.sum(1)), dtype=torch.float32)
        following, rewards, dones, _ = env.step(actions)
        buffer.add(
            observations, actions.reshape(-1, 1), rewards, starts, torch.zeros(env.num_envs, 1), log_prob,
            action_masks=masks,
        )  # fmt: skip
        observations, starts = following, dones
    buffer.compute_returns_and_advantage(last_values=torch.zeros(env.num_envs), dones=starts)
    return time.monotonic() - began


def _learn(model, minibatches: int) -> int:
    """Let the algorithm's own update go on for so many optimizer steps."""
    steps, step = 0, model.policy.optimizer.step

    def counted(*args, **kwargs):
        nonlocal steps
        result = step(*args, **kwargs)
        steps += 1
        if steps == minibatches:
            raise Enough
        return result

    model.policy.optimizer.step = counted
    model._current_progress_remaining = 1.0
    model.set_logger(configure(None, []))
    with suppress(Enough):
        model.train()
    return steps


if __name__ == "__main__":
    main()
