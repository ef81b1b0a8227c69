"""Several plans side by side, each proven like any other: the questions people ask before any knob.

One plan per size of GPU: what a run would be on cards of 8, 12, 16 ... GB. Or one per named run of a workload, largest
first: which of them a machine can train.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from legroom.backends.base import backend_of
from legroom.fitting.changes import breaks_rules, differences
from legroom.fitting.predictor import Predictor
from legroom.fitting.search import fit, needed_in_all, relimited, unlimited
from legroom.model.footprint import Footprint
from legroom.model.plan import SAME_LEARNING, Growth, MostEnvs, Plan, Turn
from legroom.model.run import Run
from legroom.model.verdict import Budget, fits
from legroom.named_runs import find_workload
from legroom.units import GIB

LARGEST_FACTOR = 2**16
ENOUGH = 0.9  # of the budget: what is left is not worth another change


def grown(plan: Plan, predictor: Predictor) -> Plan:
    """Return the plan with the free memory used; as it is where it does not fit, or nothing can grow."""
    if not plan.fits:
        return plan
    first = plan

    def fitting(run: Run) -> Run | None:
        made = relimited(run, predictor, first.budget)
        return made if fits(predictor.footprint(made), first.budget) is True else None

    ways_to_grow = backend_of(plan.run).fitter.ways_to_grow
    for number in range(len(ways_to_grow(plan.run))):
        if _used(plan) >= ENOUGH:
            break
        way = ways_to_grow(unlimited(plan.run, predictor))[number]
        best = largest(way, fitting, tries=12 if predictor.mode == "arithmetic" else 8)
        if best is None or best == plan.run:
            continue
        after = predictor.footprint(best)
        saved = needed_in_all(plan.after) - needed_in_all(after)
        turn = Turn(differences(plan.run, best), "changes-learning", way.say, saved, after)
        notes = (*plan.notes, way.bound) if way.bound else plan.notes
        plan = replace(plan, run=best, after=after, turns=(*plan.turns, turn), notes=notes)
    if plan is first:
        return replace(plan, notes=(*plan.notes, "no setting of this run can use the free memory"))
    return plan


def largest(way: Growth, fitting: Callable[[Run], Run | None], *, tries: int = 12) -> Run | None:
    """Return the largest variant that fits, by doubling and then bisection; None where no larger one does.

    Args:
        fitting: returns a variant as it fits, None where it does not.
    """

    def good(factor: float) -> Run | None:
        made = way.larger(factor)
        return None if made is None or breaks_rules(made) else fitting(made)

    low, best, high = 1.0, None, 2.0
    while high <= LARGEST_FACTOR and (made := good(high)) is not None:
        low, best, high = high, made, 2 * high
    for _ in range(tries):
        middle = (low + high) / 2
        made = good(middle)
        if made is None:
            high = middle
        else:
            low, best = middle, made
    return best


def _used(plan: Plan) -> float:
    """Return the share of the budget in use, of the place that is fullest."""
    pairs = [(plan.after.host.high, plan.budget.ram), (plan.after.gpu.high if plan.after.gpu else 0, plan.budget.vram)]
    return max(high / plan.budget.usable(limit) for high, limit in pairs if limit)


@dataclass(frozen=True)
class Tier:
    """The plan for one size of card, or for one card, and what people look at first."""

    vram: int
    plan: Plan
    batch: int
    minibatches: int | None
    most: MostEnvs | None  # of runs that get all environments that a card has room for, what bounds them
    card: str = ""  # its name; empty where only its memory is given

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
        yield tier(int(size * GIB), budget, predictor, grow=grow, most_steps=most_steps)


def tier(
    vram: int, budget: Budget, predictor: Predictor, *, grow: bool = False, most_steps: int | None = None,
    card: str = "",
) -> Tier:  # fmt: skip
    """Return the tier of one card; `predictor` predicts for it."""
    plan = fit(predictor.run, replace(budget, vram=vram, vram_origin=f"of a {card}" if card else "given"), predictor)
    most = backend_of(plan.run).fitter.with_most_envs(plan, predictor.footprint, most_steps)
    if most is not None:
        plan = most.plan
    elif grow:
        plan = grown(plan, predictor)
    return Tier(vram, plan, *backend_of(plan.run).fitter.gradient_step(plan.run), most, card)


@dataclass(frozen=True)
class Named:
    """A named run beside the budget: as it is written, and with what costs nothing."""

    run: Run
    footprint: Footprint
    fits: bool
    freely: Footprint
    fits_freely: bool


@dataclass(frozen=True)
class Recommendation:
    """What a machine can train of a workload."""

    named: tuple[Named, ...]  # its runs beside the budget, in their order
    # the first that fits with the learning it is written for (`until_one_fits`); None where none does
    chosen: Run | None
    passed: tuple[str, ...]  # the runs before it, which fit only with another learning
    plan: Plan  # the workload's default run, made to fit with all knobs
    shown: Plan  # the plan of the chosen run; where none was chosen, `plan`


def in_order(workload: str, runs: Iterable[Run]) -> list[Run]:
    """Return a workload's runs with its default first, without those that are another training than it."""
    known = find_workload(workload)
    default = f"{workload}:{known.default}" if known is not None else ""
    apart = {f"{workload}:{run}" for run in known.apart} if known is not None else set()
    return sorted((run for run in runs if run.name not in apart), key=lambda run: run.name != default)


def until_one_fits(
    runs: Iterable[Run], look: Callable[[Run], Predictor], budget: Budget
) -> Iterator[tuple[Run, Plan, bool]]:
    """Yield each run, what becomes of it by knobs that leave its learning alone, and whether to take it: the last one.

    A workload's runs are one idea in several sizes, the default at the head. Smaller pieces of a minibatch are better
    than a smaller network; where no knob of that kind is left, the next smaller run is better than the larger one with
    a changed learning. One that nobody can tell about is taken: it may fit.

    Args:
        look: predicts a run; not asked for those after the one that is taken.
    """
    for run in runs:
        predictor = look(run)
        freely = predictor.freely()
        footprint = predictor.footprint(freely)
        fitting = fits(footprint, budget)
        if fitting is False:
            plan = fit(freely, budget, predictor, allow=SAME_LEARNING)
        else:
            plan = Plan(freely, freely, footprint, footprint, budget, fitting is True)
        taken = plan.fits or fitting is not False
        yield run, plan, taken
        if taken:
            return


def recommend(predictors: Mapping[str, Predictor], order: Sequence[Run], budget: Budget) -> Recommendation:
    """Return which of the runs to train, and what the knobs would make of the default one, the first in `order`.

    Raises:
        BadInput: a run breaks a rule of its library that no knob mends, or the GPU's size is not known.
    """
    named = tuple(_beside(predictor, budget) for predictor in predictors.values())
    default = predictors[order[0].name]
    passed, shown = first_that_fits(predictors, order, budget)
    plan = fit(default.run, budget, default)
    return Recommendation(named, None if shown is None else shown.asked, passed, plan, shown or plan)


def first_that_fits(
    predictors: Mapping[str, Predictor], order: Sequence[Run], budget: Budget
) -> tuple[tuple[str, ...], Plan | None]:
    """Return the names of the runs that do not fit as they learn, and the plan of the first that does, if one does."""
    *passed, (run, _, taken) = until_one_fits(order, lambda run: predictors[run.name], budget)
    names = tuple(each.name for each, _, _ in passed)
    if not taken:
        return (*names, run.name), None
    chosen = predictors[run.name]
    return names, fit(chosen.run, budget, chosen, allow=SAME_LEARNING)


def _beside(predictor: Predictor, budget: Budget) -> Named:
    run = predictor.run
    footprint, freely = predictor.footprint(run), predictor.footprint(predictor.freely())
    return Named(run, footprint, fits(footprint, budget) is True, freely, fits(freely, budget) is True)
