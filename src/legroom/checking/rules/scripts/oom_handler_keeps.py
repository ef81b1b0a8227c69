"""LR057: freeing GPU memory inside the except block, where the exception still holds the tensors."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator

from legroom.checking.rule_helpers import per_script
from legroom.checking.rules.scripts.oom_handler_misses import memory_handlers
from legroom.model.rule import Found, Rule
from legroom.reading.interpreter.script import Script, dotted
from legroom.reading.source import walk

_NO_ATTEMPT = ("print", "str", "len", "range", "int")  # called in the try block and again, and no second attempt


def look(script: Script) -> Iterable[Found]:
    for attempt, handler in memory_handlers(script):
        calls = list(_calls(handler.body))
        empties = (call for call in calls if script.qualified(call.func) == "torch.cuda.empty_cache")
        emptied = next((call for call in empties if not _then_raises(script, call)), None)
        if emptied is None:
            continue
        tried = {dotted(call.func) for call in _calls(attempt.body)}.difference(_NO_ATTEMPT)
        after = (dotted(call.func) for call in calls if call.lineno > emptied.lineno)
        again = next((name for name in after if name and name in tried and "zero_grad" not in name), None)
        if again:
            yield Found(
                f"{again}() is tried again inside the except block, where the traceback still holds "
                "the tensors of the failed attempt: empty_cache() cannot free them",
                "set a flag in the handler; empty the cache and retry after the try statement",
                emptied.lineno,
            )
        else:
            yield Found(
                "empty_cache() inside the except block frees nothing that the traceback's frames still hold",
                "leave the handler first (set a flag), then empty the cache",
                emptied.lineno, severity="info",
            )  # fmt: skip


def _calls(block: list[ast.stmt]) -> Iterator[ast.Call]:
    return (node for statement in block for node in walk(statement) if isinstance(node, ast.Call))


def _then_raises(script: Script, call: ast.Call) -> bool:
    """Return whether the block that empties the cache ends by raising: then nothing is tried again."""
    statement = script.scopes.statement_of(call)
    parent = script.scopes.parents.get(id(statement))
    for field in ("body", "orelse"):
        block = getattr(parent, field, [])
        if isinstance(block, list) and any(statement is s for s in block):
            leaves = any(isinstance(n, ast.Continue | ast.Return | ast.Break) for s in block for n in walk(s))
            return isinstance(block[-1], ast.Raise) and not leaves
    return False


RULE = Rule(
    code="LR057",
    name="oom-handler-keeps-tensors",
    severity="warning",
    what="A handler for out of memory empties the CUDA cache and tries again inside its except block.",
    why=(
        "Until the block ends, the exception's traceback holds the frames of the failed attempt and with them its "
        "activations. empty_cache() returns only unused memory, so the second attempt has as little room as the first."
    ),
    example="except torch.cuda.OutOfMemoryError:\n    torch.cuda.empty_cache()\n    loss = step(batch[:half])\n",
    remedy="Set a flag in the handler, and free and retry after it.",
    look=per_script(look),
)
