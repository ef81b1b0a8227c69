"""Trees of plain values and arrays as JSON, with the arrays taken out of it; and back, exactly.

An environment's state is whatever it says it is: nested dicts and lists of numbers, text and arrays. JSON keeps all of
it but arrays, NumPy's own scalars, tuples, bytes and keys that are no text; those become small marked objects. Python's
integers of any size and floats (repr) come back as they were.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any

import numpy as np

from legroom.training.arrays import is_raw

MARK = "$"


class NotPlain(TypeError):
    """A value that is not plain data; the text says where it stands and what it is."""


def take_apart(tree: Any, prefix: str, arrays: dict[str, np.ndarray]) -> Any:
    """Return the tree as JSON; its arrays are added to `arrays`, under names that begin with `prefix`.

    Raises:
        NotPlain: something in it is neither plain data nor an array of plain numbers or text.
    """
    return _apart(tree, prefix, arrays, "")


def put_together(node: Any, arrays: Mapping[str, np.ndarray]) -> Any:
    """Return the tree that `take_apart` took apart.

    Raises:
        ValueError, KeyError: it is not one.
    """
    if isinstance(node, list):
        return [put_together(entry, arrays) for entry in node]
    if not isinstance(node, dict):
        return node
    marked = next(iter(node)) if len(node) == 1 else ""
    match marked:
        case "$array":
            return arrays[node[marked]]
        case "$scalar":
            dtype, value = node[marked]
            return np.dtype(dtype).type(value)
        case "$item":
            return arrays[node[marked]][()]
        case "$bytes":
            return arrays[node[marked]].tobytes()
        case "$tuple":
            return tuple(put_together(entry, arrays) for entry in node[marked])
        case "$pairs":
            return {put_together(k, arrays): put_together(v, arrays) for k, v in node[marked]}
    return {key[1:] if key.startswith(MARK) else key: put_together(entry, arrays) for key, entry in node.items()}


def _apart(tree: Any, prefix: str, arrays: dict[str, np.ndarray], where: str) -> Any:
    part = partial(_apart, prefix=prefix, arrays=arrays)
    match tree:
        case np.generic():  # before float: NumPy's float64 is one
            if tree.dtype.kind in "biuf" and tree.dtype.itemsize <= 8:
                return {"$scalar": [tree.dtype.str, tree.item()]}
            return {"$item": _add(np.asarray(tree), prefix, arrays)}
        case None | bool() | int() | float() | str():
            return tree
        case np.ndarray() if is_raw(tree):
            return {"$array": _add(tree, prefix, arrays)}
        case np.ndarray():
            raise NotPlain(f"{where or 'it'} is an array of {tree.dtype}")
        case bytes() | bytearray():
            return {"$bytes": _add(np.frombuffer(tree, np.uint8), prefix, arrays)}
        case list():
            return [part(entry, where=f"{where}[{i}]") for i, entry in enumerate(tree)]
        case tuple():
            return {"$tuple": part(list(tree), where=where)}
        case Mapping() if all(isinstance(key, str) for key in tree):
            return {_marked(key): part(entry, where=f"{where}.{key}".strip(".")) for key, entry in tree.items()}
        case Mapping():
            key_where = f"a key of {where or 'it'}"
            return {"$pairs": [[part(k, where=key_where), part(v, where=f"{where}[{k!r}]")] for k, v in tree.items()]}
    raise NotPlain(f"{where or 'it'} is a {type(tree).__name__}")


def _marked(key: str) -> str:
    return MARK + key if key.startswith(MARK) else key


def _add(array: np.ndarray, prefix: str, arrays: dict[str, np.ndarray]) -> str:
    name = f"{prefix}/{len(arrays)}"
    arrays[name] = array
    return name
