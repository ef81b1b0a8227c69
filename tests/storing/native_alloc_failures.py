"""Makes each allocation of the C core fail in turn: MemoryError, nothing lost, nothing leaked, and storing goes on.

Needs a build with LEGROOM_FAIL_ALLOC, whose `fail_after(n)` lets the n-th allocation from now fail; `make test-native`
makes one and runs this file with it. Not collected by pytest: the usual build has no such function.
"""

from __future__ import annotations

import ctypes
import gc
import random
import sys
import tempfile
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from generated import ARENA_BYTES, CHANGES, WHOLE, Dump, Layout, Plain, Step

import conftest  # noqa: F401  # makes LEGROOM_CORE the core
from legroom.storing import _core as core

LAYOUTS = (
    Layout("u1", (61,), page_bytes=64),
    Layout("f4", (70,), n_streams=2, page_bytes=64),
    Layout("u1", (8, 40), axis=1, n_stack=4, n_streams=2, page_bytes=128),
    Layout("f4", (3, 5, 2), axis=2, n_stack=3, newest_first=True, page_bytes=64, compress=False),
    Layout("u1", (9000,), n_stack=2, page_bytes=4096),
)
ENOUGH = 12  # after so many allocation numbers in a row that no longer matter, none will
MANY = 10_000


class Wrong(Exception):
    """Something was lost or leaked."""


def steps_of(layout: Layout, n: int) -> list[Step]:
    """Return changes of all kinds, the same every time."""
    rng = random.Random(n)
    return [
        Step(rng.choice((*CHANGES, *WHOLE)), rng.randrange(layout.n_streams), rng.getrandbits(16)) for _ in range(n)
    ]


def u32(values: list[int]) -> np.ndarray:
    return np.array(values, np.uint32)


def check(store: object, plain: Plain, when: str) -> None:
    """Compare everything in the store with what was stored."""
    layout = plain.layout
    lengths = [store.length(stream) for stream in range(layout.n_streams)]
    if lengths != [len(stored) for stored in plain.stored]:
        raise Wrong(f"{when}: {lengths} frames, {layout}")
    places = plain.places()
    out = np.empty((len(places), layout.n_stack * layout.frame_bytes), np.uint8)
    store.read(u32([stream for stream, _ in places]), u32([number for _, number in places]), out)
    for place, row in zip(places, out, strict=True):
        if row.tobytes() != plain.at(*place):
            raise Wrong(f"{when}: observation {place} is another one, {layout}")


class Failures:
    """Lets allocations fail, and counts them."""

    def __init__(self) -> None:
        self.count = 0

    def first(
        self, attempt: Callable[..., Any], *arguments: object, then: Callable[[str], None] = lambda _: None
    ) -> Any:
        """Let the first, second, third … allocation of an attempt fail until it succeeds; return what it returns.

        Args:
            then: called after each failure, with words that say which it was.
        """
        for n in range(1, MANY):
            core.fail_after(n)
            try:
                result = attempt(*arguments)
            except MemoryError:
                core.fail_after(0)
                self.count += 1
                then(f"allocation {n} of {getattr(attempt, '__name__', attempt)}")
            else:
                core.fail_after(0)
                return result
        raise Wrong("an attempt that never succeeds")


def appends_fail_one_by_one(layout: Layout, failures: Failures) -> None:
    """Let every allocation of every append fail before it succeeds."""
    store, plain = core.Store(**layout.arguments), Plain(layout)
    compare = partial(check, store, plain)
    for step in steps_of(layout, 60):
        number = failures.first(store.append, step.stream, plain.follow(step), then=compare)
        if number != plain.store(step.stream):
            raise Wrong(f"{step} has number {number} instead of {len(plain.stored[step.stream]) - 1}, {layout}")
    compare("at the end")


def one_append_fails_and_is_given_up(layout: Layout, failures: Failures) -> None:
    """Let one allocation of a whole sequence fail, each in turn; that observation is lost, those after it are not."""
    quiet = 0
    for n in range(1, MANY):
        store, plain, failed = core.Store(**layout.arguments), Plain(layout), 0
        core.fail_after(n)
        for step in steps_of(layout, 30):
            observation = plain.follow(step)
            try:
                number = store.append(step.stream, observation)
            except MemoryError:
                failed += 1
                plain.shown[step.stream] = plain.stored[step.stream][-layout.n_stack :]
                continue
            if number != plain.store(step.stream):
                raise Wrong(
                    f"allocation {n} of all failed: {step} has number {number} instead of "
                    f"{len(plain.stored[step.stream]) - 1}, {layout}"
                )
        core.fail_after(0)
        check(store, plain, f"allocation {n} of all")
        failures.count += failed
        quiet = 0 if failed else quiet + 1
        if quiet == ENOUGH:
            return
    raise Wrong("allocations without end")


def rows_fail(layout: Layout, failures: Failures) -> None:
    """Let every allocation of `append_all` fail: streams before the one that failed have theirs, and take it again."""
    store, plain = core.Store(**layout.arguments), Plain(layout)
    streams = range(layout.n_streams)
    for step in steps_of(layout, 20):
        row = np.stack([plain.follow(replace(step, stream=stream)) for stream in streams])
        before = [list(stored) for stored in plain.stored]
        expected, numbers = [plain.store(stream) for stream in streams], u32([0] * layout.n_streams)
        failures.first(store.append_all, row, numbers, then=partial(_check_row, store, plain, before))
        if numbers.tolist() != expected:
            raise Wrong(f"append_all gave {numbers.tolist()} instead of {expected}, {layout}")
    check(store, plain, "after append_all")


def pairs_fail(layout: Layout, failures: Failures) -> None:
    """Let every allocation of `append_pairs` fail: a row's number stays what it was until all of it is stored."""
    store, plain, streams = core.Store(**layout.arguments), Plain(layout), range(layout.n_streams)
    numbers, unused = np.full((1, layout.n_streams), 0xABCDEF, np.uint32), np.zeros((1, layout.n_streams), np.uint32)
    shown = np.stack([plain.follow(replace(next(iter(steps_of(layout, 1))), stream=stream)) for stream in streams])
    for step in steps_of(layout, 20):
        followed = np.stack([plain.follow(replace(step, stream=stream)) for stream in streams])
        before = numbers.copy()

        def unchanged(when: str, before: np.ndarray = before) -> None:
            if (numbers != before).any():
                raise Wrong(f"{when}: a row that was not stored has a number, {layout}")

        failures.first(store.append_pairs, shown, followed, numbers, 0, then=unchanged)
        for side, expected in enumerate((shown, followed)):
            out = np.empty((layout.n_streams, layout.n_stack * layout.frame_bytes), np.uint8)
            envs = np.arange(layout.n_streams)
            core.gather_ring((store,), np.array([0]), 1, 1, layout.n_streams, numbers, 0 * envs, envs, side, out, out)
            if out.tobytes() != expected.tobytes():
                raise Wrong(f"side {side} of a row is another one, {layout}")
        shown = followed
    try:
        store.append_pairs(shown, shown, unused, 1)
    except ValueError:
        return
    raise Wrong("a row that does not exist was written")


def _check_row(store: object, plain: Plain, before: list[list[bytes]], when: str) -> None:
    """Check a store in which the first streams have the newest row, the others not yet."""
    reached = Plain(plain.layout)
    reached.stored = [
        whole if store.length(stream) == len(whole) else part
        for stream, (part, whole) in enumerate(zip(before, plain.stored, strict=True))
    ]
    check(store, reached, when)


def filled(layout: Layout, n: int = 40) -> tuple[object, Plain]:
    store, plain = core.Store(**layout.arguments), Plain(layout)
    for step in steps_of(layout, n):
        store.append(step.stream, plain.follow(step))
        plain.store(step.stream)
    return store, plain


def making_loading_reading_fail(layout: Layout, failures: Failures) -> None:
    """Let every allocation fail of making a store, loading a dump, reading, gathering, spilling; all succeed after."""
    written, plain = filled(layout)
    dump = Dump.of(written).scattered(3)
    with tempfile.TemporaryFile() as file:
        store = failures.first(partial(core.Store, **layout.arguments, fd=file.fileno()))
        failures.first(store.load, dump.index, dump.arenas, then=partial(check, store, Plain(layout)))
        compare = partial(check, store, plain)
        compare("after loading")
        (stream, number), each = plain.places()[-1], layout.n_stack * layout.frame_bytes
        columns, out = (u32([stream]), u32([number])), np.empty((2, each), np.uint8)
        failures.first(store.read, *columns, out[0])
        failures.first(core.gather, (store,), u32([0]), *columns, out[1])
        if {row.tobytes() for row in out} != {plain.at(stream, number)}:
            raise Wrong(f"reading after a failure, {layout}")
        failures.first(store.spill, 0, then=compare)
        compare("after spilling")
        for step in steps_of(layout, 10):
            failures.first(store.append, step.stream, plain.follow(step), then=compare)
            plain.store(step.stream)
            compare("after spilling and storing")
        count_before = failures.count
        failures.first(store.seal)
        if failures.count > count_before:
            raise Wrong("sealing needs no memory")
        compare("after sealing")


def allocated_bytes() -> int:
    """Return the bytes that malloc gave out and did not get back, 0 if there is no sanitizer that counts them."""
    gc.collect()
    counter = getattr(ctypes.CDLL(None), "__sanitizer_get_current_allocated_bytes", None)
    if counter is None:
        return 0
    counter.restype = ctypes.c_size_t
    return int(counter())


def mapped_bytes() -> int:
    """Return the bytes of address space, which arenas are part of."""
    return int(Path("/proc/self/statm").read_text().split()[0]) * 4096


def nothing_leaks(layout: Layout) -> None:
    """Fail the same way again and again: memory must not grow with it.

    A round has dozens of failures, so that a block lost in each costs hundreds of bytes a round, an arena dozens of
    MiB; the interpreter's own memory moves by a few bytes.
    """
    rounds = 24
    for i in range(rounds + 4):
        if i == 4:  # whatever is allocated once and kept is there by now
            allocated, mapped = allocated_bytes(), mapped_bytes()
        making_loading_reading_fail(layout, Failures())
        appends_fail_one_by_one(layout, Failures())
    blocks, arenas = (allocated_bytes() - allocated) // rounds, (mapped_bytes() - mapped) // rounds
    if blocks > 100 or arenas > ARENA_BYTES:
        raise Wrong(f"a round loses {blocks:,} bytes of blocks and {arenas:,} of address space, {layout}")


def main() -> int:
    if not hasattr(core, "fail_after"):
        sys.stderr.write("this build of the core has no fail_after: run `make test-native`\n")
        return 2
    failures = Failures()
    try:
        for layout in LAYOUTS:
            appends_fail_one_by_one(layout, failures)
            one_append_fails_and_is_given_up(layout, failures)
            rows_fail(layout, failures)
            pairs_fail(layout, failures)
            making_loading_reading_fail(layout, failures)
        for layout in LAYOUTS[1:3]:
            nothing_leaks(layout)
    except Wrong as wrong:
        sys.stderr.write(f"{wrong}\n")
        return 1
    sys.stdout.write(f"{failures.count} allocations failed, nothing was lost\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
