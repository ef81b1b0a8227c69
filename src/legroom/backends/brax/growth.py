"""The most environments a brax PPO run can have: bounded by memory, and by how much data one update should see.

Memory alone would allow a hundred thousand small robots on a card. But `batch_size × num_minibatches` is a multiple of
the environments, so that they also bound the data of an update from below; and a training of a few giant updates learns
nothing. Both bounds are respected, and the table says which of them it was.

First come more environments with as many env steps per update as before (each plays fewer unrolls of one rollout); only
when every environment plays a single unroll, larger batches follow.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Literal

from legroom.backends.base import hyper
from legroom.backends.brax.constraints import INT32
from legroom.backends.brax.facts import env_steps_per_training_step, is_ppo
from legroom.fitting.ladders_learning import divisors_below
from legroom.fitting.predictor import Predictor
from legroom.fitting.repairs import breaks_rules
from legroom.fitting.search import needed_in_all
from legroom.fitting.settings import differences, with_settings
from legroom.model.plan import Plan, Turn
from legroom.model.run import Run
from legroom.model.verdict import fits

# Published trainings of thousands of robots update from some 100,000 steps; from there on, more data per update buys
# little but time. A run that is short has fewer: it needs updates at all.
MOST_STEPS_PER_UPDATE = 2**17
FEWEST_UPDATES = 100
BATCH_STEP = 32  # larger batches are multiples of it

Bound = Literal["memory", "env steps per update", "as asked"]


@dataclass(frozen=True)
class Grown:
    """The plan with as many environments as there may be, what bounds them, and what memory alone would allow."""

    plan: Plan
    bound: Bound
    cap: int
    by_memory: int


def steps_cap(run: Run, given: int | None = None) -> int:
    """Return how many env steps one update may learn from; never fewer than the run itself asks for."""
    if given is not None:
        return given
    most = MOST_STEPS_PER_UPDATE
    if run.total_timesteps is not None:
        most = min(most, run.total_timesteps // FEWEST_UPDATES)
    return max(most, env_steps_per_training_step(run))


def with_most_envs(plan: Plan, predictor: Predictor, *, cap: int | None = None) -> Grown:
    """Return a plan that fits with the environments that memory and the cap allow; as it is where it does not fit."""
    limit = steps_cap(plan.run, cap)
    if not plan.fits or plan.run.backend != "brax" or not is_ppo(plan.run):
        return Grown(plan, "as asked" if plan.fits else "memory", limit, plan.run.env.n_envs)

    def good(run: Run) -> bool:
        return not breaks_rules(run) and fits(predictor.footprint(run), plan.budget) is True

    same = _same_data(plan.run)
    at = _last_good(len(same), lambda n: good(same[n]))
    widest = same[at] if at >= 0 else plan.run
    if at < len(same) - 1:
        return Grown(_with_turn(plan, widest, predictor), "memory", limit, widest.env.n_envs)
    # every environment plays a single unroll: only larger batches make room for more of them
    by_memory = _last_good(_batches_below(widest, INT32), lambda n: good(_with_batch(widest, n)))
    allowed = _batches_below(widest, limit) - 1
    chosen = min(by_memory, allowed)
    grown = widest if chosen < 0 else _with_batch(widest, chosen)
    most = widest if by_memory < 0 else _with_batch(widest, by_memory)
    bound: Bound = "env steps per update" if allowed <= by_memory else "memory"
    return Grown(_with_turn(plan, grown, predictor), bound, limit, most.env.n_envs)


def _same_data(run: Run) -> list[Run]:
    """Return the run with more and more environments that leave the env steps of an update as they are."""
    segments = hyper(run, "batch_size") * hyper(run, "num_minibatches")
    more = (envs for envs in sorted((segments, *divisors_below(segments))) if envs > run.env.n_envs)
    return [with_settings(run, env={"n_envs": envs}) for envs in more]


def _with_batch(run: Run, number: int) -> Run:
    """Return the run with the `number`-th larger batch, counted from 0, and as many environments as segments."""
    batch = (hyper(run, "batch_size") // BATCH_STEP + 1 + number) * BATCH_STEP
    larger = with_settings(run, hyperparams={"batch_size": batch})
    return with_settings(larger, env={"n_envs": batch * hyper(run, "num_minibatches")})


def _batches_below(run: Run, limit: int) -> int:
    """Return how many larger batches there are whose update learns from at most so many env steps."""
    batch = hyper(run, "batch_size")
    each = env_steps_per_training_step(run) // batch
    return max(limit // each // BATCH_STEP - batch // BATCH_STEP, 0)


def _last_good(count: int, good: Callable[[int], bool]) -> int:
    """Return the last of `count` numbers that is good, by bisection (more never needs less); -1 where none is."""
    low, high = -1, count - 1
    while low < high:
        middle = (low + high + 1) // 2
        if good(middle):
            low = middle
        else:
            high = middle - 1
    return low


def _with_turn(plan: Plan, run: Run, predictor: Predictor) -> Plan:
    if run == plan.run:
        return plan
    after = predictor.footprint(run)
    before, now = env_steps_per_training_step(plan.run), env_steps_per_training_step(run)
    data = f"as many env steps per update ({now:,})" if now == before else f"{before:,} -> {now:,} env steps per update"
    turn = Turn(
        differences(plan.run, run), "changes-learning", f"more environments: {data}",
        needed_in_all(plan.after) - needed_in_all(after), after,
    )  # fmt: skip
    return replace(plan, run=run, after=after, turns=(*plan.turns, turn))
