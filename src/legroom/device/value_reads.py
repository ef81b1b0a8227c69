"""Answers to code that reads a value of a tensor that has none.

Before a run there are shapes and no values. The library's own logging and checks are answered: nothing hangs on it.
What anyone else does with a value may decide how much memory is used, so the question is refused, or, where the user
says so, answered by where the value comes from and written down:

- of a check for what should not be (`isnan`, `isinf`, `any`, a comparison): no;
- of a check for what should be (`all`, `isfinite`): yes;
- of a position (`argmax`, `argmin`): 0;
- of a mean or a sum: 0, since values are about as often positive as negative;
- other numbers (a maximum, a norm, a deviation): 1, as of data that is scaled. `if x.max() > 1` is not taken.
"""

import os
import sys
from typing import Any

import torch

from legroom.errors import Untraceable
from legroom.model.evidence import Values
from legroom.model.footprint import Assumed

_TORCH = os.path.dirname(torch.__file__)  # noqa: PTH120  compared with frame file names, as strings
_SKIPPED = (os.path.join(_TORCH, "_tensor.py"), os.path.join(_TORCH, "_ops.py"), __file__)  # noqa: PTH118
_ORIGIN = "_legroom_origin"  # an attribute of small tensors: the operator that made them
_EXPECTED = ("all", "isfinite", "logical_not", "allclose", "equal")
_POSITIONS = ("argmax", "argmin", "argsort", "multinomial", "randint")
_CENTRED = ("mean", "sum", "sub", "rsub", "neg", "nansum")


class ValueReads:
    """Who may read values, what was answered, and where."""

    def __init__(self, values: Values, trusted: tuple[str, ...]) -> None:
        self.values = values
        self._trusted = (_TORCH, *trusted)
        self._skipped = (*_SKIPPED, os.path.join(os.path.dirname(__file__), "fake_tensors.py"))  # noqa: PTH118,PTH120
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
            Untraceable: it may not be read.
        """
        stranger = self._stranger()
        if stranger is None:
            return True if tensor.dtype == torch.bool else 1.0 if tensor.dtype.is_floating_point else 1
        origin = getattr(tensor, _ORIGIN, "")
        answer = _answer(tensor.dtype, origin)
        self._write_down(stranger, f"{origin or 'a value'} read as {answer}")
        return answer

    def array(self, tensor: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
        """Return what a whole tensor is said to hold that is copied to the host.

        Raises:
            Untraceable: it may not be read.
        """
        stranger = self._stranger()
        if stranger is not None:
            self._write_down(stranger, f"{tuple(tensor.shape)} values read as 0")
        return torch.zeros(tensor.shape, dtype=dtype)

    def _write_down(self, stranger: tuple[str, int], what: str) -> None:
        file, line = stranger
        if self.values == "refuse":
            raise Untraceable(
                f"{file}:{line} reads a tensor's value, which does not exist before the run",
                way="--values assume answers it, and says so",
            )
        self._found[(file, line, what)] = self._found.get((file, line, what), 0) + 1

    def _stranger(self) -> tuple[str, int] | None:
        """Return where the code stands that asks; None where it is a library's."""
        frame = sys._getframe(2)
        while frame is not None:
            name = frame.f_code.co_filename
            if not name.startswith(self._skipped) and f"{os.sep}utils{os.sep}_" not in name:
                return None if name.startswith(self._trusted) else (name, frame.f_lineno)
            frame = frame.f_back  # type: ignore[assignment]
        return None


def _answer(dtype: torch.dtype, origin: str) -> bool | float | int:
    if dtype == torch.bool:
        return origin in _EXPECTED
    number = 0 if origin in (*_POSITIONS, *_CENTRED) else 1
    return float(number) if dtype.is_floating_point else number
