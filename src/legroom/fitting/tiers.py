"""One plan per size of GPU: what a run would be on cards of 8, 12, 16 ... GB, each row proven like any other plan."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from legroom.backends.base import backend_of
from legroom.fitting.grow import grown
from legroom.fitting.predictor import Predictor
from legroom.fitting.search import fit
from legroom.model.plan import MostEnvs, Plan
from legroom.model.verdict import Budget
from legroom.units import GIB


@dataclass(frozen=True)
class Tier:
    """The plan for one size of card, and what people look at first.

    Args:
        most: of runs that get all environments that a card has room for, what bounds them.
    """

    vram: int
    plan: Plan
    batch: int
    minibatches: int | None
    most: MostEnvs | None

    @property
    def n_envs(self) -> int:
        return self.plan.run.env.n_envs

    @property
    def micro_batch(self) -> int | None:
        micro = self.plan.run.memory.micro_batch
        return micro if isinstance(micro, int) else None


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
        grow: use what is free; `Backend.with_most_envs` is asked in any case.
        most_steps: env steps that one update may learn from, for runs that get all environments there is room for.
    """
    for size in sorted(sizes_gb):
        vram = int(size * GIB)
        plan = fit(predictor.run, replace(budget, vram=vram, vram_origin="given"), predictor)
        most = backend_of(plan.run).with_most_envs(plan, predictor.footprint, most_steps)
        if most is not None:
            plan = most.plan
        elif grow:
            plan = grown(plan, predictor)
        yield Tier(vram, plan, *backend_of(plan.run).gradient_step(plan.run), most)
