"""What cuDNN may take beside PyTorch's allocator: told to the parent by its largest operands, which bound it.

No card was asked: how much workspace an algorithm takes is cuDNN's own business, and the parent turns operands into
ranges. What a recurrent layer keeps for its backward pass is needed, so the allocator's cache leaves that free while it
can. The workspace of a convolution is not: where it cannot be had, PyTorch tries an algorithm that needs less.
"""

from __future__ import annotations

import math
from typing import Any

import torch

from .recurrent_scratch import rnn_values

_GATES = {2: 5, 3: 4}  # LSTM keeps its gates and cells, GRU its gates and a product; by cudnnRNNMode_t
RESERVE = "rnn reserve"
NAMES = frozenset({"convolution", "cudnn_convolution", "_cudnn_rnn"})


class LibraryMemory:
    """Tells the journal whenever larger operands than before come.

    `convolution` and its axes are the bytes of the largest one's operands; `rnn_values` those of one value per time
    step, sample and unit of the recurrent layers that one backward pass goes through.

    Args:
        error: of what the card's limit leaves beside the allocator already, in bytes.
    """

    def __init__(self, journal: Any, error: int = 0) -> None:
        self._journal = journal
        self._largest: dict[str, int] = {}
        self._error = error
        self.convolution = self.convolution_axes = self.rnn_values = self._pass_values = 0

    @property
    def beside(self) -> int:
        """Return the upper end of what is needed: as much again may be missing, and errors add as squares."""
        needed = self._largest.get(RESERVE, 0)
        return needed + math.isqrt(self._error**2 + needed**2) - self._error

    def see(self, name: str, args: Any, out: Any) -> None:
        """Take in one call of an operator in NAMES."""
        if name == "_cudnn_rnn":
            values = rnn_values(args)
            self._pass_values += values
            self.rnn_values = max(self.rnn_values, self._pass_values)
            self._tell(RESERVE, values * _GATES.get(int(args[6]), 2), 0)
        else:
            size, axes = sum(map(_nbytes, (args[0], args[1], out))), args[0].dim() - 2
            self.convolution, self.convolution_axes = max((self.convolution, self.convolution_axes), (size, axes))
            self._tell("cudnn workspace", size, axes)

    def passed(self) -> None:
        """Hear of a backward pass."""
        self._pass_values = 0

    def _tell(self, name: str, nbytes: int, axes: int) -> None:
        if nbytes > self._largest.get(name, 0):
            self._largest[name] = nbytes
            self._journal.json("item", name=name, nbytes=nbytes, axes=axes)


def _nbytes(tensor: torch.Tensor) -> int:
    return tensor.numel() * tensor.element_size()
