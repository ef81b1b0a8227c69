"""Gradients of gradients run in the order of a card.

The autograd engine takes the node with the highest number first, and numbers are counted per thread. For tensors on a
card, a backward pass that builds a graph (`create_graph=True`) runs in a thread of the device, which counts from 0; for
hollow ones it runs in the main thread and goes on with its numbers. Nodes made in such a pass get the numbers here that
they would have had, so that the next pass through them frees and allocates in the same order.

That thread also holds the results of its last pass (`torch.autograd.grad`) until it gets the next one, unless it lets
go of them before the main thread does. Over many passes it will not, once.

A rehearsed program has a thread for such passes (`in_thread_of_card`), so that numbers are those of a card throughout.

Mirrors torch/csrc/autograd/engine.cpp and ATen/SequenceNumber.cpp of torch 2.14.
"""

from __future__ import annotations

import queue
import sys
import threading
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


def in_thread_of_card(follower: Any) -> None:
    """Run backward passes that build a graph in a thread of their own, for the rest of the process."""
    autograd: Any = torch.autograd
    run_backward = autograd._engine_run_backward
    thread = _CardThread(follower)
    held: list[Any] = []  # results of the last pass

    def run(*args: Any, **kwargs: Any) -> Any:
        while held:
            held.pop()  # the last one first
        builds = args[3] if len(args) > 3 else kwargs.get("create_graph", False)
        if not builds or not thread.takes():
            results = run_backward(*args, **kwargs)
        else:
            results = thread.run(lambda: run_backward(*args, **kwargs))
        held.extend(results or ())
        return results

    autograd._engine_run_backward = run
    for module in (sys.modules.get("torch.autograd.graph"), sys.modules.get("torch._tensor")):
        if getattr(module, "_engine_run_backward", None) is run_backward:
            module._engine_run_backward = run  # type: ignore[union-attr]


class _CardThread:
    """Does one piece of work after the other; its caller waits for it, as a program does for the thread of a card."""

    def __init__(self, follower: Any) -> None:
        self._follower, self._works = follower, queue.SimpleQueue[Any]()
        self._done: queue.SimpleQueue[Any] = queue.SimpleQueue()
        self._thread: threading.Thread | None = None
        self._main = threading.main_thread()
        follower.sites.goes_on_with_caller(_CardThread._serve)

    def takes(self) -> bool:
        """Return whether work may be done there: a state of the caller's thread that the other lacks is none."""
        module: Any = torch._C
        stack = getattr(module._functorch, "peek_interpreter_stack", lambda: None)
        return (
            self._follower.following and threading.current_thread() is self._main
            and module._current_graph_task_id() == -1 and not module._len_torch_function_stack()
            and module._len_torch_dispatch_stack() == 1 and stack() is None
            and not torch.is_autocast_enabled() and not torch.is_inference_mode_enabled()
        )  # fmt: skip

    def run(self, work: Any) -> Any:
        if self._thread is None:
            self._thread = threading.Thread(target=self._serve, name="backward", daemon=True)
            self._thread.start()
        here, sites = self._follower.here, self._follower.sites
        sites.caller = sys._getframe(1)
        try:
            self._works.put((work, {name: here.__dict__[name] for name in _OF_THREAD if name in here.__dict__}))
            del work
            results, error = self._done.get()
        finally:
            sites.caller = None
        if error is not None:
            raise error
        return results

    def _serve(self) -> None:
        while True:
            work, state = self._works.get()
            for name in _OF_THREAD:
                self._follower.here.__dict__.pop(name, None)
            self._follower.here.__dict__.update(state)
            results = error = None
            try:
                results = work()
            except BaseException as failure:
                error = failure
            del work
            self._done.put((results, error))
            del results, error


_OF_THREAD = ("device", "streams", "stepping")
