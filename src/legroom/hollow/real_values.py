"""Values of a traced run's tensors, computed on the CPU beside the card's bookkeeping (`--values real`).

They begin with the initial weights and with observations of zeros: no environment is stepped for a prediction. What is
too large to compute, or has no kernel on the CPU, has no value, nor has what comes of it.
"""

from __future__ import annotations

import weakref
from typing import Any

import torch

from .shadows import NONE, Facts, Shadows

LARGEST_BYTES = 256 << 20  # of a tensor that is computed
_EMPTY = ("empty", "new_empty", "empty_strided", "new_empty_strided", "empty_like", "empty_permuted")


class _Values:
    """The bytes of one storage; None where nobody knows them."""

    __slots__ = ("shadow",)

    def __init__(self) -> None:
        self.shadow: torch.UntypedStorage | None = None


class RealValues:
    """Follows the values of hollow tensors, operator by operator."""

    def __init__(self) -> None:
        self._known: dict[int, _Values] = {}
        self._refs: dict[int, Any] = {}
        self._facts: dict[Any, Facts] = {}
        self._shadows = Shadows(self._known, LARGEST_BYTES)
        self._shadows.generator = torch.Generator().manual_seed(0)

    def follow(self, func: Any, args: Any, kwargs: Any, out: Any) -> None:
        """Compute what an operator did; called after it ran on shapes."""
        facts = self._facts.get(func)
        if facts is None:
            facts = self._facts[func] = Facts(func)
        self._enrol(args)
        self._enrol(out)
        if facts.name not in _EMPTY:
            self._shadows.follow(func, facts, args, kwargs, out)

    def of(self, tensor: torch.Tensor) -> torch.Tensor | None:
        """Return a tensor's values, None where there are none."""
        found = self._shadows.twin(tensor)
        return None if found is NONE else found

    def give(self, tensor: torch.Tensor, values: torch.Tensor) -> None:
        """Let a tensor that no operator made have these values."""
        self._enrol(tensor)
        self._shadows.give(tensor, values)

    def _enrol(self, value: Any) -> None:
        if isinstance(value, torch.Tensor):
            if value.device.type == "meta":
                storage = value.untyped_storage()
                key = storage._cdata
                if key not in self._known:
                    self._known[key] = _Values()
                    self._refs[key] = weakref.ref(storage, lambda _, key=key: self._forget(key))  # type: ignore[misc]
        elif isinstance(value, (list, tuple)):
            for each in value:
                self._enrol(each)

    def _forget(self, key: int) -> None:
        self._known.pop(key, None)
        self._refs.pop(key, None)
