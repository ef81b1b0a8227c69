"""Whether a footprint fits a budget: the one place that predict, fit, check, sweep, train and the page ask."""

from dataclasses import dataclass

from legroom.model.footprint import Footprint, Place


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

    None when a used place has no budget, or when it would fit by a guess: code that decides was not seen, or the
    networks could not be followed.
    """
    verdicts = [host_fits(footprint, budget)]
    if footprint.gpu is not None:
        verdicts.append(gpu_fits(footprint, budget))
    return False if False in verdicts else None if None in verdicts else True


def host_fits(footprint: Footprint, budget: Budget) -> bool | None:
    """Return the same for host memory alone, where the networks are if there is no GPU."""
    guessed = footprint.unseen or (footprint.unknown and footprint.gpu is None)
    return _judged(footprint.host.high, budget.ram, budget, guessed=bool(guessed))


def gpu_fits(footprint: Footprint, budget: Budget) -> bool | None:
    """Return the same for the GPU alone; None too for a run that uses none."""
    if footprint.gpu is None:
        return None
    return _judged(footprint.gpu.high, budget.vram, budget, guessed=bool(footprint.unseen or footprint.unknown))


def _judged(high: int, limit: int | None, budget: Budget, *, guessed: bool) -> bool | None:
    if limit is None:
        return None
    if high > budget.usable(limit):
        return False
    return None if guessed else True


def allocator_limit(footprint: Footprint, budget: Budget) -> int | None:
    """Return what PyTorch's allocator may take on the card: all that is usable but for the CUDA context."""
    if budget.vram is None:
        return None
    context = sum(item.total for item in footprint.items if item.place is Place.GPU and item.name == "gpu.context")
    return max(0, budget.usable(budget.vram) - context)
