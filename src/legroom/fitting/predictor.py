"""Predictions of many variants of one run, each obtained as cheaply as its difference allows.

By arithmetic a variant takes half a millisecond. Traced, it takes seconds, of which most are the start of a process
that imports torch: so variants that differ only in what the networks do not see share a trace, and those that need
traces of their own are asked for together.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from typing import Any

from legroom.backends.base import backend_of
from legroom.errors import LegroomError
from legroom.model.evidence import Evidence
from legroom.model.footprint import Footprint, Place
from legroom.model.machine import Machine
from legroom.model.plan import LeanOption, Prediction
from legroom.model.run import Run
from legroom.model.verdict import Budget, fits
from legroom.predicting.predict import DeviceName, Mode, add_up, gather, gather_all

LEAST_SHARE = 0.5  # of what libraries take: arithmetic need not be exact to say that a budget is out of the question


class Predictor:
    """Predicts variants of a run on one machine; what was learned of its environment holds for all of them."""

    def __init__(
        self,
        run: Run,
        machine: Machine,
        *,
        mode: Mode = "auto",
        device: DeviceName | None = None,
        trust: bool = False,
        progress: Callable[[str], None] = lambda text: None,
    ) -> None:
        self.mode, self._trust, self._progress = mode, trust, progress
        how: Any = {"mode": mode, "device": device, "trust": trust, "progress": progress}
        self.run, evidence = gather(run, machine, **how)
        self._first, self._backend = evidence, backend_of(self.run)
        self._by_net: dict[str, Evidence] = {self._backend.fitter.evidence_key(self.run): evidence}
        self._footprints: dict[str, Footprint] = {}

    @property
    def unseen(self) -> tuple[str, ...]:
        """What the figures depend on and was not imported: nothing that is found with them can be said to fit."""
        return self._first.unseen

    @property
    def unknown(self) -> tuple[str, ...]:
        """Why the networks' memory is a guess: the same holds for what is found with it."""
        return self._first.unknown

    @property
    def device(self) -> DeviceName:
        return self._first.device

    def by_arithmetic(self) -> Predictor:
        """Return one that knows the same of the environment and estimates the networks: rougher, and a thousandfold
        quicker."""
        rough = copy.copy(self)
        rough.mode, rough._footprints = "arithmetic", {}
        return rough

    def footprint(self, run: Run) -> Footprint:
        """Return what this variant needs."""
        key = run.key
        if key not in self._footprints:
            self._footprints[key] = add_up(run, self.evidence(run))
        return self._footprints[key]

    def evidence(self, run: Run) -> Evidence:
        """Return what is known of this variant."""
        if self.mode == "arithmetic":
            (look,) = self._backend.predictor.look([run], [self.device], self._first.machine, "arithmetic")
            return replace(self._first, net=look.net)
        self.prepare([run])
        return self._by_net[self._backend.fitter.evidence_key(run)]

    def looks_closer(self, run: Run) -> bool:
        """Have the library look at this very run where variants share one look; return whether its bill is another."""
        if self.mode == "arithmetic" or self.device != "cuda" or self._backend.fitter.evidence_key(run):
            return False
        before, look = self._footprints.pop(run.key, None), self._backend.predictor.look
        look([run], [self.device], self._first.machine, "trace", progress=self._progress)
        return before is None or self.footprint(run).gpu != before.gpu

    def freely(self) -> Run:
        """Return the run with every free saving: bit-equal results and no slower, so there is no reason not to."""
        return self._backend.fitter.with_free_savings(self.run, self.evidence(self.run))

    def prepare(self, runs: Iterable[Run]) -> None:
        """Trace what of these runs is not traced yet, in one go."""
        if self.mode == "arithmetic":
            return
        key_of = self._backend.fitter.evidence_key
        missing = [run for key, run in {key_of(run): run for run in runs}.items() if key not in self._by_net]
        if not missing:
            return
        first, how = self._first, dict[str, Any](mode=self.mode, device=self.device, trust=self._trust)
        same = {name: getattr(first, name) for name in ("env_nbytes", "env", "env_not_built", "lean")}
        for run, (_, found) in zip(missing, gather_all(missing, first.machine, build_env=False, **how), strict=True):
            notes = tuple(dict.fromkeys((*first.notes, *found.notes)))
            self._by_net[key_of(run)] = replace(found, **same, notes=notes)


def predictor_at_once(
    run: Run, machine: Machine, *, device: DeviceName | None = None, trust: bool = False
) -> Predictor | None:
    """Return what predicts by arithmetic alone, which takes no time; None where arithmetic cannot tell."""
    try:
        found = Predictor(run, machine, mode="arithmetic", device=device, trust=trust)
        found.footprint(found.run)  # which asks for more than it took so far
    except LegroomError:
        return None
    return found


def is_hopeless(footprint: Footprint, budget: Budget) -> bool:
    """Return whether the host's budget is below what the libraries take before a training begins: no saving helps."""
    least = sum(
        item.nbytes for item in footprint.items if item.place is Place.HOST and item.name.startswith("runtime.")
    )
    return budget.ram is not None and budget.usable(budget.ram) < LEAST_SHARE * least


def predict_all(runs: Sequence[Run], machine: Machine, budget: Budget, **how: Any) -> list[Prediction]:
    """Return the predictions of runs; `how` is `gather_all`'s.

    Raises:
        BadInput: a run cannot be predicted.
    """
    return [priced(run, evidence, budget) for run, evidence in gather_all(runs, machine, **how)]


def priced(run: Run, evidence: Evidence, budget: Budget) -> Prediction:
    """Return the prediction of a run as it is written, with every free saving, and with lean storage at its price."""
    fitter = backend_of(run).fitter
    footprint, freely, lean = add_up(run, evidence), fitter.with_free_savings(run, evidence), None
    for knob in fitter.knobs:
        if knob.asks_probe and any(True for _ in knob.ladder(run, evidence)):
            turned = next(knob.ladder(freely, evidence), freely)
            price = knob.price_for(run, evidence)
            lean = LeanOption(add_up(turned, evidence), price, evidence.lean is not None)
    return Prediction(
        run=run,
        footprint=footprint,
        free=add_up(freely, evidence),
        budget=budget,
        fits=fits(footprint, budget),
        lean=lean,
        probe=evidence.lean,
    )
