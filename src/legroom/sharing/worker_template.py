"""The process that the workers of one vector environment are forked from, so that what they import is there once.

A fresh interpreter with numpy and gymnasium has 23 MB of its own, a process forked from such an interpreter 5. The
template imports what workers need, unpickles the env functions, which imports their modules, and then only forks and
tells the trainer how its children ended. The trainer itself is never forked: it has threads, and torch.

What is imported later, cached or first executed in a worker is there once per worker. So an environment can have that
done here: where env functions are `partial(Kind, ...)`, or Kind itself, and there is a `Kind.prepare_workers`, it is
called before the first fork with the arguments of the first of them. That holds for functions in place of Kind, too.

What was imported may make a fork other than a fresh start. Then the template says so and ends, and every worker is an
interpreter of its own:

- threads would be missing in the workers, with their locks held for ever;
- an open file or connection would be one for all workers, with one position;
- a random generator that was seeded by chance when its module was imported would be equal in all workers. (Those of
  Python and NumPy that everybody has are seeded anew.)

Workers die with the template and the template with the trainer (`worker.hold_lifeline`). A forked worker returns from
`main` into the interpreter's usual end: exit codes, tracebacks and exit functions are those of any Python program.
"""

from __future__ import annotations

import gc
import json
import os
import pickle
import random
import select
import signal
import socket
import sys
import warnings
from contextlib import suppress
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np

import legroom.sharing.shared  # noqa: F401  for environments that share: imported here, it is imported once
from legroom.machine.tree import give_back
from legroom.sharing.worker import EnvFns, hold_lifeline, put_off_packages, register, run_worker

FDS = ("commands", "replies", "life", "words", "shared")  # of a worker, in the order in which they are sent
MESSAGE_NBYTES = 4096
GENERATORS = (np.random.Generator, np.random.RandomState, np.random.BitGenerator, random.Random)


class _NotForkable(Exception):
    """Workers should rather be fresh interpreters; says why."""


def main() -> None:
    """Fork workers until the trainer closes its socket. The last argument is JSON: descriptors and the trainer's pid.

    Returns in the workers only, once they have ended.
    """
    put_off_packages()
    task = json.loads(sys.argv[-1])
    del sys.argv[1:]
    fds = task["fds"]
    for fd in fds.values():
        os.set_inheritable(fd, False)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    hold_lifeline(fds["life"], task["trainer"], started_by_main_thread=task["main_thread"])
    trainer = socket.socket(fileno=fds["socket"])
    template = os.getpid()
    try:
        env_fns = _prepare(fds["functions"])
        if os.getpid() != template:  # forked by a module that was imported
            os._exit(0)
        trainer.send(json.dumps({"ready": True}).encode())
        worker_fds = _serve(trainer)
    except _NotForkable as reason:
        trainer.send(json.dumps({"ready": False, "why": str(reason)}).encode())
        os._exit(0)
    except OSError:  # the trainer is gone
        os._exit(1)
    os.close(fds["life"])
    run_worker(worker_fds, template, started_by_main_thread=True, env_fns=env_fns)


def _prepare(functions: int) -> EnvFns:
    """Import and unpickle what the workers need."""
    fds_before, generators_before = _foreign_fds(), _generators()
    try:
        with open(functions, "rb") as file:
            registered, modules = pickle.load(file)
            register(registered)
            env_fns: EnvFns = pickle.load(file)
        for wanted in modules:
            with suppress(ImportError, AttributeError):  # the worker that makes the environment will say so
                module, _, name = wanted.partition(":")
                imported = import_module(module)
                if name:
                    getattr(imported, name)  # which imports it where exports are lazy
        _let_prepare(env_fns[0])
    except Exception as wrong:  # a fresh worker says it better: with env, step and traceback
        raise _NotForkable(f"preparing the env functions raised {wrong!r}") from wrong
    gc.collect()  # or generators that nobody holds any more would count
    if len(list(Path("/proc/self/task").iterdir())) > 1:
        raise _NotForkable("threads are running once the env functions are unpickled")
    if opened := _foreign_fds() - fds_before:
        raise _NotForkable(f"a module of the env functions leaves {len(opened)} files or connections open")
    if _generators() - generators_before:
        raise _NotForkable("a module of the env functions, or one of them, holds a random generator")
    return env_fns


def _let_prepare(env_fn: Any) -> None:
    """Call `prepare_workers` of what makes the environments, if it has one."""
    called = env_fn if isinstance(env_fn, partial) else partial(env_fn)
    prepare = getattr(called.func, "prepare_workers", None)
    if prepare is not None:
        prepare(*called.args, **called.keywords)


def _foreign_fds() -> set[str]:
    """Return the descriptors that are open, but for those by which `share` maps arrays, which nobody reads from."""
    found = set()
    for path in Path("/proc/self/fd").iterdir():
        with suppress(OSError):  # that of the listing itself
            target = path.readlink()
            if target.suffix != ".arrays" and "legroom-shared-" not in target.name:
                found.add(path.name)
    return found


def _generators() -> set[int]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # some objects warn when they are looked at
        return {id(each) for each in gc.get_objects() if isinstance(each, GENERATORS)}


def _serve(trainer: socket.socket) -> dict[str, int]:
    """Fork a worker for every message, and tell how workers end; returns in the workers, with their descriptors."""
    children: dict[int, int] = {}
    poll = select.poll()
    poll.register(trainer, select.POLLIN)
    gc.collect()
    give_back()
    gc.freeze()  # or the first collection in a worker would write to all that is shared
    while True:
        for fd, _ in poll.poll():
            if fd in children:
                poll.unregister(fd)
                os.close(fd)
                pid, status = os.waitpid(children.pop(fd), 0)
                trainer.send(json.dumps({"ended": [pid, os.waitstatus_to_exitcode(status)]}).encode())
                continue
            message, fds, *_ = socket.recv_fds(trainer, MESSAGE_NBYTES, len(FDS))
            if not message:
                os._exit(0)
            sys.stdout.flush()  # or every worker would say it again
            sys.stderr.flush()
            try:
                pid = os.fork()
            except OSError as refused:
                pid = -1
                trainer.send(json.dumps({"forked": None, "why": str(refused)}).encode())
            if pid == 0:
                os.setpgid(0, 0)
                trainer.close()
                for each in children:
                    os.close(each)
                return dict(zip(FDS, fds, strict=True))
            for each in fds:  # the workers to come must not hold this one's pipes
                os.close(each)
            if pid > 0:
                with suppress(OSError):  # on both sides, so that whoever is first has it done; it may also be gone
                    os.setpgid(pid, pid)
                handle = os.pidfd_open(pid)
                children[handle] = pid
                poll.register(handle, select.POLLIN)
                socket.send_fds(trainer, [json.dumps({"forked": pid}).encode()], [handle])
