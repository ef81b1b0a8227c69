"""One plan per size of GPU: what a run would be on cards of 8, 12, 16 ... GB, each row proven like any other plan."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from legroom.backends.base import hyper
from legroom.backends.brax.facts import env_steps_per_training_step, is_ppo
from legroom.backends.brax.growth import with_most_envs
from legroom.backends.sb3.stored import batch_samples, rollout_samples
from legroom.fitting.grow import grown
from legroom.fitting.predictor import Predictor
from legroom.fitting.search import fit
from legroom.model.plan import Plan
from legroom.model.run import Run
from legroom.model.verdict import Budget
from legroom.units import GIB


@dataclass(frozen=True)
class Tier:
    """The plan for one size of card, and what people look at first."""

    vram: int
    plan: Plan
    n_envs: int
    batch: int
    minibatches: int | None
    micro_batch: int | None
    steps_per_update: int | None = None  # brax PPO: env steps that one update learns from
    bound: str = ""  # brax PPO: what keeps it from having more environments
    cap: int | None = None  # brax PPO: env steps that one update may learn from
    by_memory: int | None = None  # brax PPO: the environments that memory alone would allow


def tiers(
    sizes_gb: Sequence[float],
    budget: Budget,
    predictor: Predictor,
    *,
    grow: bool = False,
    most_steps: int | None = None,
) -> Iterator[Tier]:
    """Yield a tier per size, smallest first; a card of 8 GB is taken to have 8 GiB, as its maker counts.

    Args:
        grow: use what is free; brax PPO always gets the environments that there is room for, which its cards are for.
        most_steps: env steps that one update of brax PPO may learn from; None: `brax_growth.steps_cap`.
    """
    for size in sorted(sizes_gb):
        vram = int(size * GIB)
        plan = fit(predictor.run, replace(budget, vram=vram, vram_origin="given"), predictor)
        extra: tuple[int | None, str, int | None, int | None] = (None, "", None, None)
        if plan.run.backend == "brax" and is_ppo(plan.run):
            most = with_most_envs(plan, predictor, cap=most_steps)
            plan = most.plan
            extra = env_steps_per_training_step(plan.run), most.bound, most.cap, most.by_memory
        elif grow:
            plan = grown(plan, predictor)
        micro = plan.run.memory.micro_batch
        yield Tier(
            vram, plan, plan.run.env.n_envs, batch_of(plan.run), minibatches_of(plan.run),
            micro if isinstance(micro, int) else None, *extra,
        )  # fmt: skip


def batch_of(run: Run) -> int:
    """Return the samples (for brax: trajectory segments) of one gradient step."""
    return int(hyper(run, "batch_size")) if run.backend == "brax" else batch_samples(run)


def minibatches_of(run: Run) -> int | None:
    """Return how many gradient steps go over one rollout; None where there is no rollout."""
    if run.backend == "brax":
        return hyper(run, "num_minibatches") if run.algo.upper() == "PPO" else None
    if "n_epochs" not in run.hyperparams and hyper(run, "n_epochs") is None:
        return None
    return -(-rollout_samples(run) // batch_samples(run))
