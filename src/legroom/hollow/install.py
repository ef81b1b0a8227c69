"""Turns this interpreter's torch into one with a card that is not there; called once torch has been imported.

What no rehearsal can run is refused: CUDA code of the program's own, and simulators that compute on a real GPU.
"""

from __future__ import annotations

import atexit
import functools
import json
import os
import sys
import threading
from contextlib import suppress
from typing import Any

from .source_lines import where

_MUCH_COLLECTED = 2 << 20  # bytes of tensors that one pass of Python's collector frees: a segment of the allocator


def begin() -> Any:
    """Open this process's journal and say what runs."""
    from . import host_memory
    from .journal import Journal

    folder = os.environ["LEGROOM_REHEARSAL_FOLDER"]
    path, count = os.path.join(folder, f"journal-{os.getpid()}"), 0
    while os.path.exists(path if count == 0 else f"{path}.{count}"):  # one process can become another (exec)
        count += 1
    journal = Journal(path if count == 0 else f"{path}.{count}")
    journal.json("started", argv=getattr(sys, "orig_argv", sys.argv), python=sys.version.split()[0])
    host_memory.watch_requests(journal)
    pid = os.getpid()

    def without_torch() -> None:
        if os.getpid() == pid and not {"torch", "jax"} & set(sys.modules):
            journal.json("no-torch")

    atexit.register(without_torch)
    return journal


def files_of_its_own() -> Any:
    """Return what redirects this interpreter's writes, None where the view that it runs in does.

    In such a view, interpreters of this installation that get none of our variables are let in by a file in it.
    """
    import shutil
    import site

    from .launcher import PTH
    from .redirecting import Redirection, copying_renames

    folder, files = os.environ["LEGROOM_REHEARSAL_FOLDER"], os.environ.get("LEGROOM_REHEARSAL_FILES")
    if files == "redirected":
        return Redirection(folder)
    if files == "discarded":
        copying_renames()
        for each in site.getsitepackages():
            if os.path.isdir(each) and not os.path.exists(os.path.join(each, PTH)):
                with suppress(OSError):
                    shutil.copy(os.path.join(folder, PTH), each)
    return None


def without_compiler(module: Any) -> None:
    """Keep torch from importing its compiler at the first optimizer, which takes seconds: nothing is compiled here."""

    def undecorated(fn: Any = None, recursive: bool = True) -> Any:
        return fn if fn is not None else undecorated

    module._disable_dynamo = undecorated


def on_torch(journal: Any) -> Any:
    """Install the card; returns its follower."""
    import torch
    from torch.utils import _device

    from . import (
        card,
        card_autocast,
        card_operators,
        compiling,
        cuda_facade,
        dispatching,
        epochs,
        fake_tensors,
        host_memory,
        second_order,
        tensor_facade,
    )

    plan = json.loads(os.environ.get("LEGROOM_REHEARSAL_PLAN") or "{}")
    _device._device_constructors()  # torch's list of what a default device applies to, as it is
    journal.json("torch", version=torch.__version__, cuda_build=torch.version.cuda)
    if not hasattr(torch.Tensor, "_use_count"):
        text = f"torch {torch.__version__} does not show what holds a gradient: some may count twice in a backward pass"
        journal.json("note", text=text)
    follower = dispatching.Follower(plan, journal)
    tensor_facade.install(follower)
    cuda_facade.install(follower)
    kernels = _kept(card_operators.operators_as_on_card(card.CardPlan.read(plan).shape))
    follower.casts = _kept(card_autocast.autocast_as_on_card(kernels))
    there = torch.ops.aten
    follower.kernels = {
        card_autocast._operator(name): each for name, each in kernels.items() if hasattr(there, name.partition(".")[0])
    }
    _kept(fake_tensors.foreach_as_on_cuda())
    second_order.in_thread_of_card(follower)
    _autocasting(follower)
    _kept(compiling.run_uncompiled(lambda: follower.tell("compile")))
    _threads(follower)
    os.register_at_fork(after_in_child=lambda: setattr(follower, "following", False))
    _optimizers(follower)
    if folder := os.environ.get("LEGROOM_REHEARSAL_FOLDER"):
        epochs.install(follower, folder, float(plan.get("looking_s") or 0))
    _collections(follower)
    _endings(follower)
    host_memory.zeros_are_fresh(torch, journal)
    dispatching.enter(follower)
    return follower


def _kept(block: Any) -> Any:
    """Enter a block for the rest of the process: it is not left even while the interpreter is taken down."""
    import ctypes

    ctypes.pythonapi.Py_IncRef(ctypes.py_object(block))
    return block.__enter__()


def _autocasting(follower: Any) -> None:
    """Know in each thread whether autocast is on for a card."""
    import torch

    from . import card_autocast

    module: Any = torch
    enable = module.set_autocast_enabled
    told: list[bool] = []

    def set_enabled(*args: Any) -> None:
        enable(*args)
        if len(args) == 1 or args[0] == "cuda":
            follower.here.autocast = args[-1]
            if args[-1] and not card_autocast.can_follow() and not told:
                told.append(True)
                what = f"autocast of torch {torch.__version__}, which computes in float32 here"
                follower.tell("unmodelled", what=what)

    module.set_autocast_enabled = set_enabled


def _threads(follower: Any) -> None:
    """Follow every thread from where it begins; modes belong to threads."""
    from .dispatching import enter

    begin_thread = threading.Thread._bootstrap_inner  # type: ignore[attr-defined]

    def bootstrap(self: threading.Thread) -> None:
        if follower.following:
            enter(follower)
        begin_thread(self)

    threading.Thread._bootstrap_inner = bootstrap  # type: ignore[attr-defined]


def _optimizers(follower: Any) -> None:
    from torch.optim.optimizer import register_optimizer_step_post_hook, register_optimizer_step_pre_hook

    from .executed_lines import Evaluations, ExecutedLines
    from .growing import GrowingContainers
    from .host_memory import HeapSamples
    from .run_length import RunLength

    growing = GrowingContainers(follower.journal, RunLength(follower).look)
    heap, evaluations = HeapSamples(follower.journal), Evaluations(follower)
    executed = ExecutedLines(follower) if os.environ.get("LEGROOM_REHEARSAL_FOLDER") else None

    def before(optimizer: Any, args: Any, kwargs: Any) -> None:
        follower.here.stepping += 1

    def after(optimizer: Any, args: Any, kwargs: Any) -> None:
        follower.here.stepping = max(follower.here.stepping - 1, 0)
        if not follower.following:
            return
        follower.optimizer_steps += 1
        steps = follower.optimizer_steps
        follower.give_back()
        if steps <= 3:
            follower.journal.json("roles", **_roles(follower, optimizer))
        told = executed.look(steps) if executed is not None else {}
        follower.journal.json("step", n=steps, thread=threading.get_ident(), **told)
        heap.look(steps)
        growing.look(steps)
        evaluations.look(steps)

    register_optimizer_step_pre_hook(before)
    register_optimizer_step_post_hook(after)


def _collections(follower: Any) -> None:
    """Tell how much Python's cycle collector frees: it runs more often here, with what we add to the program's objects.

    A tensor in a reference cycle lives until then, so the program itself may have many more of them at once.
    """
    import gc

    found = {"begin": 0, "passes": 0, "told": 0}

    def collected(phase: str, info: Any) -> None:
        if not follower.following or follower.optimizer_steps < 2:
            return
        if phase == "start":
            found["begin"] = follower.died
            return
        nbytes = follower.died - found["begin"]
        if nbytes >= _MUCH_COLLECTED:
            found["passes"] += 1
            if found["passes"] > 1 and nbytes > found["told"]:
                found["told"] = nbytes
                follower.journal.json("collected", nbytes=nbytes)

    gc.callbacks.append(collected)


def _roles(follower: Any, optimizer: Any) -> dict[str, list[int]]:
    """Return which blocks are parameters, gradients and the optimizer's state."""
    import torch

    def numbers(tensors: Any) -> list[int]:
        found = (follower.record_of(each) for each in tensors if isinstance(each, torch.Tensor))
        return sorted({record.number for record in found if record is not None and record.number >= 0})

    parameters = [each for group in optimizer.param_groups for each in group["params"]]
    return {
        "parameters": numbers(parameters),
        "gradients": numbers(each.grad for each in parameters),
        "optimizer": numbers(value for state in optimizer.state.values() for value in state.values()),
    }


def _endings(follower: Any) -> None:
    tell_failure(follower.journal)

    def ended() -> None:
        if follower.following:
            follower.give_back()
            follower.journal.json("exit", code=None)

    atexit.register(ended)


def tell_failure(journal: Any) -> None:
    """Have the exception told that ends the program, and where it was raised."""
    from .source_lines import last_user_line

    before = sys.excepthook

    def uncaught(kind: Any, error: Any, trace: Any) -> None:
        if os.getpid() == journal.pid:
            file, line = last_user_line(trace)
            journal.json("exception", type=kind.__name__, text=str(error)[:2000], file=file, line=line)
        without_our_frames(error)
        before(kind, error, error.__traceback__)

    sys.excepthook = uncaught


def without_our_frames(error: Any) -> None:
    """Take the frames of this package off the tracebacks of an exception and of those that led to it."""
    from .source_lines import OURS

    seen: set[int] = set()
    while error is not None and id(error) not in seen:
        seen.add(id(error))
        kept, trace = [], error.__traceback__
        while trace is not None:
            if not trace.tb_frame.f_code.co_filename.startswith(OURS):
                kept.append(trace)
            trace = trace.tb_next
        for one, following in zip(kept, [*kept[1:], None]):
            one.tb_next = following
        error.__traceback__ = kept[0] if kept else error.__traceback__
        error = error.__cause__ or error.__context__


SIMULATORS = ("isaacgym", "isaacsim", "isaaclab", "omni")


def on_extensions(journal: Any, module: Any) -> None:
    """Refuse to compile CUDA sources, at the line that asks for it."""
    for name in ("load", "load_inline"):
        setattr(module, name, _refusing(getattr(module, name), journal))


def _refusing(build: Any, journal: Any) -> Any:
    @functools.wraps(build)
    def made(name: Any, *args: Any, **kwargs: Any) -> Any:
        sources = kwargs.get("sources", args[0] if args else ())
        files = [sources] if isinstance(sources, str) else list(sources or ())
        inline = build.__name__ == "load_inline"
        with_cuda = kwargs.get("with_cuda") or kwargs.get("cuda_sources") or (inline and len(args) > 1 and args[1])
        if not with_cuda and not any(str(file).endswith((".cu", ".cuh")) for file in files):
            return build(name, *args, **kwargs)
        file, line = where()
        what = f"the CUDA extension {name!r}, which needs a real GPU"
        journal.json("unmodelled", what=what, file=file, line=line)
        raise RuntimeError(f"{what}, cannot be rehearsed ({file}:{line})")

    return made


def on_simulator(journal: Any, module: Any) -> None:
    """Say that a simulator needs a real GPU; it may fail by itself later."""
    file, line = where()
    journal.json("unmodelled", what=f"{module.__name__}, a simulator that needs a real GPU", file=file, line=line)
