"""retreat(run, ...) -> Run: the next knob, when memory ran out though the plan said it would not.

The prediction was wrong, or somebody else took the memory; either way less is needed now. Fitting the same run to a
budget below what it was thought to need turns the cheapest knobs that help, in the same order of prices as ever.
"""

from collections.abc import Collection
from typing import Literal

from legroom.fitting.predictor import Predictor
from legroom.fitting.search import fit
from legroom.model.footprint import Footprint
from legroom.model.plan import Price
from legroom.model.run import Run
from legroom.model.verdict import Budget

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
