"""The other direction: uses memory that is free, up to the budget and never past it.

An on-policy run gets more environments (more varied data per update), an off-policy run a larger replay buffer (older
experience stays); the backend says which. All of it changes what is learned, which is why nobody does it unasked.
"""

from collections.abc import Callable
from dataclasses import replace

from legroom.backends.base import backend_of
from legroom.fitting.changes import differences
from legroom.fitting.predictor import Predictor
from legroom.fitting.repairs import breaks_rules
from legroom.fitting.search import needed_in_all, relimited, unlimited
from legroom.model.plan import Growth, Plan, Turn
from legroom.model.run import Run
from legroom.model.verdict import fits

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
