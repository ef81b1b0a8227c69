"""Observation and action spaces, and the base of everything that can stand in a run file (`Data`).

Spaces are declared in run files in the same words as gymnasium's, and exist without gymnasium so that a prediction by
arithmetic imports nothing heavy. `environments.gym_spaces` converts to and from the real ones. `shape`, `dtype` and
`nbytes` are what SB3 stores per step, whatever the kind of space.

Pydantic models proper would cost 120 ms at every start (2026-11, pydantic 2.14; `bench/speed.py` times the whole
command), most of it to build validators that a shipped, tested run does not need. So the nouns are dataclasses, and
pydantic is imported the first time something has to be validated, dumped or described as a schema.
"""

from __future__ import annotations

import math
from dataclasses import MISSING, Field, dataclass, fields, replace
from typing import Annotated, Any, ClassVar, Literal, Self

from legroom.units import LARGEST

TAG = "type"  # the field that tells the members of a union apart; always written


class Data:
    """Validation, copies and plain data for a frozen dataclass, under pydantic's own names."""

    __pydantic_config__: ClassVar[dict[str, Any]] = {"extra": "forbid", "use_attribute_docstrings": True}

    @classmethod
    def model_validate(cls, data: Any) -> Self:
        """Return the instance that plain data describes.

        Raises:
            pydantic.ValidationError: it does not.
        """
        made: Self = _adapter(cls).validate_python(data)
        return made

    @classmethod
    def model_json_schema(cls) -> dict[str, Any]:
        schema: dict[str, Any] = _adapter(cls).json_schema()
        return schema

    def model_dump(self, *, exclude_defaults: bool = False) -> dict[str, Any]:
        """Return plain data (lists, dicts, numbers, text) that `model_validate` takes back."""
        dumped: dict[str, Any] = plain(self, exclude_defaults=exclude_defaults)
        return dumped

    def model_copy(self, *, update: dict[str, Any]) -> Self:
        """Return a copy with these fields replaced by values that are already of the right type."""
        return replace(self, **update)  # type: ignore[type-var]


def plain(value: Any, *, exclude_defaults: bool = False) -> Any:
    """Return a value with lists and dicts in place of tuples and of our dataclasses."""
    if isinstance(value, Data):
        return {
            f.name: plain(getattr(value, f.name), exclude_defaults=exclude_defaults)
            for f in fields(value)  # type: ignore[arg-type]
            if f.name == TAG or not (exclude_defaults and getattr(value, f.name) == _default(f))
        }
    if isinstance(value, dict):
        return {key: plain(entry, exclude_defaults=exclude_defaults) for key, entry in value.items()}
    if isinstance(value, (list, tuple)):
        return [plain(entry, exclude_defaults=exclude_defaults) for entry in value]
    return value


def _default(f: Field[Any]) -> Any:
    return f.default_factory() if f.default_factory is not MISSING else f.default


_ADAPTERS: dict[Any, Any] = {}


def _adapter(cls: Any) -> Any:
    from pydantic import TypeAdapter  # heavy: only when something is to be validated

    if cls not in _ADAPTERS:
        _ADAPTERS[cls] = TypeAdapter(cls)
    return _ADAPTERS[cls]


@dataclass(frozen=True)
class Between:
    """Bounds of a number, both included. (annotated_types has the same, for 15 ms at every start.)"""

    low: int
    high: int

    def __get_pydantic_core_schema__(self, source: Any, handler: Any) -> Any:
        return {**handler(source), "ge": self.low, "le": self.high}


@dataclass(frozen=True)
class NotEmpty:
    """Marks a collection that needs at least one element."""

    def __get_pydantic_core_schema__(self, source: Any, handler: Any) -> Any:
        return {**handler(source), "min_length": 1}


@dataclass(frozen=True)
class Tagged:
    """Marks a union whose members are told apart by their `type` (pydantic's discriminator)."""

    def __get_pydantic_core_schema__(self, source: Any, handler: Any) -> Any:
        from pydantic import Discriminator

        return Discriminator(TAG).__get_pydantic_core_schema__(source, handler)


# name -> bytes of one element; what numpy can hold and SB3 accepts
DTYPES = {
    "bool": 1, "int8": 1, "uint8": 1, "int16": 2, "uint16": 2, "float16": 2,
    "int32": 4, "uint32": 4, "float32": 4, "int64": 8, "uint64": 8, "float64": 8,
}  # fmt: skip

Dtype = Literal[
    "bool", "int8", "uint8", "int16", "uint16", "float16", "int32", "uint32", "float32", "int64", "uint64", "float64"
]
Dimension = Annotated[int, Between(1, LARGEST)]


@dataclass(frozen=True)
class BoxSpace(Data):
    """An array of bounded numbers. Bounds default to 0..255 for uint8 and -1..1 otherwise."""

    shape: tuple[Dimension, ...]
    dtype: Dtype = "float32"
    low: float | None = None
    high: float | None = None
    type: Literal["box"] = "box"

    @property
    def bounds(self) -> tuple[float, float]:
        low, high = (0.0, 255.0) if self.dtype == "uint8" else (-1.0, 1.0)
        return (low if self.low is None else self.low), (high if self.high is None else self.high)

    @property
    def nbytes(self) -> int:
        return math.prod(self.shape) * DTYPES[self.dtype]


@dataclass(frozen=True)
class DiscreteSpace(Data):
    """One of `n` values; a single int64 in gymnasium."""

    n: Dimension
    type: Literal["discrete"] = "discrete"

    shape: ClassVar[tuple[int, ...]] = (1,)
    dtype: ClassVar[str] = "int64"
    nbytes: ClassVar[int] = 8


@dataclass(frozen=True)
class MultiDiscreteSpace(Data):
    """Several discrete values side by side; int64 each in gymnasium."""

    nvec: Annotated[tuple[Dimension, ...], NotEmpty()]
    type: Literal["multidiscrete"] = "multidiscrete"

    dtype: ClassVar[str] = "int64"

    @property
    def shape(self) -> tuple[int, ...]:
        return (len(self.nvec),)

    @property
    def nbytes(self) -> int:
        return 8 * len(self.nvec)


@dataclass(frozen=True)
class MultiBinarySpace(Data):
    """`n` bits (an int, or a shape), one int8 each in gymnasium."""

    n: Dimension | tuple[Dimension, ...]
    type: Literal["multibinary"] = "multibinary"

    dtype: ClassVar[str] = "int8"

    @property
    def shape(self) -> tuple[int, ...]:
        return (self.n,) if isinstance(self.n, int) else self.n

    @property
    def nbytes(self) -> int:
        return math.prod(self.shape)


@dataclass(frozen=True)
class DictSpace(Data):
    """Named sub-spaces. SB3 stores one array per key and does not take nested dicts."""

    spaces: Annotated[dict[str, Space], NotEmpty()]
    type: Literal["dict"] = "dict"

    @property
    def nbytes(self) -> int:
        return sum(space.nbytes for space in self.spaces.values())


Leaf = BoxSpace | DiscreteSpace | MultiDiscreteSpace | MultiBinarySpace
Space = Annotated[BoxSpace | DiscreteSpace | MultiDiscreteSpace | MultiBinarySpace | DictSpace, Tagged()]
SPACE_TYPES: dict[str, Any] = {
    "box": BoxSpace, "discrete": DiscreteSpace, "multidiscrete": MultiDiscreteSpace, "multibinary": MultiBinarySpace,
    "dict": DictSpace,
}  # fmt: skip


@dataclass(frozen=True)
class KnownSpaces:
    """An environment's spaces in the words of a run file, known without building it; `episode_steps` is its limit."""

    observation: dict[str, Any]
    action: dict[str, Any]
    episode_steps: int | None = None


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
