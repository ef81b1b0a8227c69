"""Whether a program that ran out of GPU memory tried the same again with less, and went on training.

An out-of-memory error of the simulated GPU is the verdict, whatever the program does with it. The one exception is a
retry, and it is told by the source as well as by what happened then. The source: the `try` that caught the error is run
again with something smaller, in one of three ways:

- in a loop that ends when it succeeds: `while True: try: return train(n) ...`, `for n in (64, 32): try: ...; break`;
- in a loop, and the handler assigns what the `try` uses: `except OutOfMemoryError: n //= 2`;
- the handler, or what it leads to, calls what the `try` called: `except OutOfMemoryError: failed = True`, and then
  `if failed: train(n // 2)`.

A handler that prints, or leaves out a batch, is none of these. What happened: the line that failed, or another one of
that `try`, was served afterwards, and at least two optimizer steps of the same thread followed.
"""

from __future__ import annotations

import ast
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from legroom.backends.program.journals import Frame, Site
from legroom.backends.program.source import (
    Function,
    Loop,
    around,
    assigned,
    blocks_of,
    last_line,
    name_of,
    names_in,
    parsed,
    scope_of,
)

STEPS_AFTER = 2
_CATCH_IT = {"Exception", "BaseException", "RuntimeError", "MemoryError", "OutOfMemoryError", "AcceleratorError"}
_NOT_THE_WORK = {"", "print", "empty_cache", "collect", "zero_grad", "len", "int", "max", "min", "float", "str"}
Span = tuple[str, int, int]  # file, first and last line


@dataclass
class FailedRequest:
    """A request that did not fit, and what the program did after it."""

    message: dict[str, Any]  # of the guest
    retried_in: Span | None = field(init=False)  # the `try` that runs again with less; None where the source shows none
    steps: int = 0  # optimizer steps of its thread since then
    # where the first request of the retry was served, and after how many of these steps
    served: tuple[Frame, int] | None = None

    def __post_init__(self) -> None:
        self.retried_in = find_retry([(str(file), int(line)) for file, line in self.message.get("chain") or ()])

    @property
    def retried_at(self) -> tuple[str, int] | None:
        """The line with which the program went on training; None where it did not."""
        if self.served is None or self.steps < self.served[1] + STEPS_AFTER:
            return None
        return self.served[0][:2]

    def see_request(self, site: Site) -> None:
        """Take in a request that was served."""
        if self.served is not None or self.retried_in is None:
            return
        file, first, last = self.retried_in
        failed = (self.message.get("file"), self.message.get("line"))
        if any(each[:2] == failed or (each[0] == file and first <= each[1] <= last) for each in site.frames):
            self.served = site.frames[0], self.steps

    def see_step(self, thread: object) -> None:
        """Take in an optimizer step."""
        self.steps += thread == self.message.get("thread")


def find_retry(chain: Sequence[tuple[str, int]]) -> Span | None:
    """Return the `try` that catches an error of a chain of calls, innermost first, if it is run again with less."""
    for file, line in chain:
        tree = parsed(file)
        path = scope_of(around(tree, line)) if tree is not None else []
        for at in range(len(path) - 1, -1, -1):
            block = path[at]
            if isinstance(block, ast.With | ast.AsyncWith):
                calls = [item.context_expr for item in block.items if isinstance(item.context_expr, ast.Call)]
                if any("suppress" in _names(call.func) for call in calls):
                    return None
            if not isinstance(block, ast.Try) or not block.body[0].lineno <= line <= last_line(block.body[-1]):
                continue
            catching = (each for each in block.handlers if each.type is None or _names(each.type) & _CATCH_IT)
            handler = next(catching, None)
            if handler is None or isinstance(handler.body[-1], ast.Raise):
                continue
            return (file, block.lineno, last_line(block)) if _runs_again(block, handler, path[:at]) else None
    return None


def _names(node: ast.AST) -> set[str]:
    return {name_of(each) for each in names_in(node) if isinstance(each.ctx, ast.Load)}


def _called(*nodes: ast.AST) -> set[str]:
    calls = (each for node in nodes for each in ast.walk(node) if isinstance(each, ast.Call))
    return {name_of(each.func) for each in calls} - _NOT_THE_WORK


def _runs_again(block: ast.Try, handler: ast.ExceptHandler, parents: Sequence[ast.AST]) -> bool:
    work = ast.Module([*block.body, *block.orelse], [])
    uses = _names(work)
    loop = next((each for each in reversed(parents) if isinstance(each, Loop)), None)
    if loop is not None:
        ends = any(isinstance(each, ast.Break | ast.Return) for each in (block.body[-1], *block.orelse[-1:]))
        varied = isinstance(loop, ast.While) or bool(assigned(loop) & uses)
        if (ends and varied) or assigned(handler) & uses:
            return True
    beside = next((each for each in blocks_of(parents[-1]) if block in each), [block])
    after = [
        each for each in beside[beside.index(block) + 1 :]
        if isinstance(each, ast.Return) or (isinstance(each, ast.If) and _names(each.test) & assigned(handler))
    ]  # fmt: skip
    function = {each.name for each in parents if isinstance(each, Function)}
    return bool(_called(handler, *after) & (_called(work) | function))
