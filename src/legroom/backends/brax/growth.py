"""The most environments a brax PPO run can have: bounded by memory, and by how much data one update should see.

Memory alone would allow a hundred thousand small robots on a card. But `batch_size × num_minibatches` is a multiple of
the environments, so that they also bound the data of an update from below; and a training of a few giant updates learns
nothing. Both bounds are respected, and the table says which of them it was.

First come more environments with as many env steps per update as before (each plays fewer unrolls of one rollout); only
when every environment plays a single unroll, larger batches follow.
"""

from collections.abc import Callable
from dataclasses import replace
from typing import Literal

from legroom.backends.base import hyper
from legroom.backends.brax.constraints import INT32
from legroom.backends.brax.facts import env_steps_per_training_step, is_ppo
from legroom.fitting.changes import differences, divisors_below, larger_replay, with_settings
from legroom.fitting.repairs import breaks_rules
from legroom.fitting.search import needed_in_all
from legroom.model.footprint import Footprint
from legroom.model.plan import Growth, MostEnvs, Plan, Turn
from legroom.model.run import Run
from legroom.model.verdict import fits

# Published trainings of thousands of robots update from some 100,000 steps; from there on, more data per update buys
# little but time. A run that is short has fewer: it needs updates at all.
MOST_STEPS_PER_UPDATE = 2**17
FEWEST_UPDATES = 100
BATCH_STEP = 32  # larger batches are multiples of it


def steps_cap(run: Run, given: int | None = None) -> int:
    """Return how many env steps one update may learn from; never fewer than the run itself asks for."""
    if given is not None:
        return given
    most = MOST_STEPS_PER_UPDATE
    if run.total_timesteps is not None:
        most = min(most, run.total_timesteps // FEWEST_UPDATES)
    return max(most, env_steps_per_training_step(run))


def with_most_envs(plan: Plan, footprint: Callable[[Run], Footprint], cap: int | None = None) -> MostEnvs:
    """Return a plan that fits with the environments that memory and the cap allow; as it is where it does not fit."""
    limit = steps_cap(plan.run, cap)

    def good(run: Run) -> bool:
        return not breaks_rules(run) and fits(footprint(run), plan.budget) is True

    def most(run: Run, bound: Literal["memory", "env steps per update"], by_memory: int) -> MostEnvs:
        grown = _with_turn(plan, run, footprint)
        return MostEnvs(grown, bound, env_steps_per_training_step(run), limit, by_memory)

    if not plan.fits:
        return most(plan.run, "memory", plan.run.env.n_envs)
    same = _same_data(plan.run)
    at = _last_good(len(same), lambda n: good(same[n]))
    widest = same[at] if at >= 0 else plan.run
    if at < len(same) - 1:
        return most(widest, "memory", widest.env.n_envs)
    # every environment plays a single unroll: only larger batches make room for more of them
    by_memory = _last_good(_batches_below(widest, INT32), lambda n: good(_with_batch(widest, n)))
    allowed = _batches_below(widest, limit) - 1
    chosen = min(by_memory, allowed)
    grown = widest if chosen < 0 else _with_batch(widest, chosen)
    largest = widest if by_memory < 0 else _with_batch(widest, by_memory)
    return most(grown, "env steps per update" if allowed <= by_memory else "memory", largest.env.n_envs)


def ways_to_grow(run: Run) -> tuple[Growth, ...]:
    """Return what can be made larger: PPO's environments and batches together, SAC's replay buffer."""
    if not is_ppo(run):
        return (larger_replay(run, "max_replay_size"),)
    cap = steps_cap(run)
    bound = f"one update learns from at most {cap:,} env steps"
    say = "more environments and as many more samples per step"
    return (Growth(say, lambda factor: _more_robots(run, int(factor), cap), bound),)


def _more_robots(run: Run, times: int, cap: int) -> Run | None:
    larger = with_settings(run, hyperparams={"batch_size": hyper(run, "batch_size") * times})
    more = with_settings(larger, env={"n_envs": run.env.n_envs * times})
    return more if env_steps_per_training_step(more) <= cap else None


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
    batch = int(hyper(run, "batch_size"))
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


def _with_turn(plan: Plan, run: Run, footprint: Callable[[Run], Footprint]) -> Plan:
    if run == plan.run:
        return plan
    after = footprint(run)
    before, now = env_steps_per_training_step(plan.run), env_steps_per_training_step(run)
    data = f"as many env steps per update ({now:,})" if now == before else f"{before:,} -> {now:,} env steps per update"
    turn = Turn(
        differences(plan.run, run), "changes-learning", f"more environments: {data}",
        needed_in_all(plan.after) - needed_in_all(after), after,
    )  # fmt: skip
    return replace(plan, run=run, after=after, turns=(*plan.turns, turn))
