"""General rules about scripts: what only source code can show, whichever library it trains with."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator

from legroom.checking.rule_helpers import script_rule
from legroom.checking.script_gpu import cuda_calls, environment_settings, is_straight
from legroom.model.rule import Found
from legroom.reading.interpreter.scopes import start
from legroom.reading.interpreter.script import Script, dotted
from legroom.reading.source import walk

_EVERYTHING = frozenset({"Exception", "BaseException"})


@script_rule("LR056")
def oom_handler_misses(script: Script) -> Iterable[Found]:
    """Out-of-memory handlers that let the host's kind of out of memory through."""
    for node in script.nodes:
        if not isinstance(node, ast.Try):
            continue
        caught = set().union(*(caught_by(script, handler) for handler in node.handlers)) if node.handlers else set()
        if caught & _EVERYTHING or "MemoryError" in caught:
            continue
        for handler in node.handlers:
            names = caught_by(script, handler)
            if not is_about_memory(script, handler):
                continue
            if "RuntimeError" in names:
                yield Found(
                    "this out-of-memory handler catches RuntimeError; NumPy's MemoryError (rollout and replay buffers) "
                    "is not one and ends the training",
                    "except (RuntimeError, MemoryError); a CPU tensor says \"DefaultCPUAllocator: can't allocate "
                    'memory" instead of "out of memory"',
                    handler.lineno,
                )  # fmt: skip
                break
            if any(name.endswith("OutOfMemoryError") for name in names):
                yield Found(
                    "this handler catches the GPU's OutOfMemoryError; the host's are MemoryError (NumPy) and "
                    "RuntimeError (DefaultCPUAllocator)",
                    "catch MemoryError too where arrays of the host are made in the try",
                    handler.lineno, severity="info",
                )  # fmt: skip
                break


def caught_by(script: Script, handler: ast.ExceptHandler) -> set[str]:
    """Return the names of the exceptions a handler catches; a bare except catches BaseException."""
    if handler.type is None:
        return {"BaseException"}
    types = handler.type.elts if isinstance(handler.type, ast.Tuple) else [handler.type]
    # what cannot be resolved may be anything: then nothing is missed
    return {script.qualified(t) or "BaseException" for t in types}


def is_about_memory(script: Script, handler: ast.ExceptHandler) -> bool:
    """Return whether a handler is there for out of memory: it names it, looks for its text or empties the cache."""
    if any(name.endswith("OutOfMemoryError") for name in caught_by(script, handler)):
        return True
    return any(_speaks_of_memory(script, node) for statement in handler.body for node in walk(statement))


def _speaks_of_memory(script: Script, node: ast.AST) -> bool:
    if isinstance(node, ast.Compare) and any(isinstance(op, ast.In | ast.NotIn) for op in node.ops):
        return isinstance(node.left, ast.Constant) and "out of memory" in str(node.left.value).lower()
    return isinstance(node, ast.Call) and script.qualified(node.func) == "torch.cuda.empty_cache"


def memory_handlers(script: Script) -> Iterator[tuple[ast.Try, ast.ExceptHandler]]:
    for node in script.nodes:
        if isinstance(node, ast.Try):
            for handler in node.handlers:
                if is_about_memory(script, handler):
                    yield node, handler


_NO_ATTEMPT = ("print", "str", "len", "range", "int")  # called in the try block and again, and no second attempt


@script_rule("LR057")
def oom_handler_keeps(script: Script) -> Iterable[Found]:
    """Freeing GPU memory inside the except block, where the exception still holds the tensors."""
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


_KEYS = ("PYTORCH_CUDA_ALLOC_CONF", "PYTORCH_ALLOC_CONF")


@script_rule("LR075")
def alloc_conf_too_late(script: Script) -> Iterable[Found]:
    """Settings of torch's CUDA allocator that come after its first use."""
    if not script.imports("torch"):
        return
    used = next((call for call in cuda_calls(script, script.tree) if is_straight(script, call)), None)
    for key, node in environment_settings(script):
        if key in _KEYS and used is not None and start(used) < start(node):
            message = f"{key} is set after torch has used the GPU (line {used.lineno}), so it has no effect"
            yield Found(message, "set it at the top, before the first tensor is on the GPU", node.lineno)
