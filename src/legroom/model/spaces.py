"""Observation and action spaces, as far as their memory and a library's treatment of them depend on it.

They are declared in run files in the same words as gymnasium's, and exist without gymnasium so that a prediction
by arithmetic imports nothing heavy. `backends.gym_spaces` converts to and from the real ones.
"""

from __future__ import annotations

import math
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, field_validator

from legroom.units import LARGEST

# name -> bytes of one element; what numpy can hold and SB3 accepts
DTYPES = {
    "bool": 1, "int8": 1, "uint8": 1, "int16": 2, "uint16": 2, "float16": 2,
    "int32": 4, "uint32": 4, "float32": 4, "int64": 8, "uint64": 8, "float64": 8,
}  # fmt: skip

Dimension = Annotated[int, Field(ge=1, le=LARGEST)]


class _Space(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class BoxSpace(_Space):
    """An array of bounded numbers. Bounds default to 0..255 for uint8 and -1..1 otherwise."""

    type: Literal["box"] = "box"
    shape: tuple[Dimension, ...]
    dtype: str = "float32"
    low: float | None = None
    high: float | None = None

    @field_validator("dtype")
    @classmethod
    def _known_dtype(cls, value: str) -> str:
        if value not in DTYPES:
            raise ValueError(f"unknown dtype {value!r}; one of {', '.join(DTYPES)}")
        return value

    @property
    def bounds(self) -> tuple[float, float]:
        low, high = (0.0, 255.0) if self.dtype == "uint8" else (-1.0, 1.0)
        return (low if self.low is None else self.low), (high if self.high is None else self.high)

    @property
    def nbytes(self) -> int:
        return math.prod(self.shape) * DTYPES[self.dtype]


class DiscreteSpace(_Space):
    """One of `n` values; a single int64 in gymnasium."""

    type: Literal["discrete"] = "discrete"
    n: Dimension

    @property
    def shape(self) -> tuple[int, ...]:
        return (1,)  # SB3 stores it as one number per step

    @property
    def dtype(self) -> str:
        return "int64"

    @property
    def nbytes(self) -> int:
        return 8


class MultiDiscreteSpace(_Space):
    """Several discrete values side by side; int64 each in gymnasium."""

    type: Literal["multidiscrete"] = "multidiscrete"
    nvec: tuple[Dimension, ...] = Field(min_length=1)

    @property
    def shape(self) -> tuple[int, ...]:
        return (len(self.nvec),)

    @property
    def dtype(self) -> str:
        return "int64"

    @property
    def nbytes(self) -> int:
        return 8 * len(self.nvec)


class MultiBinarySpace(_Space):
    """`n` bits (an int, or a shape), one int8 each in gymnasium."""

    type: Literal["multibinary"] = "multibinary"
    n: Dimension | tuple[Dimension, ...]

    @property
    def shape(self) -> tuple[int, ...]:
        return (self.n,) if isinstance(self.n, int) else self.n

    @property
    def dtype(self) -> str:
        return "int8"

    @property
    def nbytes(self) -> int:
        return math.prod(self.shape)


class DictSpace(_Space):
    """Named sub-spaces. SB3 stores one array per key and does not take nested dicts."""

    type: Literal["dict"] = "dict"
    spaces: dict[str, Space] = Field(min_length=1)

    @property
    def nbytes(self) -> int:
        return sum(space.nbytes for space in self.spaces.values())


Leaf = BoxSpace | DiscreteSpace | MultiDiscreteSpace | MultiBinarySpace
Space = Annotated[
    BoxSpace | DiscreteSpace | MultiDiscreteSpace | MultiBinarySpace | DictSpace, Field(discriminator="type")
]
DictSpace.model_rebuild()


def leaves(space: Any, prefix: str = "") -> dict[str, Leaf]:
    """Return the arrays of `space` by key; a space that is no dict has the one key ''."""
    if isinstance(space, DictSpace):
        return {f"{prefix}{key}": leaf for key, sub in space.spaces.items() for leaf in leaves(sub).values()}
    return {prefix: space}


def describe(space: Any) -> str:
    """Return a short name for tables: `17×49×71×58 float32`, `6 actions`, `dict of 3`."""
    if isinstance(space, DictSpace):
        return " + ".join(f"{key} {describe(sub)}" for key, sub in space.spaces.items())
    if isinstance(space, DiscreteSpace):
        return f"discrete {space.n:,}"
    return "×".join(str(n) for n in space.shape) + f" {space.dtype}"
