"""Gradients of gradients run in the order of a card.

The autograd engine takes the node with the highest number first, and numbers are counted per thread. For tensors on a
card, a backward pass that builds a graph (`create_graph=True`) runs in a thread of the device, which counts from 0; for
hollow ones it runs in the main thread and goes on with its numbers. Nodes made in such a pass get the numbers here that
they would have had, so that the next pass through them frees and allocates in the same order.

That thread also holds the results of its last pass (`torch.autograd.grad`) until it gets the next one, unless it lets
go of them before the main thread does. Over many passes it will not, once.

Mirrors torch/csrc/autograd/engine.cpp and ATen/SequenceNumber.cpp of torch 2.14.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any
from unittest import mock

import torch


@contextmanager
def numbered_as_on_card() -> Iterator[None]:
    """While it lasts, nodes made in backward passes are numbered as those of a device's thread."""
    autograd: Any = torch.autograd
    run_backward, count = autograd._engine_run_backward, autograd._get_sequence_nr
    made = 0  # nodes of the device's thread so far; the main thread's numbers are so many too high
    held: list[Any] = []  # results of the last pass

    def numbered(*args: Any, **kwargs: Any) -> Any:
        nonlocal made
        while held:
            held.pop()  # the last one first
        start = count()
        results = run_backward(*args, **kwargs)
        held.extend(results or ())
        new = count() - start
        if new:
            for node in _nodes(results, start, start + new):
                node._set_sequence_nr(2 * made + node._sequence_nr() - start)
            made += new
        return results

    with mock.patch.object(autograd, "_engine_run_backward", numbered):
        yield
    held.clear()


def _nodes(results: Iterable[Any] | None, first: int, end: int) -> list[Any]:
    """Return the nodes behind results whose numbers are in a range."""
    waiting = [each.grad_fn for each in results or () if isinstance(each, torch.Tensor)]
    seen: set[Any] = set()
    while waiting:
        node = waiting.pop()
        if node is not None and node not in seen:
            seen.add(node)
            waiting += [below for below, _ in node.next_functions]
    return [node for node in seen if first <= node._sequence_nr() < end]
