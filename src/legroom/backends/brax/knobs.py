"""brax's knobs with their prices, the settings that each has for a run from the least turned to the most, and growing.

One makes the training step slower and leaves what is learned (`capture.py`). PPO's rollout is `batch_size ×
num_minibatches` unrolls, of however many environments, so that several knobs keep the data of an update.

Growing, memory alone would allow a hundred thousand small robots on a GPU. But `batch_size × num_minibatches` is a
multiple of the environments, so that they also bound the data of an update from below; and a training of a few giant
updates learns nothing. Both bounds are respected, and the table says which of them it was. First come more environments
with as many env steps per update as before (each plays fewer unrolls of one rollout); only when every environment plays
a single unroll, larger batches follow.
"""

import math
from bisect import bisect_left
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Literal

from legroom.backends.base import hyper
from legroom.backends.brax.constraints import INT32
from legroom.backends.brax.facts import LAYERS, env_steps_per_training_step, eval_envs_of, is_ppo
from legroom.fitting.changes import (
    breaks_rules,
    differences,
    divisors_below,
    halves,
    larger_replay,
    narrower_layers,
    one_setting,
    smaller_rings,
    with_settings,
)
from legroom.fitting.search import needed_in_all
from legroom.model.evidence import Evidence
from legroom.model.footprint import Footprint
from legroom.model.plan import Growth, Knob, MostEnvs, Plan, Turn
from legroom.model.run import EvalSpec, Run
from legroom.model.verdict import fits

no_preallocation = one_setting(
    lambda run, evidence: run.memory.xla_preallocate is None, memory={"xla_preallocate": False}
)


def fewer_evaluation_envs(run: Run, evidence: Evidence) -> Iterator[Run]:
    """Fewer environments that only evaluate: what is learned does not depend on them."""
    for fewer in halves(eval_envs_of(run)):
        if run.eval is None:
            yield run.replace(eval=EvalSpec(n_envs=fewer))
        else:
            yield with_settings(run, eval={"n_envs": fewer})


remat_of_the_loss = one_setting(
    lambda run, evidence: (
        is_ppo(run) and run.memory.activation_checkpointing is None and hyper(run, "unroll_length") > 1
    ),
    memory={"activation_checkpointing": True},
)


def fewer_envs_longer_rollouts(run: Run, evidence: Evidence) -> Iterator[Run]:
    """Fewer environments that each play longer: the same number of samples per update."""
    if is_ppo(run):
        yield from (with_settings(run, env={"n_envs": fewer}) for fewer in divisors_below(run.env.n_envs))


def fewer_envs(run: Run, evidence: Evidence) -> Iterator[Run]:
    """Fewer environments, and so less data per update; those of PPO keep the data (`fewer_envs_longer_rollouts`)."""
    if not is_ppo(run):
        yield from (with_settings(run, env={"n_envs": fewer}) for fewer in halves(run.env.n_envs))


def smaller_batch_more_minibatches(run: Run, evidence: Evidence) -> Iterator[Run]:
    """As many env steps per update, in more and smaller gradient steps."""
    if not is_ppo(run):
        return
    size, minibatches = hyper(run, "batch_size"), hyper(run, "num_minibatches")
    for fewer in halves(size):
        if size % fewer == 0:
            changed = {"batch_size": fewer, "num_minibatches": minibatches * size // fewer}
            yield with_settings(run, hyperparams=changed)


def smaller_batch(run: Run, evidence: Evidence) -> Iterator[Run]:
    """Noisier gradients: each step of the optimizer sees fewer samples."""
    if not is_ppo(run):
        yield from (with_settings(run, hyperparams={"batch_size": n}) for n in halves(hyper(run, "batch_size")))


def smaller_replay(run: Run, evidence: Evidence) -> Iterator[Run]:
    """Older experience is forgotten earlier."""
    if not is_ppo(run):
        size = hyper(run, "max_replay_size") or run.total_timesteps or 0
        least = max(hyper(run, "batch_size") or 1, run.env.n_envs, hyper(run, "min_replay_size") or 0)
        yield from smaller_rings(run, "max_replay_size", size, least)


def shorter_rollout(run: Run, evidence: Evidence) -> Iterator[Run]:
    """Shorter unrolls, then fewer minibatches per update, as far as the environments divide them."""
    if not is_ppo(run):
        return
    for length in halves(hyper(run, "unroll_length")):
        yield with_settings(run, hyperparams={"unroll_length": length})
    envs = run.env.n_envs
    step = envs // math.gcd(envs, hyper(run, "batch_size"))
    for minibatches in halves(hyper(run, "num_minibatches")):
        if minibatches % step == 0:
            yield with_settings(run, hyperparams={"unroll_length": 1, "num_minibatches": minibatches})


def smaller_network(run: Run, evidence: Evidence) -> Iterator[Run]:
    """Hidden layers of half the width, a quarter, ..."""
    kwargs = run.policy.kwargs
    yield from narrower_layers(run, {name: list(kwargs[name]) for name in LAYERS if name in kwargs})


# fmt: off
# the order within a price decides between knobs that buy the same
BRAX_KNOBS: tuple[Knob, ...] = (
    Knob("memory.xla_preallocate", "free", "bits",
         "XLA takes memory as it needs it, not three quarters of the GPU at the start", no_preallocation,
         counted=False),
    Knob("eval.n_envs", "free", "bits",
         "fewer environments that only evaluate; training never sees them", fewer_evaluation_envs),

    Knob("memory.activation_checkpointing", "slower", "rounding",
         "the loss's networks go over an unroll step by step, and each step again for the backward pass",
         remat_of_the_loss),

    Knob("env.n_envs", "changes-learning", "",
         "fewer environments that each play longer: as many samples per update, less varied",
         fewer_envs_longer_rollouts),
    Knob("hyperparams.batch_size", "changes-learning", "",
         "as many env steps per update, in more and smaller gradient steps, which are noisier",
         smaller_batch_more_minibatches),
    Knob("hyperparams.batch_size", "changes-learning", "",
         "gradients of fewer samples are noisier, and there are more steps per update", smaller_batch),
    Knob("hyperparams.max_replay_size", "changes-learning", "",
         "older experience is forgotten earlier", smaller_replay, starts_over=True),
    Knob("hyperparams.unroll_length", "changes-learning", "",
         "less data per update, and returns estimated over shorter stretches", shorter_rollout),
    Knob("env.n_envs", "changes-learning", "",
         "fewer environments, and so less data per update", fewer_envs),
    Knob("policy.kwargs.policy_hidden_layer_sizes", "changes-learning", "",
         "narrower hidden layers can represent less", smaller_network,
         also=tuple(f"policy.kwargs.{name}" for name in LAYERS[1:]), starts_over=True),
)
# fmt: on


def with_free_savings(run: Run, evidence: Evidence) -> Run:
    """Return the run without XLA's preallocation, which serves nobody and hides what is needed, where it has a card."""
    return next(no_preallocation(run, evidence), run) if evidence.device == "cuda" else run


def keeps_data_per_update(before: Run, after: Run) -> bool:
    """Return whether one update learns from as many env steps as before, with the same networks."""
    same = env_steps_per_training_step(before) == env_steps_per_training_step(after)
    return same and before.policy == after.policy


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
    return bisect_left(range(count), True, key=lambda number: not good(number)) - 1


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
