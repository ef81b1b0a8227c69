"""Rules about arrays that a source makes with a size it states: too large for the machine, or larger than need be."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable
from itertools import pairwise

from legroom.checking.array_sources import MadeArray, made_arrays
from legroom.checking.rule_helpers import of_ram, of_vram, ram_limit, script_rule, subject_rule
from legroom.model.rule import Found, Subject
from legroom.reading.interpreter.script import Script
from legroom.units import MIB, format_size


@subject_rule("script", "LR088")
def array_exceeds(subject: Subject) -> Iterable[Found]:
    """An array whose stated size is more than there is."""
    if subject.script is None or subject.budget is None:
        return
    ram = ram_limit(subject)
    vram = None if subject.budget.vram is None else subject.budget.usable(subject.budget.vram)
    for array in made_arrays(subject.script):
        card = array.on_card is True
        limit = vram if card else ram
        if array.on_card is None or limit is None or array.nbytes <= limit:
            continue
        sizes = " × ".join(f"{n:,}" for n in array.shape)
        filled = "" if card else "; the memory is taken as it fills, so the process is killed later"
        yield Found(
            f"{array.name or 'an array'} of {sizes} {array.dtype} is {format_size(array.nbytes)}, more than "
            f"{of_vram(subject) if card else of_ram(subject)}{filled}",
            "fewer rows, a smaller type (uint8 for pictures), or one frame per row instead of a stack",
            array.call.lineno,
        )


_WIDE = {"float32": 4, "float64": 8, "double": 8}
_KEEPS = re.compile(r"obs|state|frame|image|screen|pixel|buffer|memory|replay", re.I)
LEAST = 256 * MIB  # below, it is not worth a word
SMALLEST_SIDE = 32


@script_rule("LR090")
def float_frames(script: Script) -> Iterable[Found]:
    """Pictures stored as floating point numbers."""
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


_NEXT = re.compile(
    r"^(?P<owner>.*\.)?_?(?:next|new)_?(?P<rest>obs\w*|observations?|states?|frames?)(_buf\w*|_mem\w*)?$", re.I
)
_SEEN = re.compile(r"^(?P<owner>.*\.)?_?(?P<rest>obs\w*|observations?|states?|frames?)(_buf\w*|_mem\w*)?$", re.I)


@script_rule("LR091")
def next_stored_twice(script: Script) -> Iterable[Found]:
    """Observations stored a second time as next observations."""
    arrays = [array for array in made_arrays(script) if array.name and array.nbytes >= LEAST and has_frames(array)]
    for second in arrays:
        match = _NEXT.match(second.name)
        if match is None:
            continue
        for first in arrays:
            seen = _SEEN.match(first.name)
            same = seen is not None and seen["owner"] == match["owner"] and not _NEXT.match(first.name)
            if same and first.shape == second.shape and first.dtype == second.dtype:
                yield Found(
                    f"{second.name} holds what {first.name} has one row later: {format_size(second.nbytes)} for the "
                    "same pictures",
                    "read row i + 1 of the observations, and keep only those that end an episode",
                    second.call.lineno,
                )
                break
