"""Gradients of gradients run in the order of a card.

The autograd engine takes the node with the highest number first, and numbers are counted per thread. For tensors on a
card, a backward pass that builds a graph (`create_graph=True`) runs in a thread of the device, which counts from 0; for
tensors without bytes it would run in the thread that asks for it and go on with its numbers. So there is a thread for
such passes here, too: the next pass through their nodes frees and allocates in the order of a card.

That thread also holds the results of its last pass (`torch.autograd.grad`) until it gets the next one, unless it lets
go of them before the main thread does. Over many passes it will not, once.

Mirrors torch/csrc/autograd/engine.cpp and ATen/SequenceNumber.cpp of torch 2.14.
"""

from __future__ import annotations

import queue
import sys
import threading
from typing import Any, Callable

import torch

from . import source_lines


def in_thread_of_card(follower: Any) -> Callable[[], None]:
    """Run backward passes that build a graph in a thread of their own, until what is returned is called."""
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

    named = (autograd, sys.modules.get("torch.autograd.graph"), sys.modules.get("torch._tensor"))
    modules: list[Any] = [each for each in named if getattr(each, "_engine_run_backward", None) is run_backward]
    for module in modules:
        module._engine_run_backward = run

    def undo() -> None:
        for module in modules:
            module._engine_run_backward = run_backward
        held.clear()
        thread.end()

    return undo


class _CardThread:
    """Does one piece of work after the other; its caller waits for it, as a program does for the thread of a card."""

    def __init__(self, follower: Any) -> None:
        self._follower, self._works = follower, queue.SimpleQueue[Any]()
        self._done: queue.SimpleQueue[Any] = queue.SimpleQueue()
        self._thread: threading.Thread | None = None
        self._main = threading.main_thread()
        source_lines.working = _CardThread._serve.__code__

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
        here = self._follower.here
        source_lines.caller = sys._getframe(1)
        try:
            self._works.put((work, {name: here.__dict__[name] for name in _OF_THREAD if name in here.__dict__}))
            del work
            results, error = self._done.get()
        finally:
            source_lines.caller = None
        if error is not None:
            raise error
        return results

    def end(self) -> None:
        """Let the thread end."""
        self._works.put((None, {}))

    def _serve(self) -> None:
        if not torch._C._len_torch_dispatch_stack():
            self._follower.entered().__enter__()  # as every thread of a program has it already
        while True:
            work, state = self._works.get()
            if work is None:
                return
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
