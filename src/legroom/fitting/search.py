"""fit(run, budget) -> Plan: turns knobs in order of price, as little as needed, and proves the result by predicting it.

Greedy within a price: the knob that takes most off what is over the budget is turned first, only as far as needed; if
all of it does not suffice, it stays and the next one follows. Once the run fits, every turned knob is tried again with
less, the dearest first, because a later one may have made it unnecessary. When greed ends without a fit, combinations
of knobs at rest and fully turned are tried before anyone is told that nothing fits; those that another one beats in
every phase of every place are not followed further.

What is over the budget is summed over phases: two phases that are both too large need two knobs, and a peak alone would
not show what the first one bought.
"""

from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from typing import Literal

from legroom.backends.base import backend_of
from legroom.errors import BadInput, Unknown
from legroom.fitting.changes import Mend, breaks_rules, differences, repaired, with_changes, with_settings
from legroom.fitting.predictor import Predictor
from legroom.model.footprint import HOST_PLACES, Footprint, Phase, Place
from legroom.model.plan import PRICES, Change, Knob, Plan, Price, Turn
from legroom.model.run import Run
from legroom.model.verdict import Budget, fits, refused_array
from legroom.plugins import plugged_knobs
from legroom.units import MIB, format_size

WORTH_TURNING = 1e-4  # of the budget: less is noise of the prediction
MOST_COMBINATIONS = 4_096
MOST_TRACED = 6
ARITHMETIC_MAY_ERR = 1.4  # times the budget: beyond that no trace would find that it fits after all


@dataclass(frozen=True)
class KnobStep:
    """A knob on its way: what it changed of the run before it."""

    knob: Knob
    price: Price
    changes: tuple[Change, ...]


def refuse_unfittable(*runs: Run) -> None:
    """Refuse runs whose memory is in several processes that a library divides: no knob knows those settings.

    Raises:
        BadInput: with the command that says what such a run needs.
    """
    for run in runs:
        if (backend := backend_of(run)).spreads:
            what = f"fit cannot change {backend.title}'s settings"
            raise BadInput(what, path=run.source, hint=f"legroom predict says what {run.name} needs")


def fit(
    run: Run, budget: Budget, predictor: Predictor, *, allow: Collection[Price] = PRICES, begun: bool = False
) -> Plan:
    """Return the plan that makes the run fit with as little as needed, or says what would be needed.

    Args:
        run: with its spaces, as `predictor.run`.
        allow: the prices that may be paid.
        begun: whether it has learned something already, which has to stay of use.

    Raises:
        BadInput: the run breaks a rule of its library that no knob mends, the GPU's size is not known, or the run
            cannot be fitted.
        Unknown: what its networks take is a guess, or its environment was not built.
    """
    refuse_unfittable(run)
    if predictor.device == "cuda" and budget.vram is None:
        raise BadInput("the GPU's memory is not known", hint="--vram 8GiB, or --gpu NAME")
    _refuse_guesses(run, budget, predictor)
    mended, repairs = repaired(run)
    search = _Search(budget, predictor, begun=begun)
    look = search.exhaust if search.is_hopeless(mended, allow) else search.cheapest
    fitted, steps = look(mended, allow)
    if not search.fits(fitted) and not search.hopeless:
        tried, others = search.exhaust(mended, allow)
        if search.fits(tried) or search.over(tried) < search.over(fitted) - WORTH_TURNING:
            fitted, steps = tried, others
    needed = {} if search.fits(fitted) else _needs(predictor.footprint(fitted))
    if search.fits(fitted):
        unmended, turned = _replayed(run, steps), steps
        steps = search.loosened(mended, turned)
        if repairs and not breaks_rules(unmended) and search.fits(unmended):
            without = search.loosened(run, turned)
            if len(without) < len(repairs) + len(steps):  # a knob has changed what was to be mended
                mended, repairs, steps = run, [], without
        fitted = _replayed(mended, steps)
        fitted, steps = _with_storage_limit(fitted, steps, predictor, budget)
    if search.fits(fitted) and predictor.looks_closer(fitted) and not search.fits(fitted):
        return fit(run, budget, predictor, allow=allow, begun=begun)
    _refuse_guesses(fitted, budget, predictor)
    before = predictor.footprint(run)
    turns = _turns(run, repairs, steps, predictor)
    after = predictor.footprint(fitted)
    notes = _uncounted(fitted, predictor)
    if fitted.memory.max_bytes is not None and not after.band(Phase.UPDATE, (Place.DISK,)).high:
        notes = (*notes, f"lean storage beyond {format_size(fitted.memory.max_bytes)} would go to disk")
    if needed and search.unfinished:
        notes = (*notes, f"only the {MOST_COMBINATIONS:,} most promising combinations were tried")
    return Plan(run, fitted, before, after, budget, search.fits(fitted), turns, needed, notes)


def _refuse_guesses(run: Run, budget: Budget, predictor: Predictor) -> None:
    """Raise Unknown where the run would fit if the guess at its networks were right, or its environment took none."""
    footprint = predictor.footprint(run)
    reasons = predictor.unknown or tuple(filter(None, (footprint.not_built,)))
    if reasons and fits(footprint, budget) is None:
        raise Unknown(run.name, reasons, path=run.source)


class _Search:
    """One budget, one predictor, and what has been found out with them."""

    def __init__(self, budget: Budget, predictor: Predictor, *, begun: bool) -> None:
        self.budget, self.predictor, self.begun = budget, predictor, begun
        knobs = (*backend_of(predictor.run).fitter.knobs, *plugged_knobs())
        self.knobs = tuple(knob for knob in knobs if not (begun and knob.starts_over))
        self.unfinished = False  # there were more combinations than could be tried
        self.hopeless = False
        self._rough: list[tuple[Run, list[KnobStep]]] | None = None

    def fits(self, run: Run) -> bool:
        return fits(replace(self.predictor.footprint(run), not_built=""), self.budget) is True

    def over(self, run: Run) -> float:
        """Return by how much the run exceeds the budget: in budgets, all phases together."""
        return excess(self.predictor.footprint(run), self.budget)

    def cheapest(self, run: Run, allow: Collection[Price]) -> tuple[Run, list[KnobStep]]:
        """Return the run with knobs turned by greed, cheapest price first, until it fits or none helps."""
        steps: list[KnobStep] = []
        for price in PRICES:
            if price not in allow:
                continue
            left = list(self.knobs)
            while not self.fits(run):
                step = self._best(run, price, left)
                if step is None:
                    break
                left = [knob for knob in left if knob is not step.knob]
                steps.append(step)
                run = with_changes(run, step.changes)
            if self.fits(run):
                break
        return run, steps

    def _best(self, run: Run, price: Price, knobs: Sequence[Knob]) -> KnobStep | None:
        """Return the knob of this price that buys most, turned as little as needed; None where none buys anything."""
        ladders = {}
        for knob in knobs:
            if knob.price_for(run, self.predictor.evidence(run)) == price:
                ladder = self._rungs(knob, run)
                if ladder:
                    ladders[knob] = ladder
        self.predictor.prepare(ladder[-1] for ladder in ladders.values())
        now = self.over(run)
        bought = {knob: now - self.over(ladder[-1]) for knob, ladder in ladders.items()}
        if not bought or max(bought.values()) <= WORTH_TURNING:
            return None
        bought = _keeping_data(run, ladders, bought)
        knob = max(bought, key=lambda each: bought[each])
        return KnobStep(knob, price, differences(run, self._least(ladders[knob])))

    def _rungs(self, knob: Knob, run: Run) -> list[Run]:
        """Return the knob's settings that the library accepts."""
        return [each for each in knob.ladder(run, self.predictor.evidence(run)) if not breaks_rules(each)]

    def _least(self, ladder: Sequence[Run]) -> Run:
        """Return the first setting that fits, by bisection; the one that comes nearest where none does."""
        self.predictor.prepare(ladder)
        if not self.fits(ladder[-1]):
            return min(ladder, key=self.over)
        low, high = 0, len(ladder) - 1
        while low < high:
            middle = (low + high) // 2
            if self.fits(ladder[middle]):
                high = middle
            else:
                low = middle + 1
        return ladder[high]

    def loosened(self, run: Run, steps: list[KnobStep]) -> list[KnobStep]:
        """Return the steps with each taken back as far as the others allow, the dearest first."""
        while (looser := self._loosened_once(run, steps)) != steps:  # room that one gives back may free another
            steps = looser
        return steps

    def _loosened_once(self, run: Run, steps: list[KnobStep]) -> list[KnobStep]:
        kept = list(steps)
        for step in sorted(steps, key=lambda each: PRICES.index(each.price), reverse=True):
            at = kept.index(step)
            others = [*kept[:at], *kept[at + 1 :]]
            without = _replayed(run, others)
            self.predictor.prepare([without])
            if self.fits(without) and not breaks_rules(without):
                kept = others
                continue
            kept = self._looser(run, kept, at)
        return kept

    def _looser(self, run: Run, steps: list[KnobStep], at: int) -> list[KnobStep]:
        """Return the steps with the one at this place turned only as far as the others need it to be."""
        before = _replayed(run, steps[:at])
        tries = []
        for rung in self._rungs(steps[at].knob, before):
            changes = differences(before, rung)
            if changes == steps[at].changes:
                break
            tries.append([*steps[:at], replace(steps[at], changes=changes), *steps[at + 1 :]])
        self.predictor.prepare(_replayed(run, each) for each in tries)
        for each in tries:
            variant = _replayed(run, each)
            if self.fits(variant) and not breaks_rules(variant):
                return each
        return steps

    def exhaust(self, run: Run, allow: Collection[Price]) -> tuple[Run, list[KnobStep]]:
        """Return a fit among combinations of knobs at rest and fully turned, else the nearest to one.

        Tracing them all would take minutes: arithmetic says which of them are worth it.
        """
        if self.predictor.mode == "arithmetic":
            found = self._combinations(run, allow)
        else:
            found = self._roughly(run, allow)[:MOST_TRACED]
            self.predictor.prepare(each for each, _ in found)
        return min(found, key=lambda each: (self.over(each[0]), len(each[1])))

    def is_hopeless(self, run: Run, allow: Collection[Price]) -> bool:
        """Return whether even by rough arithmetic no combination comes near: no need to trace every step on the way."""
        if self.predictor.mode != "arithmetic":
            rough, roomier = self.predictor.by_arithmetic(), _roomier(self.budget)
            self.hopeless = all(fits(rough.footprint(each), roomier) is False for each, _ in self._roughly(run, allow))
        return self.hopeless

    def _roughly(self, run: Run, allow: Collection[Price]) -> list[tuple[Run, list[KnobStep]]]:
        """Return combinations as arithmetic sees them, the most promising first."""
        if self._rough is None:
            rough = _Search(self.budget, self.predictor.by_arithmetic(), begun=self.begun)
            self._rough = sorted(rough._combinations(run, allow), key=lambda each: rough.over(each[0]))
            self.unfinished = rough.unfinished
        return self._rough

    def _combinations(self, run: Run, allow: Collection[Price]) -> list[tuple[Run, list[KnobStep]]]:
        useful = [knob for knob in self.knobs if self._price(knob, run) in allow]
        found: list[tuple[Run, list[KnobStep]]] = [(run, [])]
        for knob in (*useful, *useful):  # twice: what one knob leaves may let an earlier one go further
            for variant, steps in list(found):
                ladder = self._rungs(knob, variant)
                if ladder and len(found) >= MOST_COMBINATIONS:
                    self.unfinished = True
                elif ladder:
                    step = KnobStep(knob, self._price(knob, variant), differences(variant, ladder[-1]))
                    found.append((ladder[-1], [*steps, step]))
            found = self._promising(found)
        return found

    def _promising(self, found: list[tuple[Run, list[KnobStep]]]) -> list[tuple[Run, list[KnobStep]]]:
        """Return the combinations that no other one beats in every phase of every place."""
        scored = [(_highs(self.predictor.footprint(run)), run, steps) for run, steps in found]
        kept: list[tuple[tuple[int, ...], Run, list[KnobStep]]] = []
        for highs, run, steps in sorted(scored, key=lambda each: (sum(each[0]), len(each[2]))):
            if not any(all(a <= b for a, b in zip(other, highs, strict=True)) for other, _, _ in kept):
                kept.append((highs, run, steps))
        return [(run, steps) for _, run, steps in kept]

    def _price(self, knob: Knob, run: Run) -> Price:
        return knob.price_for(run, self.predictor.evidence(run))


def _keeping_data(run: Run, ladders: dict[Knob, list[Run]], bought: dict[Knob, float]) -> dict[Knob, float]:
    """Return those knobs that buy something and leave as many env steps per update; all where there are none.

    The same data per update is the smaller change, even where it buys less.
    """
    keeps = backend_of(run).fitter.keeps_data_per_update
    useful = {knob: worth for knob, worth in bought.items() if worth > WORTH_TURNING}
    kept = {knob: worth for knob, worth in useful.items() if keeps(run, ladders[knob][-1])}
    return kept or bought


def _roomier(budget: Budget) -> Budget:
    ram, vram = (None if each is None else int(ARITHMETIC_MAY_ERR * each) for each in (budget.ram, budget.vram))
    return replace(budget, ram=ram, vram=vram)


def excess(footprint: Footprint, budget: Budget) -> float:
    """Return what is over the budget, summed over phases and places, in budgets."""
    over = footprint.largest_array / max(budget.ram or 1, 1) if refused_array(footprint, budget) else 0.0
    for places, limit in ((HOST_PLACES, budget.ram), ((Place.GPU,), budget.vram)):
        if limit is not None:
            usable = max(budget.usable(limit), 1)
            highs = (footprint.band(phase, places).high for phase in Phase)
            over += sum(max(high - usable, 0) for high in highs) / usable
    return over


def _highs(footprint: Footprint) -> tuple[int, ...]:
    highs = (footprint.band(phase, places).high for places in (HOST_PLACES, (Place.GPU,)) for phase in Phase)
    return (*highs, footprint.largest_array)


def _replayed(run: Run, steps: Sequence[KnobStep]) -> Run:
    for step in steps:
        run = with_changes(run, step.changes)
    return run


def _needs(footprint: Footprint) -> dict[str, int]:
    gpu = {"gpu": footprint.gpu.high} if footprint.gpu is not None else {}
    return {"host": footprint.host.high, **gpu}


def _with_storage_limit(
    run: Run, steps: list[KnobStep], predictor: Predictor, budget: Budget
) -> tuple[Run, list[KnobStep]]:
    """Return the run with a limit for its lean storage, and the step that turned it on with that limit along."""
    limited = relimited(run, predictor, budget)
    along = differences(run, limited)
    for at, step in enumerate(steps):
        if along and step.changes[0].key in ("memory.rollout", "memory.replay"):
            return limited, [*steps[:at], replace(step, changes=(*step.changes, *along)), *steps[at + 1 :]]
    return limited, steps


def relimited(run: Run, predictor: Predictor, budget: Budget) -> Run:
    """Return the run with a limit for its lean storage, beyond which it spills: where a probe was wrong, it still fits.

    The limit is what is counted and what the budget leaves besides, without that where it would be used for a decoded
    copy. None where even the first has such room: what is counted without a probe is the most there can be.
    """
    if run.memory.max_bytes is not None:
        return run
    counted, before = backend_of(run).fitter.spillable_nbytes(run, predictor.evidence(run)), predictor.footprint(run)
    left = 0 if budget.ram is None else max(budget.usable(budget.ram) - before.host.high, 0) // MIB * MIB
    for most in dict.fromkeys((counted + left, counted)) if counted else ():
        limited = with_settings(run, memory={"max_bytes": most})
        if needed_in_all(predictor.footprint(limited)) <= needed_in_all(before):
            return limited
    return run


def unlimited(run: Run, predictor: Predictor) -> Run:
    """Return the run without a limit that only guards what was counted, and does not make it spill."""
    if run.memory.max_bytes is None:
        return run
    without = with_settings(run, memory={"max_bytes": None})
    counted = backend_of(run).fitter.spillable_nbytes(without, predictor.evidence(run))
    return run if counted is None or counted > run.memory.max_bytes else without


def _turns(asked: Run, repairs: Sequence[Mend], steps: Sequence[KnobStep], predictor: Predictor) -> tuple[Turn, ...]:
    turns, run, before = [], asked, predictor.footprint(asked)
    mending = [(mend.changes, mend.price, mend.say) for mend in repairs]
    turning = [(step.changes, step.price, step.knob.say) for step in steps]
    for changes, price, say in (*mending, *turning):
        run = with_changes(run, changes)
        after = predictor.footprint(run)
        turns.append(Turn(changes, price, say, needed_in_all(before) - needed_in_all(after), after))
        before = after
    return tuple(turns)


def needed_in_all(footprint: Footprint) -> int:
    """Return host and GPU together: the upper ends, since those have to be inside the budget."""
    return footprint.host.high + (footprint.gpu.high if footprint.gpu is not None else 0)


def _uncounted(run: Run, predictor: Predictor) -> tuple[str, ...]:
    """Return what could be had besides, by price, though it was not needed or no prediction counts it."""
    evidence = predictor.evidence(run)
    found: dict[Price, list[str]] = {}
    for knob in backend_of(run).fitter.knobs:
        if not knob.counted and any(True for _ in knob.ladder(run, evidence)):
            found.setdefault(knob.price, []).append(f"{knob.key} ({knob.say})")
    return tuple(f"also {price}: {'; '.join(names)}" for price, names in found.items())


LESS = 0.8  # of what it was thought to need at most
UNLIMITED = 1 << 62


def retreat(
    run: Run, place: Literal["host", "gpu"], predictor: Predictor, allow: Collection[Price]
) -> tuple[Run, Footprint] | None:
    """Return the run with less memory in the place that ran out, and its footprint; None where no knob is left."""
    now = predictor.footprint(run)
    peak = now.gpu if place == "gpu" and now.gpu is not None else now.host
    target = int(peak.high * LESS)
    vram = None if now.gpu is None else UNLIMITED
    budget = Budget(ram=UNLIMITED, vram=target) if place == "gpu" else Budget(ram=target, vram=vram)
    plan = fit(run, budget, predictor, allow=allow, begun=True)
    after = plan.after.gpu if place == "gpu" and plan.after.gpu is not None else plan.after.host
    if plan.run == run or after.high >= peak.high:
        return None
    return plan.run, plan.after
