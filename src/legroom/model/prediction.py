"""A Prediction: one run's footprint, the same with savings, and the verdict: what is shown of it everywhere."""

from dataclasses import dataclass

from legroom.model.evidence import LeanProbe
from legroom.model.footprint import Footprint
from legroom.model.plan import Price
from legroom.model.run import Run
from legroom.model.verdict import Budget, fits_closely
from legroom.units import format_size


@dataclass(frozen=True)
class LeanOption:
    """What lean storage would do for a run that has not got it, on top of every free saving.

    Args:
        measured: whether a probe of the environment told how much its observations have in common.
    """

    footprint: Footprint
    price: Price
    measured: bool


@dataclass(frozen=True)
class Prediction:
    """All that is shown of one run: its footprint, the same with savings, and the verdict.

    Args:
        free: with every free saving; lean storage is one of them where its price is `free`.
        lean: None where the run has lean storage already, or cannot have it.
    """

    run: Run
    footprint: Footprint
    free: Footprint
    budget: Budget
    fits: bool | None
    lean: LeanOption | None = None
    probe: LeanProbe | None = None

    def __repr__(self) -> str:
        fits = {True: "fits", False: "does not fit", None: "unknown whether it fits"}[self.fits]
        return f"Prediction({self.footprint.name}: {fits}, host {format_size(self.footprint.host.nbytes)})"

    @property
    def bad(self) -> bool:
        """Whether the command should end with exit code 1."""
        unknown = self.footprint.unseen or self.footprint.unknown or fits_closely(self.footprint, self.budget)
        return self.fits is False or bool(unknown)
