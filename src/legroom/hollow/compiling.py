"""`torch.compile` where nothing is compiled: what it was given runs as it is, and that it was asked for is noted.

With the backends `eager` and `aot_eager` the same operators run on a card. Inductor makes kernels of its own out of
them, whose memory is planned when they are made.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any
from unittest import mock

import torch

SAME_OPERATORS = ("eager", "aot_eager", "aot_eager_decomp_partition")


@contextmanager
def run_uncompiled() -> Iterator[list[str]]:
    """While it lasts, nothing is compiled; gives the list of backends that would have made kernels of their own."""
    asked: list[str] = []

    def note(backend: Any) -> None:
        name = backend if isinstance(backend, str) else getattr(backend, "__name__", "own")
        if name not in SAME_OPERATORS:
            asked.append(name)

    def compiled(model: Any = None, **options: Any) -> Any:
        if model is None:
            return lambda given: compiled(given, **options)
        if not options.get("disable"):
            note(options.get("backend", "inductor"))
        return model

    def compile_module(module: Any, *args: Any, **options: Any) -> None:
        compiled(module, **options)

    with ExitStack() as stack:
        stack.enter_context(mock.patch.object(torch, "compile", compiled))
        stack.enter_context(mock.patch.object(torch.nn.Module, "compile", compile_module))
        yield asked
