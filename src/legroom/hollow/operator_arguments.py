"""What the arguments of an operator say: whether a card is concerned, and what the result's shape depends on."""

from __future__ import annotations

from typing import Any

import torch

from .fake_tensors import _PLAIN, is_meta
from .known_values import unwritten

META = torch.device("meta")
_aten = torch.ops.aten


# the value of a number sets these operators' shapes; others' shapes depend on whole numbers at most
NUMBERS_MATTER = {
    overload
    for packet in (
        *(_aten.arange, _aten.range, _aten.linspace, _aten.logspace),
        *(getattr(_aten, name) for name in dir(_aten) if "upsample" in name or "interpolate" in name),
    )
    for overload in (getattr(packet, name) for name in packet.overloads())
}


def describe(values: Any, key: list[Any], numbers: bool) -> bool:
    """Add what result shapes depend on to a key; False where that cannot be told."""
    for value in values:
        if isinstance(value, torch.Tensor):
            if not is_meta(value):
                return False  # values on the host may matter
            key += (value.shape, value.stride(), value.dtype)
        elif isinstance(value, float) and not numbers:
            key.append(value == 0.0)  # attention without dropout takes other scratch
        elif isinstance(value, (list, tuple)):
            key.append(len(value))
            if not describe(value, key, numbers):
                return False
        elif isinstance(value, _PLAIN):
            key.append(value)
            key.append(type(value))
        elif value is not None:
            return False
        else:
            key.append(None)
    return True


def zeros(value: Any) -> Any:
    """Return arguments with zeros on the host in the place of card tensors."""
    if isinstance(value, torch.Tensor):
        return unwritten(value.shape, value.dtype) if is_meta(value) else value
    if isinstance(value, dict):
        return {name: zeros(each) for name, each in value.items()}
    return type(value)(zeros(each) for each in value) if isinstance(value, (list, tuple)) else value


def hollowed(value: Any) -> Any:
    """Return results on the host as card tensors."""
    if isinstance(value, torch.Tensor):
        return torch.empty_strided(value.shape, value.stride(), dtype=value.dtype, device=META)
    return tuple(hollowed(each) for each in value) if isinstance(value, (list, tuple)) else value


def constants(func: Any, args: Any) -> Any:
    """Return arguments with numbers as tensors where an operator takes these."""
    kinds = [str(each.type) for each in func._schema.arguments]
    return [torch.tensor(x) if k == "Tensor" and type(x) in (int, float, bool) else x for x, k in zip(args, kinds)]


def concerned(args: Any, kwargs: Any) -> bool:
    for value in args:
        if isinstance(value, torch.Tensor):
            if is_meta(value):
                return True
        elif isinstance(value, (list, tuple)) and value and concerned(value, ()):
            return True
    if kwargs:
        for name, value in kwargs.items():
            if name == "device":
                if value is not None and torch.device(value).type in ("cuda", "meta"):
                    return True
            elif isinstance(value, torch.Tensor):
                if is_meta(value):
                    return True
            elif name == "pin_memory" and value:
                return True
    return False


def same_order(one: torch.Tensor, other: torch.Tensor) -> bool:
    """Return whether the elements of two tensors of one shape lie in the same order."""
    return one.shape == other.shape and all(
        a == b for a, b, size in zip(one.stride(), other.stride(), one.shape) if size != 1
    )
