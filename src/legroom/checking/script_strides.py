"""How often `if step % interval == 0` really fires, given the conditions around it and the step's stride.

A counter that moves by n_envs meets a multiple of the interval only every lcm(stride, interval) steps, and a condition
inside another one needs both. The firing times repeat with the least common multiple of everything, so one period,
counted out, gives the exact rate.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass
from math import lcm

from legroom.reading.interpreter.asker import integer_of, range_of
from legroom.reading.interpreter.script import Script, dotted
from legroom.reading.source import walk

MOST_TURNS = 500_000  # of one period that are counted out


@dataclass(frozen=True)
class Stride:
    """A counter's first value and how far it moves per turn."""

    first: int
    by: int


@dataclass(frozen=True)
class Firing:
    """How often a condition holds: `times` in a period of `period` steps."""

    times: int
    period: int


def moduli(test: ast.expr) -> Iterator[tuple[ast.expr, ast.expr]]:
    """Yield (counter, interval) of each `counter % interval == 0` that the condition needs."""
    if isinstance(test, ast.BoolOp) and isinstance(test.op, ast.And):
        for value in test.values:
            yield from moduli(value)
        return
    left: ast.expr | None = None
    if isinstance(test, ast.UnaryOp) and isinstance(test.op, ast.Not):
        left = test.operand
    elif isinstance(test, ast.Compare) and len(test.ops) == 1 and isinstance(test.ops[0], ast.Eq):
        right = test.comparators[0]
        if isinstance(right, ast.Constant) and right.value == 0 and not isinstance(right.value, bool):
            left = test.left
    if isinstance(left, ast.BinOp) and isinstance(left.op, ast.Mod):
        yield left.left, left.right


def offset_of(script: Script, counter: ast.expr) -> tuple[str, int] | None:
    """Return the name of a counter and what is added to it: `(step + 1)` is ("step", 1)."""
    if isinstance(counter, ast.BinOp) and isinstance(counter.op, ast.Add | ast.Sub):
        name, added = dotted(counter.left), integer_of(script, counter.right)
        if name is None or added is None:
            return None
        return name, added if isinstance(counter.op, ast.Add) else -added
    name = dotted(counter)
    return None if name is None else (name, 0)


def stride_of(script: Script, name: str, at: ast.AST) -> Stride | None:
    """Return how the counter moves: the variable of `for ... in range(...)`, or one `name += constant` in a loop."""
    body: ast.AST = script.scopes.function_of(at) or script.tree
    if name.startswith("self."):  # set in one method, moved in another
        body = script.scopes.class_of(at) or body
    changes = [node for node in walk(body) if _changes(node, name)]
    match sorted(changes, key=lambda node: isinstance(node, ast.AugAssign)):
        case [ast.For(iter=numbers)]:
            return _range_stride(script, numbers)
        case [ast.Assign(value=start), ast.AugAssign(op=ast.Add(), value=step) as addition]:
            first, by = integer_of(script, start), integer_of(script, step)
            turns = _turns_between(script, addition, at)
            if first is not None and by is not None and by > 0 and turns is not None:
                return Stride(first, by * turns)
    return None


def _changes(node: ast.AST, name: str) -> bool:
    match node:
        case ast.For(target=target) | ast.AugAssign(target=target):
            return dotted(target) == name
        case ast.Assign(targets=targets):
            return any(dotted(target) == name for target in targets)
    return False


def firing(conditions: list[tuple[int, int]], stride: Stride) -> Firing | None:
    """Return how often all of (offset, interval) hold; None when a period is too long to count out."""
    period = lcm(stride.by, *(interval for _, interval in conditions))
    if period // stride.by > MOST_TURNS:
        return None
    times = sum(
        all((step + offset) % interval == 0 for offset, interval in conditions)
        for step in range(stride.first, stride.first + period, stride.by)
    )
    return Firing(times, period)


def _range_stride(script: Script, node: ast.expr) -> Stride | None:
    if not isinstance(node, ast.Call) or not node.args:
        return None
    name = script.qualified(node.func) or ""
    match name.rpartition(".")[2]:
        case "trange":
            return Stride(0, 1)
        case "tqdm":
            return _range_stride(script, node.args[0])
    if name != "range":
        return None
    first = integer_of(script, node.args[0]) if len(node.args) > 1 else 0
    by = integer_of(script, node.args[2]) if len(node.args) > 2 else 1
    return None if first is None or by is None or by < 1 else Stride(first, by)


def _turns_between(script: Script, addition: ast.AST, at: ast.AST) -> int | None:
    """Return how often the counter moves between two looks at the condition; None when that is not fixed."""
    loop = next((a for a in script.scopes.ancestors(at) if isinstance(a, ast.For | ast.While)), None)
    turns = 1
    for ancestor in script.scopes.ancestors(addition):
        if ancestor is loop:
            return turns if turns > 0 else None
        if isinstance(ancestor, ast.For):
            numbers = range_of(script, ancestor.iter)
            if numbers is None:
                return None
            turns *= len(numbers)
        elif not isinstance(ancestor, ast.With):
            return None  # it moves only sometimes, or in a function of its own
    return None
