"""Whether a footprint fits a budget: the one place that predict, fit, check, sweep, train and the page ask."""

import math
from dataclasses import dataclass

from legroom.model.footprint import Footprint, Place
from legroom.units import format_size

BESIDE_ALLOCATOR = ("gpu.context", "gpu.cudnn workspace", "gpu.rnn reserve")  # items outside of PyTorch's allocator
FAILED_REQUEST = "gpu.failed request"


@dataclass(frozen=True)
class Budget:
    """Bytes a run may use per place; None where nothing is known. `reserve` is the share kept free (0.1 = 10 %)."""

    ram: int | None = None
    vram: int | None = None
    reserve: float = 0.0
    ram_origin: str = ""
    vram_origin: str = ""
    mappable: int | None = None  # what Linux maps in one piece: RAM and swap of the machine; None: `ram`
    host_only: bool = False  # the question is about host memory alone, whatever a GPU has to hold

    def usable(self, nbytes: int) -> int:
        return int(nbytes * (1 - self.reserve))


def fits(footprint: Footprint, budget: Budget) -> bool | None:
    """Return whether the upper end of every band is inside the budget; never of a run that its library refuses.

    None when a used place has no budget, or when it would fit by a guess: code that decides was not seen, the networks
    could not be followed, or the environment was not built, whose memory may be anything.
    """
    if footprint.refused:
        return False
    verdicts = [host_fits(footprint, budget)]
    if footprint.gpu is not None and not budget.host_only:
        verdicts.append(gpu_fits(footprint, budget))
    return False if False in verdicts else None if None in verdicts else True


def refused_array(footprint: Footprint, budget: Budget) -> str:
    """Return which array Linux refuses when it is made, as text; empty where none is.

    Unless told otherwise (vm.overcommit_memory 1) it maps nothing that alone is over RAM and swap: np.zeros raises
    MemoryError in the first second. What is smaller is mapped, and runs out only when it is written.
    """
    most = budget.ram if budget.mappable is None else budget.mappable
    if most is None or footprint.largest_array <= most:
        return ""
    name = next(item.name for item in footprint.items if item.reserved == footprint.largest_array)
    return f"NumPy cannot allocate {name}: {format_size(footprint.largest_array)} in one array"


def host_fits(footprint: Footprint, budget: Budget) -> bool | None:
    """Return the same for host memory alone, where the networks are if there is no GPU."""
    if refused_array(footprint, budget):
        return False
    alone = footprint.gpu is None or budget.host_only
    guessed = footprint.unseen or (footprint.unknown and alone) or footprint.not_built
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
    """Return what PyTorch's allocator may take on the card: all that is usable but for what lives beside it.

    What is beside (the CUDA context, workspaces of libraries) counts with the upper end of its band, as in the verdict:
    a run fits where the upper end of the allocator's own band is below this. What is optional is not counted. A program
    that ran out of memory was held to the context alone: what its libraries would have taken is not known.
    """
    if budget.vram is None:
        return None
    on_card = {item.name: item for item in footprint.items if item.place is Place.GPU}
    names = BESIDE_ALLOCATOR[:1] if FAILED_REQUEST in on_card else BESIDE_ALLOCATOR
    beside = [on_card[name] for name in names if name in on_card and not on_card[name].optional]
    error = math.isqrt(sum((item.count * item.error) ** 2 for item in beside))
    return max(0, budget.usable(budget.vram) - sum(item.total for item in beside) - error)
