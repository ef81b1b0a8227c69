"""What cuDNN may take beside PyTorch's allocator: told to the parent by its largest operands, which bound it.

No card was asked: how much workspace an algorithm takes is cuDNN's own business. The parent turns operands into ranges,
by shares that it also tells the guest: what a library may take at most is left free by the allocator while it can.
"""

from __future__ import annotations

import math
from typing import Any

import torch

_GATES = {2: 5, 3: 4}  # LSTM keeps its gates and cells, GRU its gates and a product; by cudnnRNNMode_t
NAMES = frozenset({"convolution", "cudnn_convolution", "_cudnn_rnn"})


class LibraryMemory:
    """Tells the journal whenever larger operands than before come.

    Args:
        shares: of a convolution's operands that its workspace takes, by its axes; the last one for all others.
        error: of what the card's limit leaves beside the allocator already, in bytes.
    """

    def __init__(self, journal: Any, shares: dict[str, float] | None = None, error: int = 0) -> None:
        self._journal = journal
        self._largest: dict[str, int] = {}
        self._shares, self._error = shares or {}, error
        self._taken: dict[str, int] = {}

    @property
    def beside(self) -> int:
        """Return the upper end of what was seen so far: as much again may be missing, and errors add as squares."""
        taken = self._taken.values()
        return sum(taken) + math.isqrt(self._error**2 + sum(nbytes**2 for nbytes in taken)) - self._error

    def see(self, name: str, args: Any, out: Any) -> None:
        """Take in one call of an operator in NAMES."""
        if name == "_cudnn_rnn":
            training = bool(args[12])
            nbytes = _nbytes(out[0]) * int(args[9]) * _GATES.get(int(args[6]), 2) if training else 0
            self._tell("rnn reserve", nbytes, 0)
        else:
            operands = [args[0], args[1], out]
            self._tell("cudnn workspace", sum(map(_nbytes, operands)), args[0].dim() - 2)

    def _tell(self, name: str, nbytes: int, axes: int) -> None:
        if nbytes > self._largest.get(name, 0):
            self._largest[name] = nbytes
            share = self._shares.get(str(axes), max(self._shares.values(), default=0.0)) if axes else 1.0
            self._taken[name] = max(int(nbytes * share), self._taken.get(name, 0))
            self._journal.json("item", name=name, nbytes=nbytes, axes=axes)


def _nbytes(tensor: torch.Tensor) -> int:
    return tensor.numel() * tensor.element_size()
