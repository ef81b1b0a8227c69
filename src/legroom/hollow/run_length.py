"""How many optimizer steps a program will make, as far as its loops say.

What grows by some bytes per step matters by how many steps there are. The loops that the program is in when its
optimizer steps are found in the source of its frames, and their lengths by evaluating what they run over: numbers,
names, attributes and arithmetic, as in `range(args.steps)` or `while step < total`. Nothing of the program is called,
except for the length of a DataLoader. A loop whose length is not known makes the loops inside of it unknown too.

How many steps an iteration makes is measured: between two looks the loops have come on by so many iterations, and the
optimizer by so many steps.
"""

from __future__ import annotations

import ast
import builtins
import inspect
import operator
import textwrap
from contextlib import suppress
from typing import Any, Iterator

from . import source_lines

_WRAPPERS = ("tqdm", "enumerate", "list", "tuple", "iter", "reversed", "sorted", "track", "progress_bar")
_SIZED = (list, tuple, dict, set, str, range, bytes)
_ARITHMETIC = {
    ast.Add: operator.add, ast.Sub: operator.sub, ast.Mult: operator.mul, ast.FloorDiv: operator.floordiv,
    ast.Div: operator.truediv, ast.Mod: operator.mod,
}  # fmt: skip
_FUNCTIONS: dict[str, Any] = {"int": int, "len": len, "max": max, "min": min, "round": round}
_NESTED = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef, ast.Lambda)
_LOOPS = (ast.For, ast.While, ast.AsyncFor)


class UnknownValue(Exception):
    """What an expression is cannot be told without running the program."""


class RunLength:
    """Finds the loops around the optimizer's steps, and how far they have come."""

    def __init__(self, follower: Any) -> None:
        self._follower = follower
        self._trees: dict[Any, Any] = {}
        self._first: tuple[Any, int, float] | None = None
        self._total: float | None = None

    def look(self, steps: int) -> float | None:
        """Return how many optimizer steps there will be in total, None where that is not known."""
        if self._follower.left_out and self._total is not None:  # the loops come on faster than the steps
            return self._total
        places, done, whole = [], 0.0, 1.0
        for place, length, index in self._loops():
            if length is None:
                break
            places.append(place)
            done, whole = done * length + (index or 0.0), whole * length
            if place[2]:  # what it counts need not be its iterations
                break
        if not places or whole <= 0:
            return None
        if self._first is None or self._first[0] != places:
            self._first = places, steps, done
        _, first_steps, first_done = self._first
        if done > first_done:
            self._total = steps + max(whole - done, 0.0) * (steps - first_steps) / (done - first_done)
        return self._total

    def _loops(self) -> Iterator[tuple[Any, float | None, float | None]]:
        """Yield place, length and index of the loops that are under way, the outermost first; a length may be None."""
        frames = [
            frame
            for frame in source_lines.calls()
            if source_lines.kind_of(frame.f_code.co_filename) != source_lines.SKIP
        ]
        for each in reversed(frames):
            code = each.f_code
            if code.co_name.startswith("<") and code.co_name != "<module>":  # a comprehension is a loop, too
                yield (code, 0, False), None, None
            if code not in self._trees:
                self._trees[code] = source_tree(each)
            tree, first = self._trees[code]
            for node in _path(tree, each.f_lineno - first) if tree is not None else ():
                yield (code, node.lineno, isinstance(node, ast.While)), *self._measured(node, each)

    def _measured(self, node: Any, frame: Any) -> tuple[float | None, float | None]:
        names = NamedValues(source_lines.locals_of(frame), frame.f_globals)
        try:
            if isinstance(node, ast.While):
                return names.compared(node)
            return names.length(node.iter), self._index(node, names)
        except (UnknownValue, ArithmeticError, TypeError, ValueError):
            return None, None

    def _index(self, node: Any, names: Any) -> float | None:
        """Return how many iterations a `for` loop has come on."""
        target = node.target.elts[0] if isinstance(node.target, ast.Tuple) and _is_counted(node.iter) else node.target
        over = _unwrapped(node.iter)
        inside = (each for part in node.body for each in ast.walk(part) if isinstance(each, ast.Name))
        if any(each.id == _name(target) and isinstance(each.ctx, ast.Store) for each in inside):
            return None  # an inner loop may have the same variable, such as `_`
        try:
            if isinstance(over, ast.Call) and _name(over.func) in ("range", "trange"):
                run = range(*(names.number(each) for each in over.args))
                return float(run.index(names.value(target)))
            if _is_counted(node.iter):
                return float(names.value(target))
            if type(names.value(over)).__module__.startswith("torch.utils.data"):
                return float(self._follower.batches)
        except (UnknownValue, TypeError, ValueError):
            pass
        return None


class NamedValues:
    """Values of expressions, by the names of a function and its module, without running any of the program's code."""

    def __init__(self, local: Any, module: Any) -> None:
        self._locals, self._globals = local, module

    def value(self, node: Any) -> Any:
        if isinstance(node, ast.Constant):
            return node.value
        if isinstance(node, ast.Name):
            for names in (self._locals, self._globals):
                if node.id in names:
                    return names[node.id]
        elif isinstance(node, ast.Attribute):
            owner = self.value(node.value)
            for place in (owner, *type(owner).__mro__):
                found = getattr(place, "__dict__", {}).get(node.attr, UnknownValue)
                if found is not UnknownValue and not hasattr(type(found), "__get__"):
                    return found
        elif isinstance(node, ast.BinOp) and type(node.op) in _ARITHMETIC:
            return _ARITHMETIC[type(node.op)](self.number(node.left), self.number(node.right))
        elif isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
            return -self.number(node.operand)
        elif isinstance(node, ast.Subscript):
            holder, key = self.value(node.value), self.value(node.slice)
            if type(holder) in (dict, list, tuple) and type(key) in (str, int):
                with suppress(KeyError):
                    return holder[key]
        elif isinstance(node, ast.Call) and _name(node.func) in _FUNCTIONS and not node.keywords:
            name = _name(node.func)
            if name == "len":
                return self.length(node.args[0])
            if name not in self._globals and hasattr(builtins, name):
                return _FUNCTIONS[name](*(self.number(each) for each in node.args))
        raise UnknownValue

    def number(self, node: Any) -> Any:
        found = self.value(node)
        if type(found) not in (int, float):
            raise UnknownValue
        return found

    def length(self, node: Any) -> float:
        """Return how many iterations a loop over an expression has."""
        node = _unwrapped(node)
        if isinstance(node, ast.Call):
            if _name(node.func) in ("range", "trange"):
                return float(len(range(*(self.number(each) for each in node.args))))
            if _name(node.func) == "zip" and node.args:
                return min(self.length(each) for each in node.args)
        if isinstance(node, (ast.List, ast.Tuple)):
            return float(len(node.elts))
        found = self.value(node)
        if isinstance(found, _SIZED):
            return float(len(found))
        if type(found).__module__.startswith("torch.utils.data"):
            return float(len(found))
        total = getattr(found, "__dict__", {}).get("total")  # of tqdm
        if type(total) is int:
            return float(total)
        raise UnknownValue

    def compared(self, node: Any) -> tuple[float | None, float | None]:
        """Return the end that a `while` loop counts to, and how far it has counted."""
        tests = [(test, True) for test in (node.test.values if isinstance(node.test, ast.BoolOp) else [node.test])]
        ifs = [each for each in node.body if isinstance(each, ast.If)]
        tests += [(each.test, False) for each in ifs if any(isinstance(inner, ast.Break) for inner in each.body)]
        for test, goes_on in tests:
            if not isinstance(test, ast.Compare) or len(test.ops) != 1:
                continue
            counted, end = test.left, test.comparators[0]
            if isinstance(test.ops[0], (ast.Gt, ast.GtE) if goes_on else (ast.Lt, ast.LtE)):
                counted, end = end, counted
            try:
                return float(self.number(end)), float(self.number(counted))
            except UnknownValue:
                continue
        raise UnknownValue


def _name(node: Any) -> str:
    """Return the last part of a dotted name, empty for anything else."""
    return node.id if isinstance(node, ast.Name) else node.attr if isinstance(node, ast.Attribute) else ""


def _unwrapped(node: Any) -> Any:
    while isinstance(node, ast.Call) and _name(node.func) in _WRAPPERS and node.args:
        node = node.args[0]
    return node


def _is_counted(node: Any) -> bool:
    return isinstance(node, ast.Call) and _name(node.func) == "enumerate" and len(node.args) == 1


def source_tree(code: Any) -> tuple[Any, int]:
    """Return the syntax tree of a class, a module or the code of a frame, and the lines before it; None without one."""
    try:
        lines, first = inspect.getsourcelines(code)
        return ast.parse(textwrap.dedent("".join(lines))), max(first - 1, 0)
    except (OSError, TypeError, SyntaxError, ValueError, RecursionError):
        return None, 0


def _path(tree: Any, line: int) -> list[Any]:
    """Return the loops around a line, the outermost first; functions inside are other code."""
    found: list[Any] = []
    body = tree.body
    if len(body) == 1 and isinstance(body[0], _NESTED):  # the code is a function's own
        body = body[0].body
    node: Any = None
    while body is not None:
        node = next((each for each in body if each.lineno <= line <= (each.end_lineno or each.lineno)), None)
        if node is None or isinstance(node, _NESTED):
            return found
        if isinstance(node, _LOOPS) and node.body[0].lineno <= line <= (node.body[-1].end_lineno or line):
            found.append(node)
        parts = [getattr(node, name, None) for name in ("body", "orelse", "finalbody")]
        parts += [handler.body for handler in getattr(node, "handlers", ())]
        parts += [case.body for case in getattr(node, "cases", ())]
        body = [each for part in parts if isinstance(part, list) for each in part]
    return found
