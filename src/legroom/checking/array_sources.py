"""Arrays that a source makes with a size it states: `np.zeros((100_000, 4, 84, 84), dtype=np.uint8)`."""

from __future__ import annotations

import ast
import math
from collections.abc import Iterator
from dataclasses import dataclass

from legroom.reading.interpreter.known_values import value_of
from legroom.reading.interpreter.script import Script, argument, dotted
from legroom.reading.interpreter.values import Unfoldable

_NUMPY = {f"numpy.{name}": "float64" for name in ("zeros", "ones", "empty")}
_TORCH = {f"torch.{name}": "float32" for name in ("zeros", "ones", "empty", "rand", "randn")}
_BYTES = {
    "float64": 8, "double": 8, "int64": 8, "long": 8, "uint64": 8, "float": 8, "int": 8, "complex64": 8,
    "float32": 4, "int32": 4, "uint32": 4, "float16": 2, "half": 2, "bfloat16": 2, "int16": 2, "uint16": 2,
    "uint8": 1, "int8": 1, "bool": 1, "bool_": 1,
}  # fmt: skip


@dataclass(frozen=True)
class MadeArray:
    """An array of known size; `name` is what it is assigned to, `on_card` where its device is known to be one."""

    call: ast.Call
    name: str
    shape: tuple[int, ...]
    dtype: str
    on_card: bool | None

    @property
    def nbytes(self) -> int:
        return math.prod(self.shape) * _BYTES[self.dtype]


def made_arrays(script: Script) -> Iterator[MadeArray]:
    """Yield the arrays whose shape and type are known, that are assigned to a name."""
    for call in script.calls:
        function = script.qualified(call.func) or ""
        kinds = _NUMPY if function in _NUMPY else _TORCH if function in _TORCH else None
        if kinds is None or not call.args:
            continue
        given = argument(call, "dtype", 1 if kinds is _NUMPY else None)
        dtype = kinds[function] if given is None else _type_name(given, torch=kinds is _TORCH)
        shape = _shape(script, call, torch=kinds is _TORCH)
        if dtype in _BYTES and shape is not None and min(shape, default=0) > 0:
            yield MadeArray(call, _assigned(script, call), shape, dtype, _on_card(call, torch=kinds is _TORCH))


def _shape(script: Script, call: ast.Call, *, torch: bool) -> tuple[int, ...] | None:
    given = call.args if torch and len(call.args) > 1 else call.args[:1]
    try:
        values = [value_of(script, arg.value if isinstance(arg, ast.Starred) else arg) for arg in given]
    except Unfoldable:
        return None
    shape = [side for value in values for side in (value if isinstance(value, list) else [value])]
    whole = all(isinstance(side, int) and not isinstance(side, bool) for side in shape)
    return tuple(shape) if shape and whole else None


def _type_name(node: ast.expr, *, torch: bool) -> str:
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        return node.value
    name = (dotted(node) or "").rpartition(".")[2]
    return "float32" if torch and name == "float" else name


def _assigned(script: Script, call: ast.Call) -> str:
    statement = script.scopes.statement_of(call)
    if isinstance(statement, ast.Assign) and len(statement.targets) == 1:
        return dotted(statement.targets[0]) or ""
    return ""


def _on_card(call: ast.Call, *, torch: bool) -> bool | None:
    if not torch:
        return False
    device = argument(call, "device")
    if device is None:
        return None
    return isinstance(device, ast.Constant) and str(device.value).startswith("cuda")
