"""Whether a footprint fits a budget: the one function that predict, fit and train ask."""

from dataclasses import dataclass

from legroom.model.footprint import Footprint


@dataclass(frozen=True)
class Budget:
    """Bytes a run may use per place; None where nothing is known. `reserve` is the share kept free (0.1 = 10 %)."""

    ram: int | None = None
    vram: int | None = None
    reserve: float = 0.0
    ram_origin: str = ""
    vram_origin: str = ""

    def usable(self, nbytes: int) -> int:
        return int(nbytes * (1 - self.reserve))


def fits(footprint: Footprint, budget: Budget) -> bool | None:
    """Return whether the upper end of every band is inside the budget.

    None when a used place has no budget, or when it would fit by a guess: code that decides was not seen.
    """
    verdicts = [_place_fits(footprint.host.high, budget.ram, budget)]
    if footprint.gpu is not None:
        verdicts.append(_place_fits(footprint.gpu.high, budget.vram, budget))
    if False in verdicts:
        return False
    return None if None in verdicts or footprint.unseen else True


def _place_fits(high: int, limit: int | None, budget: Budget) -> bool | None:
    return None if limit is None else high <= budget.usable(limit)
