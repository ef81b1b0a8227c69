"""Containers that only ever grow: filled again and again, and nothing in the source takes anything out.

A container may be emptied by any code that gets it. So it counts only where every use of it is one that reads, no name
like it is assigned a second time in any file that is followed or that imports this one, and its length is compared
nowhere.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import lru_cache

from legroom.checking.torch_sources import loops_of
from legroom.reading.interpreter.script import Script, argument, dotted
from legroom.reading.source import walk

# Functions that read what they are given.
_READERS = frozenset({
    "len", "sum", "min", "max", "list", "tuple", "sorted", "zip", "enumerate", "print", "map", "any", "all", "set",
    "sample", "choices", "choice", "array", "asarray", "stack", "vstack", "concatenate", "cat", "tensor", "mean",
    "std", "median", "percentile", "FloatTensor", "LongTensor", "dump", "dumps", "save", "plot", "figure", "as_tensor",
    "reversed", "iter", "isinstance", "str", "repr", "abs", "histogram", "var", "savez", "savez_compressed", "cumsum",
})  # fmt: skip


@dataclass(frozen=True)
class Growing:
    """One place that puts `item` into the container `name`, again and again."""

    name: str
    item: ast.expr
    place: ast.AST
    owner: ast.ClassDef | None

    @property
    def line(self) -> int:
        return getattr(self.place, "lineno", 0)


@lru_cache(maxsize=2)  # several rules ask about one script in turn
def growing(script: Script) -> tuple[Growing, ...]:
    """Return the places that fill a list, dict or boundless deque that nothing empties."""
    return tuple(_growing(script))


def _growing(script: Script) -> Iterator[Growing]:
    """Yield the places that fill a list, dict or boundless deque that nothing empties."""
    overwritten = {  # rows[i % size] = row: a ring that is full takes no more
        dotted(target.value)
        for node in script.nodes if isinstance(node, ast.Assign)
        for target in node.targets if isinstance(target, ast.Subscript)
    }  # fmt: skip
    for call in script.calls:
        if isinstance(call.func, ast.Attribute) and call.func.attr in ("append", "appendleft") and len(call.args) == 1:
            name = dotted(call.func.value)
            if name is not None and name not in overwritten:
                yield from _found(script, Growing(name, call.args[0], call, script.scopes.class_of(call)), _is_list)
    for node in script.nodes:
        if isinstance(node, ast.Assign) and len(node.targets) == 1 and isinstance(node.targets[0], ast.Subscript):
            target = node.targets[0]
            name = dotted(target.value)
            if name is not None and not isinstance(target.slice, ast.Constant | ast.Slice):
                yield from _found(script, Growing(name, node.value, node, script.scopes.class_of(node)), _is_dict)


def _found(script: Script, each: Growing, is_empty: Callable[[Script, ast.expr], bool]) -> Iterator[Growing]:
    made = _maker(script, each)
    if made is not None and is_empty(script, made) and _repeats(script, each) and not _shrinks(script, each.name):
        yield each


def _maker(script: Script, each: Growing) -> ast.expr | None:
    """Return the expression that makes the container: the only one, outside all loops; of an object, in `__init__`."""
    if each.name.startswith("self.") and each.name.count(".") == 1 and each.owner is not None:
        stores = [
            node
            for node in walk(each.owner)
            if isinstance(node, ast.Assign | ast.AnnAssign)
            and any(dotted(t) == each.name for t in (node.targets if isinstance(node, ast.Assign) else [node.target]))
        ]
        function = script.scopes.function_of(stores[0]) if len(stores) == 1 else None
        if isinstance(function, ast.FunctionDef) and function.name == "__init__" and not loops_of(script, stores[0]):
            return stores[0].value
        return None
    if "." in each.name or not isinstance(each.place, ast.stmt | ast.expr):
        return None
    scope = script.scopes.home(each.name, script.scopes.scope_of(each.place))
    bindings = scope.bindings.get(each.name, []) if scope is not None else []
    if len(bindings) != 1 or bindings[0].kind != "assign" or loops_of(script, bindings[0].node):
        return None
    if scope is not script.scopes.root and (scope is None or script.scopes.function_of(each.place) is not scope.node):
        return None
    return bindings[0].value


def _is_list(script: Script, made: ast.expr) -> bool:
    if isinstance(made, ast.List):
        return not made.elts
    if not isinstance(made, ast.Call):
        return False
    name = script.qualified(made.func)
    if name == "collections.deque":
        return argument(made, "maxlen", 1) is None and not made.keywords
    return name == "list" and not made.args


def _is_dict(script: Script, made: ast.expr) -> bool:
    if isinstance(made, ast.Dict):
        return not made.keys
    return isinstance(made, ast.Call) and script.qualified(made.func) == "dict" and not (made.args or made.keywords)


def _repeats(script: Script, each: Growing) -> bool:
    """Return whether it is filled again and again: in a loop, or by a method of an object that lives on."""
    loops = loops_of(script, each.place)
    if each.name.startswith("self."):
        function = script.scopes.function_of(each.place)
        return not (isinstance(function, ast.FunctionDef) and function.name == "__init__")
    return any(isinstance(loop, ast.While) or not is_short(loop) for loop in loops)


def is_short(loop: ast.AST) -> bool:
    """Return whether a loop plainly runs only a few times: `for label in ("before", "after")`, `range(3)`."""
    if not isinstance(loop, ast.For):
        return False
    if isinstance(loop.iter, ast.Tuple | ast.List):
        return True
    bound = loop.iter.args[-1] if isinstance(loop.iter, ast.Call) and len(loop.iter.args) == 1 else None
    return isinstance(bound, ast.Constant) and isinstance(bound.value, int) and bound.value <= 10


def _shrinks(script: Script, name: str) -> bool:
    """Return whether something takes items out, renews or bounds the container, or hands it to who may do that."""
    bare = name.rpartition(".")[2]
    last = re.escape(bare)
    emptied = re.compile(
        rf"\b{last}\.(pop|popleft|popitem|clear|remove|rotate|reset)\b|\bdel\s+[\w.]*\b{last}\b"
        rf"|\b{last}\[[^\]\n]*:[^\]\n]*\]\s*=[^=]|len\(\s*[\w.]*\b{last}\s*\)\s*(<|>|==|%|//|-)|(<|>|==)=?\s*len\(\s*[\w.]*\b{last}\s*\)"
        rf"|\b{last}\s*=\s*[\w.]*\b{last}\["
    )
    assigned = re.compile(rf"\b{last}\b\s*(:[^=\n]+)?=(?!=)|,\s*{last}\s*(,[\w\s,]*)?=(?!=)")
    texts = [other.text for other in script.followed] + list(script.importers)
    if any(_may_change_all(text) for text in texts):
        return True
    near = "\n".join(line for text in texts if bare in text for line in text.splitlines() if bare in line)
    if emptied.search(near) or len(assigned.findall(near)) > 1:
        return True
    uses = (node for node in script.nodes if isinstance(getattr(node, "ctx", None), ast.Load) and dotted(node) == name)
    return any(_is_handed_on(script, node) for node in uses)


@lru_cache(maxsize=64)
def _may_change_all(text: str) -> bool:
    """Return whether a source changes attributes whose names it does not write, or bounds its own length."""
    return re.search(r"\blen\(self\)\s*(<|>|==)|__dict__|setattr\(|self\.__(init|len)__\(", text) is not None


def _is_handed_on(script: Script, use: ast.AST) -> bool:
    """Return whether a use of the container gives it away: as an argument, a result, another name."""
    parent = script.scopes.parents.get(id(use))
    if isinstance(parent, ast.Starred):
        use, parent = parent, script.scopes.parents.get(id(parent))
    if isinstance(parent, ast.Call) and use is not parent.func:
        called = parent.func.attr if isinstance(parent.func, ast.Attribute) else getattr(parent.func, "id", "")
        return called not in _READERS
    if isinstance(parent, ast.keyword):
        return True
    if isinstance(parent, ast.Assign | ast.AnnAssign) and getattr(parent, "value", None) is use:
        return True
    return isinstance(parent, ast.Return | ast.Yield | ast.Tuple | ast.List | ast.Dict | ast.Global | ast.Nonlocal)
