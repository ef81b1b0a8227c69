"""General rules about scripts: what only source code can show, whichever library it trains with."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator

from legroom.checking.rule_helpers import script_rule
from legroom.checking.script_gpu import cuda_calls, environment_settings, is_straight
from legroom.model.rule import Found
from legroom.reading.interpreter.known_values import integer_of
from legroom.reading.interpreter.scopes import start
from legroom.reading.interpreter.script import Script, argument, dotted
from legroom.reading.source import walk


@script_rule("LR007")
def handwritten_minibatches(script: Script) -> Iterable[Found]:
    """`for start in range(0, batch_size, minibatch_size)` with a rest."""
    for call in script.calls:
        if script.qualified(call.func) == "range" and len(call.args) == 3:
            yield from _look_at(script, call)


def _look_at(script: Script, call: ast.Call) -> Iterable[Found]:
    first, stop, step = call.args
    step_name, stop_name = dotted(step), dotted(stop)
    if step_name is None or stop_name is None or not _is_minibatch(step_name) or integer_of(script, first) != 0:
        return
    batch, size = integer_of(script, stop), integer_of(script, step)
    if batch is None or size is None or batch <= 0:
        return
    line, wanted = _made(script, step)
    if size < 1:
        yield Found(
            f"{batch:,} samples make minibatches of {size}: range() refuses a step of 0",
            "fewer minibatches than samples", line or call.lineno, severity="error",
        )  # fmt: skip
        return
    count, rest = -(-batch // size), batch % size
    if rest:
        odd = "; its advantages cannot be normalised and become NaN" if rest == 1 else ""
        number = f", {count} minibatches and not {wanted}" if wanted is not None and wanted != count else ""
        yield Found(
            f"{batch:,} samples in minibatches of {size:,}: the last has only {rest:,}{number}{odd}",
            "a number of minibatches that divides num_envs × num_steps", line or call.lineno,
        )  # fmt: skip
    elif wanted is not None and wanted != count:
        yield Found(
            f"{batch:,} samples in minibatches of {size:,} are {count} minibatches, not {wanted}",
            "a number of minibatches that divides num_envs × num_steps", line or call.lineno,
        )  # fmt: skip


def _is_minibatch(name: str) -> bool:
    return any(word in name.lower() for word in ("minibatch", "mini_batch", "mb_size"))


def _made(script: Script, step: ast.expr) -> tuple[int | None, int | None]:
    """Return the line that computes the minibatch's size, and how many minibatches it is meant to make."""
    value: ast.expr | None = None
    line = None
    if isinstance(step, ast.Name):
        bindings = script.scopes.reaching(step)
        if len(bindings) == 1:
            value, line = bindings[0].value, getattr(bindings[0].node, "lineno", None)
    elif isinstance(step, ast.Attribute):
        stores = [s for target, s in script.stores_of(step.attr) if dotted(target) == dotted(step)]
        if len(stores) == 1 and isinstance(stores[0], ast.Assign):
            value, line = stores[0].value, stores[0].lineno
    for part in walk(value) if value is not None else ():
        if isinstance(part, ast.BinOp) and isinstance(part.op, ast.FloorDiv | ast.Div):
            return line, integer_of(script, part.right)
    return line, None


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
    """Yield the handlers that are there for out of memory."""
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


MANY = 100_000  # samples that wait: 19 GB of pictures of 224×224×3 as bytes are 124,000
_PREFETCH = 2  # torch's default, for each worker


@script_rule("LR092")
def loader_ahead(script: Script) -> Iterable[Found]:
    """A DataLoader that holds very many samples ahead in pinned memory."""
    for call in script.calls_of("torch.utils.data.DataLoader", "torch.utils.data.dataloader.DataLoader"):
        pinned = argument(call, "pin_memory")
        batch, workers = (
            integer_of(script, argument(call, "batch_size", 1)),
            integer_of(script, argument(call, "num_workers")),
        )
        factor = argument(call, "prefetch_factor")
        ahead = _PREFETCH if factor is None else integer_of(script, factor)
        if not (isinstance(pinned, ast.Constant) and pinned.value is True and batch and workers and ahead):
            continue
        waiting = batch * workers * ahead
        if waiting >= MANY:
            yield Found(
                f"{workers} workers × {ahead} batches × {batch:,} samples = {waiting:,} samples wait in memory, and "
                "pin_memory locks each batch a second time",
                "smaller prefetch_factor or fewer workers",
                call.lineno,
            )
