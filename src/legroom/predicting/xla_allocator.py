"""What XLA's allocator and the libraries it calls add to a program's own arrays on a card.

The allocator takes at most three quarters of the card. A program whose arrays need 7 GiB thus needs a card with 9.3 GiB
free, whatever else is on it: the quarter that is left is an item of its own, where it is more than what lives outside
of the allocator anyway.
"""

from collections.abc import Iterable, Iterator

from legroom.model.footprint import Item, Known, Phase, Place
from legroom.units import MIB

XLA_SHARE = 0.75  # of a card's memory: XLA_PYTHON_CLIENT_MEM_FRACTION's default, with and without preallocation
# cuBLAS, cuDNN and cuSOLVER allocate beside what a plan holds (which has cuBLAS's 4 MiB where it calls it), and before
# the first step XLA times kernels on copies of their operands. No card was measured (2026-11).
WORKSPACE_NBYTES = 32 * MIB


def allocator_items(items: Iterable[Item], context: Item) -> Iterator[Item]:
    """What comes to the program's own arrays on a card."""
    yield Item(
        "gpu.library workspaces", WORKSPACE_NBYTES, Place.GPU, known=Known.DEFAULT, error=WORKSPACE_NBYTES,
        why="cuBLAS, cuDNN, cuSOLVER and the timing of kernels: a guess, 0 to 2× this; varies by GPU and version",
    )  # fmt: skip
    on_card = [item for item in items if item.place is Place.GPU]
    for phase in Phase:
        arrays = WORKSPACE_NBYTES + sum(item.total for item in on_card if phase in item.phases)
        unused = round(arrays * (1 / XLA_SHARE - 1)) - context.nbytes
        if unused > 0:
            yield Item(
                "gpu.beyond XLA's share", unused, Place.GPU, phases=(phase,), known=Known.ARITHMETIC,
                why=f"XLA's allocator takes at most {XLA_SHARE:.0%} of the GPU (XLA_PYTHON_CLIENT_MEM_FRACTION)",
            )  # fmt: skip
