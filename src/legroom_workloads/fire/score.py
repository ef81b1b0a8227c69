"""Judge a policy by landscapes that it has not been trained on, beside players that have learnt nothing.

Training generates landscapes from seeds of its own; here they come from seeds far from all of those. Every player gets
the same landscapes, winds and ignitions, so that a comparison is of pairs, and its standard error is that of the
differences: landscapes differ from each other by more than players do.

All figures are of burned area as a share of what burns without breaks, over held-out landscapes.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from legroom_workloads.fire import heuristic
from legroom_workloads.fire.env import FireEnv

Predict = Callable[[Any, None], Any]
HELD_OUT_SEED = 1_000_000  # the first of the generator's; a run trains on those below
LANDSCAPES = 50
FIRES = 25  # that a judgement lights in each landscape
PLAYERS: dict[str, Callable[[FireEnv, np.random.Generator], heuristic.Player]] = {
    "random": heuristic.anywhere,
    "once": lambda env, rng: heuristic.betweenness(env, rng, every_step=False),
    "every_step": heuristic.betweenness,
    "lines": heuristic.lines,
}


def score_policy(
    predict: Predict,
    env_kwargs: Mapping[str, Any] | None = None,
    landscapes: int = LANDSCAPES,
    *,
    time_limit_s: float | None = None,
) -> dict[str, float]:
    """Return how much less burns with the policy's breaks, and with those of others, on the same landscapes.

    `reduction`, of the burned area against none being cut, and the same for the players: `random_reduction`, the
    betweenness heuristic `once_reduction` and `every_step_reduction`, `lines_reduction`. Against each of them
    `less_than_random` and so on: by what share less burns than with theirs, and `less_than_random_se`, its standard
    error over landscapes. `landscapes`, of how many; `wasted`, breaks per landscape that changed nothing.

    Args:
        predict: from an observation and None, in the place of an action mask, to an action.
        env_kwargs: of the FireEnv that the policy was trained for.
        time_limit_s: judge by fewer landscapes where they would take longer; nothing is returned where not one ends.

    Raises:
        BadInput: arguments that the environment refuses.
    """
    kwargs = {**(env_kwargs or {}), "sims": FIRES, "copy": True}
    if not isinstance(kwargs.get("rasters"), str):  # somebody's own tiles are all there is
        kwargs |= {"rasters": landscapes, "first_raster": HELD_OUT_SEED}
    env = FireEnv(**kwargs)
    burned: dict[str, list[float]] = {name: [] for name in ("policy", *PLAYERS)}
    wasted: list[float] = []
    began = time.monotonic()
    for number in range(landscapes):
        if time_limit_s is not None and number and (time.monotonic() - began) * (number + 1) / number > time_limit_s:
            break
        last = _episode(env, number, predict)
        if last["burned_before"] == 0:
            continue  # nothing burns there: nothing to compare
        wasted.append(last["wasted"])
        burned["policy"].append(last["burned"] / last["burned_before"])
        for name, make in PLAYERS.items():
            burned[name].append(_burned_with(env, number, make) / last["burned_before"])
    if not wasted:
        return {}
    shares = {name: np.array(each) for name, each in burned.items()}
    figures = {"reduction": 1.0 - float(shares["policy"].mean())}
    for name in PLAYERS:
        figures[f"{name}_reduction"] = 1.0 - float(shares[name].mean())
        figures[f"less_than_{name}"], figures[f"less_than_{name}_se"] = _saved(shares["policy"], shares[name])
    return {**figures, "wasted": float(np.mean(wasted)), "landscapes": float(len(wasted))}


def _begin(env: FireEnv, number: int) -> NDArray[np.float32]:
    """Begin the episode of that number, the same for everybody, and return what is seen."""
    return env.reset(seed=HELD_OUT_SEED + number, options={"raster": number % len(env.landscapes)})[0]


def _episode(env: FireEnv, number: int, predict: Predict) -> dict[str, Any]:
    """Return the last info of the policy's episode."""
    seen = _begin(env, number)
    while True:
        seen, _, ended, _, info = env.step(predict(seen, None))
        if ended:
            return info


def _burned_with(env: FireEnv, number: int, make: Callable[[FireEnv, np.random.Generator], heuristic.Player]) -> float:
    """Return how many cells burn on average with a player's breaks.

    A player looks at the landscape and never at the fires, so those are lit once, when all breaks have been cut.
    """
    _begin(env, number)
    player = make(env, np.random.default_rng([number, HELD_OUT_SEED]))
    left = env.budget
    while left > 0 and env.action_masks().any():
        env.breaks.ravel()[player()[:left]] = True
        left -= env.breaks_per_step
    return float(env.burn_probability().sum())


def _saved(policy: NDArray[np.float64], other: NDArray[np.float64]) -> tuple[float, float]:
    """Return by what share less burns with the policy than with the other, and its standard error.

    The share is a ratio of means. Its error is that of the residuals of pairs, as usual for such a ratio.
    """
    if other.mean() == 0:
        return 0.0, 0.0
    ratio = policy.mean() / other.mean()
    residuals = policy - ratio * other
    error = residuals.std(ddof=1) / np.sqrt(len(policy)) / other.mean() if len(policy) > 1 else 0.0
    return float(1.0 - ratio), float(error)
