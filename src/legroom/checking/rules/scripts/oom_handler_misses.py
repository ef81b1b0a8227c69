"""LR056: out-of-memory handlers that let the host's kind of out of memory through."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator

from legroom.checking.rule_helpers import per_script
from legroom.model.rule import Found, Rule
from legroom.reading.interpreter.script import Script
from legroom.reading.source import walk

_EVERYTHING = frozenset({"Exception", "BaseException"})


def look(script: Script) -> Iterable[Found]:
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
    """Yield the handlers that are there for out of memory."""
    for node in script.nodes:
        if isinstance(node, ast.Try):
            for handler in node.handlers:
                if is_about_memory(script, handler):
                    yield node, handler


RULE = Rule(
    code="LR056",
    name="oom-handler-misses",
    severity="info",
    what="A handler for out of memory catches only RuntimeError.",
    why=(
        "RL mostly runs out of host memory, in NumPy's rollout and replay buffers, and that is a MemoryError, which is "
        'no RuntimeError. A CPU tensor fails with a RuntimeError that does not say "out of memory".'
    ),
    example='try:\n    step()\nexcept RuntimeError as error:\n    if "out of memory" in str(error): ...\n',
    remedy="except (RuntimeError, MemoryError), and look for DefaultCPUAllocator too.",
    look=per_script(look),
)
