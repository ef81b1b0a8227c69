"""Score a policy in dollars, between two schedules that need no learning and under a bound that no schedule exceeds.

- `pit_value_usd`: what the ultimate pit is worth undiscounted. No schedule inside it is worth more, and most are worth
  far less, because money that comes later is worth less;
- `greedy_npv_usd`: the best of the simple rules by which mines are planned (see `greedy`);
- `random_npv_usd`: digging whatever may be dug, the mean of many episodes;
- `agent_npv_usd`: the policy in question.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from legroom_workloads.mine.env import MineEnv
from legroom_workloads.mine.greedy import best_greedy
from legroom_workloads.mine.pit import ultimate_pit

Predict = Callable[[NDArray[np.float32], NDArray[np.bool_]], Any]  # the column to dig
RANDOM_EPISODES = 20
# A pit of 60,000 blocks takes seconds per episode, and the mean of so many random choices hardly varies.
RANDOM_BLOCKS = 200_000
STEPS_TO_JUDGE = 20  # after which the speed of a policy is known


def score_policy(
    predict: Predict,
    env_kwargs: Mapping[str, Any] | None = None,
    episodes: int = 1,
    seed: int = 0,
    *,
    time_limit_s: float | None = None,
) -> dict[str, float]:
    """Return the four figures of a policy, keys as above.

    Args:
        predict: takes the observation and the mask of a step and returns the column to dig. The observation is live:
            the next step changes it.
        env_kwargs: of the MineEnv that the policy was trained for.
        episodes: of the agent, whose mean counts; a deterministic policy in a fixed deposit needs one.
        seed: of the deposits where each episode has its own, and of the random schedules.
        time_limit_s: return nothing if the agent's episodes would take longer: a large network takes hours to dig a
            large pit, and without its figure the others say nothing.

    Raises:
        BadInput: arguments that the environment refuses.
    """
    env = MineEnv(**{**(env_kwargs or {}), "copy": False})
    rng = np.random.default_rng(seed)
    bounds: dict[str, list[float]] = {"pit_value_usd": [], "greedy_npv_usd": [], "random_npv_usd": []}
    agent: list[float] = []
    for number in range(episodes):
        env.reset(seed=seed if number == 0 else None)
        npv = policy_npv(env, predict, time_limit_s=None if time_limit_s is None else time_limit_s / episodes)
        if npv is None:
            return {}
        agent.append(npv)
        if number == 0 or env.new_geology:
            for name, figure in zip(bounds, (pit_value(env), greedy_npv(env), random_npv(env, rng)), strict=True):
                bounds[name].append(figure)
    scored = {name: float(np.mean(figures)) for name, figures in bounds.items()}
    return scored | {"agent_npv_usd": float(np.mean(agent))}


def pit_value(env: MineEnv) -> float:
    """Return what the ultimate pit is worth undiscounted, in $."""
    values = env.prepared.values
    return float(values[ultimate_pit(values, env.prepared.size_m)].sum())


def greedy_npv(env: MineEnv) -> float:
    """Return the best net present value of the simple rules inside the ultimate pit, in $."""
    deposit = env.prepared
    pit = np.arange(deposit.shape[2]) < deposit.pit_depths()[:, :, None]
    factors, size_m = env.discount_factors, deposit.size_m
    return best_greedy(deposit.values, pit, factors, start=deposit.surface(), size_m=size_m)[0]


def random_npv(env: MineEnv, rng: np.random.Generator, episodes: int | None = None) -> float:
    """Return the mean net present value of random schedules, in $."""
    if episodes is None:
        episodes = max(min(RANDOM_EPISODES, RANDOM_BLOCKS // env.blocks_to_mine), 1)
    npvs = [policy_npv(env, lambda _, mask: rng.choice(np.flatnonzero(mask)), look=False) for _ in range(episodes)]
    return float(np.mean([npv for npv in npvs if npv is not None]))


def policy_npv(env: MineEnv, predict: Predict, *, look: bool = True, time_limit_s: float | None = None) -> float | None:
    """Return the net present value of one episode of a policy in the present deposit, in $.

    Args:
        look: False: the policy does not look at the observation, which is then not kept up to date.
        time_limit_s: return None as soon as it is clear that the episode would take longer.
    """
    env.restart()
    unseen, began, steps = np.empty(0, np.float32), time.monotonic(), 0
    while True:
        action = predict(env.observe() if look else unseen, env.action_masks())
        _, terminated, truncated, info = env.mine(int(action))
        if terminated or truncated:
            return float(info["npv"])
        steps += 1
        if time_limit_s is not None and steps >= STEPS_TO_JUDGE:
            spent = time.monotonic() - began
            if spent * env.blocks_to_mine / steps > time_limit_s:
                return None
