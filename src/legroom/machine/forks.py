"""Files, pipes and threads belong to the process that opened them: what a process forked from it has is made harmless.

A forked process has every descriptor of its parent, with one position and one content for both, and none of its
threads. Two processes that write to one spill file damage what both have stored, two that talk through one pipe get
each other's answers, and one that waits for a thread never ends. So whatever the package holds for longer than a call
is registered here, with what makes it harmless in a forked process: it refuses with an error that says why, is made
anew when it is next needed, or writes to nowhere. This is the only place that calls `os.register_at_fork`.

Not held: what is opened and closed within one call, descriptors of `/proc/self` in the processes that `profile`
measures, and `watch`'s relay, in a process that only starts programs. Programs that are started (`subprocess`) get no
descriptor but those they are meant to have.
"""

import os
from collections.abc import Callable
from contextlib import suppress
from typing import Any, TypeVar
from weakref import WeakKeyDictionary

Holder = TypeVar("Holder")

_held: WeakKeyDictionary[Any, Callable[[Any], None]] = WeakKeyDictionary()
_functions: list[Callable[[], None]] = []


def in_forks(holder: Holder, let_go: Callable[[Holder], None]) -> Holder:
    """Have `let_go(holder)` called first of all in every process forked from this one; returns the holder.

    Args:
        holder: compared by identity; a reference to it must not be held by `let_go`, or it is never freed.
    """
    _held[holder] = let_go
    return holder


def call_in_forks(function: Callable[[], None]) -> None:
    """Have a function of a module called in every process forked from this one."""
    _functions.append(function)


def to_nowhere(descriptor: int) -> None:
    """Point a descriptor to /dev/null: what is still buffered, or written later, reaches nobody's file."""
    _replace(descriptor, os.O_RDWR)


def refusing(descriptor: int) -> None:
    """Point a descriptor to where neither reading nor writing is possible: both fail with EBADF."""
    _replace(descriptor, getattr(os, "O_PATH", os.O_RDONLY))


def _replace(descriptor: int, flags: int) -> None:
    nowhere = os.open(os.devnull, flags)
    try:
        os.dup2(nowhere, descriptor, inheritable=False)
    finally:
        os.close(nowhere)


def _after_fork() -> None:
    for holder, let_go in list(_held.items()):
        with suppress(Exception):  # one that is half built must not keep the others from it
            let_go(holder)
    for function in _functions:
        function()


os.register_at_fork(after_in_child=_after_fork)
