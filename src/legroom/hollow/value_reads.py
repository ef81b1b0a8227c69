"""Answers to code that reads a value of a tensor that has none.

Before a run there are shapes and no values. The library's own logging and checks are answered: nothing hangs on it.
What anyone else does with a value may decide how much memory is used, so the question is refused, or, where the user
says so, answered with what was computed on the CPU, or answered by where the value comes from and written down:

- of a check for what should not be (`isnan`, `isinf`, `any`, a comparison): no;
- of a check for what should be (`all`, `isfinite`): yes;
- of a position (`argmax`, `argmin`): 0;
- of a mean or a sum: 0, since values are about as often positive as negative;
- other numbers (a maximum, a norm, a deviation): 1, as of data that is scaled. `if x.max() > 1` is not taken.
"""

from __future__ import annotations

import os
import sys
from typing import Any

import torch

from .records import Assumed, ValueRefused, Values

_TORCH = os.path.dirname(torch.__file__)
_SKIPPED = (
    os.path.join(_TORCH, "_tensor.py"),
    os.path.join(_TORCH, "_ops.py"),
    os.path.dirname(__file__),
)
_GRAD_SCALER = torch.amp.grad_scaler.__file__
_ORIGIN = "_legroom_origin"  # an attribute of small tensors: the operator that made them
_EXPECTED = ("all", "isfinite", "logical_not", "allclose", "equal")
_POSITIONS = ("argmax", "argmin", "argsort", "multinomial", "randint")
_CENTRED = ("mean", "sum", "sub", "rsub", "neg", "nansum")


class ValueReads:
    """Who may read values, what was answered, and where.

    Args:
        searching: those of the trusted that ask whether they may stop; the answer is no.
        computing: a `RealValues`, where values are computed.
    """

    def __init__(
        self, values: Values, trusted: tuple[str, ...], searching: tuple[str, ...] = (), computing: Any = None
    ) -> None:
        self.values = values
        self._computing = computing
        self._trusted = (_TORCH, *trusted)
        self._searching = searching
        self._found: dict[tuple[str, int, str], int] = {}

    @property
    def assumed(self) -> tuple[Assumed, ...]:
        """What was answered to code that is not trusted, in the order in which it first asked."""
        return tuple(Assumed(*where, count) for where, count in self._found.items())

    def made(self, func: Any, out: Any) -> None:
        """Remember where a single value comes from."""
        if self.values == "assume" and isinstance(out, torch.Tensor) and out.numel() == 1:
            setattr(out, _ORIGIN, func.overloadpacket.__name__)

    def number(self, tensor: torch.Tensor) -> Any:
        """Return what a scalar is said to be.

        Raises:
            ValueRefused: it may not be read.
        """
        asker = self._asker()
        if self._is_trusted(asker):
            if tensor.dtype == torch.bool:
                return not asker[0].startswith(self._searching)
            if asker[0] == _GRAD_SCALER:
                return 0.0  # no gradient is infinite, or there would be no step
            return 1.0 if tensor.dtype.is_floating_point else 1
        known = self._known(tensor)
        if known is not None:
            self._note(asker, "a value computed from observations of zeros")
            return known.item()
        origin = getattr(tensor, _ORIGIN, "")
        answer = _answer(tensor.dtype, origin)
        self._write_down(asker, f"{origin or 'a value'} read as {answer}")
        return answer

    def array(self, tensor: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
        """Return what a whole tensor is said to hold that is copied to the host.

        Raises:
            ValueRefused: it may not be read.
        """
        asker = self._asker()
        if not self._is_trusted(asker):
            known = self._known(tensor)
            if known is not None:
                self._note(asker, "values computed from observations of zeros")
                return known.to(dtype)
            self._write_down(asker, f"{tuple(tensor.shape)} values read as 0")
        return torch.zeros(tensor.shape, dtype=dtype)

    def mask(self, tensor: torch.Tensor) -> torch.Tensor | None:
        """Return the places that a mask chooses; None where that is not known and all of it is taken as chosen.

        Raises:
            ValueRefused: it may not be read.
        """
        asker, known = self._asker(), self._known(tensor)
        if known is not None:
            self._note(asker, "a mask computed from observations of zeros")
            return known.nonzero()
        if not self._is_trusted(asker):
            self._write_down(asker, f"a mask of {tuple(tensor.shape)} read as True throughout")
        return None

    def _known(self, tensor: torch.Tensor) -> torch.Tensor | None:
        found: torch.Tensor | None = None if self._computing is None else self._computing.of(tensor)
        return found

    def _write_down(self, asker: tuple[str, int], what: str) -> None:
        file, line = asker
        if self.values == "refuse":
            raise ValueRefused(
                f"{file}:{line} reads a tensor's value, which does not exist before the run",
                way="--values assume answers it, and says so; --values real computes it",
            )
        if self.values == "real":
            raise ValueRefused(
                f"{file}:{line} reads a tensor's value, which could not be computed on the CPU",
                way="--values assume answers it, and says so",
            )
        self._note(asker, what)

    def _note(self, asker: tuple[str, int], what: str) -> None:
        if not self._is_trusted(asker):
            self._found[(*asker, what)] = self._found.get((*asker, what), 0) + 1

    def _is_trusted(self, asker: tuple[str, int]) -> bool:
        return not asker[0] or asker[0].startswith(self._trusted)

    def _asker(self) -> tuple[str, int]:
        """Return the file and line of the code that asks; an empty name where there is none."""
        frame = sys._getframe(2)
        while frame is not None:
            name = frame.f_code.co_filename
            if not name.startswith(_SKIPPED) and f"{os.sep}utils{os.sep}_" not in name:
                return name, frame.f_lineno
            frame = frame.f_back  # type: ignore[assignment]
        return "", 0


def _answer(dtype: torch.dtype, origin: str) -> bool | float | int:
    if dtype == torch.bool:
        return origin in _EXPECTED
    number = 0 if origin in (*_POSITIONS, *_CENTRED) else 1
    return float(number) if dtype.is_floating_point else number
