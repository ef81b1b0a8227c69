"""One plan per size of GPU: what a run would be on cards of 8, 12, 16 ... GB, each row proven like any other plan."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from legroom.fitting.grow import grown
from legroom.fitting.predictor import Predictor
from legroom.fitting.search import fit
from legroom.model.facts import hyper
from legroom.model.plan import Plan
from legroom.model.run import Run
from legroom.model.stored import batch_samples, rollout_samples
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


def tiers(sizes_gb: Sequence[float], budget: Budget, predictor: Predictor, *, grow: bool = False) -> Iterator[Tier]:
    """Yield a tier per size, smallest first; a card of 8 GB is taken to have 8 GiB, as its maker counts."""
    for size in sorted(sizes_gb):
        vram = int(size * GIB)
        plan = fit(predictor.run, replace(budget, vram=vram, vram_origin="given"), predictor)
        if grow:
            plan = grown(plan, predictor)
        micro = plan.run.memory.micro_batch
        yield Tier(
            vram, plan, plan.run.env.n_envs, batch_of(plan.run), minibatches_of(plan.run),
            micro if isinstance(micro, int) else None,
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
