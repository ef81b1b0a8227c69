"""The base of everything that can stand in a run file: plain frozen dataclasses that pydantic can validate.

Pydantic models proper would cost 120 ms at every start (2026-11, pydantic 2.14; `bench/speed.py` times the whole
command), most of it to build validators that a shipped, tested run does not need. So the nouns are dataclasses, and
pydantic is imported the first time something has to be validated, dumped or described as a schema.
"""

from dataclasses import MISSING, Field, dataclass, fields, replace
from typing import Any, ClassVar, Self

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
