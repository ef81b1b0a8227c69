"""LR090: pictures stored as floating point numbers."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable
from itertools import pairwise

from legroom.checking.array_sources import MadeArray, made_arrays
from legroom.checking.rule_helpers import per_script
from legroom.model.rule import Found, Rule
from legroom.reading.interpreter.script import Script
from legroom.units import MIB, format_size

_WIDE = {"float32": 4, "float64": 8, "double": 8}
_KEEPS = re.compile(r"obs|state|frame|image|screen|pixel|buffer|memory|replay", re.I)
LEAST = 256 * MIB  # below, it is not worth a word
SMALLEST_SIDE = 32


def look(script: Script) -> Iterable[Found]:
    if not any(_divides_by_255(node) for other in script.followed for node in other.nodes):
        return  # nothing says that these are pictures
    for array in made_arrays(script):
        if array.dtype in _WIDE and array.nbytes >= LEAST and _KEEPS.search(array.name) and has_frames(array):
            times = _WIDE[array.dtype]
            yield Found(
                f"{array.name} keeps pictures as {array.dtype}: {format_size(array.nbytes)}, {times} times what uint8 "
                f"takes ({format_size(array.nbytes // times)})",
                "store uint8 and divide by 255 when a batch is made",
                array.call.lineno,
            )


def has_frames(array: MadeArray) -> bool:
    """Return whether each row is a picture: two neighbouring sides of some size after the first dimension."""
    sides = array.shape[1:]
    return len(sides) >= 2 and any(min(a, b) >= SMALLEST_SIDE for a, b in pairwise(sides))


def _divides_by_255(node: ast.AST) -> bool:
    if isinstance(node, ast.AugAssign):
        return isinstance(node.op, ast.Div) and isinstance(node.value, ast.Constant) and node.value.value == 255
    right = node.right if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Div) else None
    return isinstance(right, ast.Constant) and right.value in (255, 255.0)


RULE = Rule(
    code="LR090",
    name="float-frames-stored",
    severity="info",
    what="A buffer of pictures holds floating point numbers, in a source that divides by 255.",
    why="A pixel is a byte. As float32 it takes four, for nothing: dividing by 255 can wait until a batch is made.",
    example="self.states = np.zeros((100_000, 4, 84, 84), dtype=np.float32)   # 10.5 GiB; 2.6 as uint8\n",
    remedy="dtype=np.uint8, and .float() / 255 on the batch.",
    look=per_script(look),
)
