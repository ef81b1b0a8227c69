"""`torch.compile` where nothing is compiled: what it was given runs as it is, and that it was asked for is noted.

With the backends `eager` and `aot_eager` the same operators run on a card. Inductor makes kernels of its own out of
them, whose memory is planned when they are made.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any, Callable
from unittest import mock

import torch

SAME_OPERATORS = ("eager", "aot_eager", "aot_eager_decomp_partition")


class _Compiled(torch.nn.Module):
    """What `torch.compile` makes of a module: the names of its parameters begin with `_orig_mod`."""

    def __init__(self, module: Any) -> None:
        super().__init__()
        self._orig_mod = module

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        return self._orig_mod(*args, **kwargs)

    def __getattr__(self, name: str) -> Any:
        if name == "_orig_mod":
            return self._modules["_orig_mod"]
        return getattr(self._orig_mod, name)


@contextmanager
def run_uncompiled(note: Callable[[], None]) -> Iterator[None]:
    """While it lasts, nothing is compiled; `note` hears of each backend that would have made kernels of its own."""

    def compiled(model: Any = None, **options: Any) -> Any:
        if model is None:
            return functools.partial(compiled, **options)
        if not options.get("disable") and options.get("backend") not in SAME_OPERATORS:
            note()
        return _Compiled(model) if isinstance(model, torch.nn.Module) else model

    def compile_module(module: Any, *args: Any, **options: Any) -> None:
        compiled(lambda: None, **options)

    with ExitStack() as stack:
        stack.enter_context(mock.patch.object(torch, "compile", compiled))
        stack.enter_context(mock.patch.object(torch.nn.Module, "compile", compile_module))
        # counts generations of what compiled graphs keep, of which there are none; its module needs a CUDA build
        stack.enter_context(mock.patch.object(torch.compiler, "cudagraph_mark_step_begin", lambda: None, create=True))
        yield
