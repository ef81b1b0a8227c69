"""Which lines leave memory behind: a short pass with every allocation followed; runs in a child of its own.

The environment is stepped untracked first, so that what it keeps once (caches, modules) is there already. Then some
thousand steps are tracked, and what they allocated and did not free is added up by the user's own line. memray sees
C and Python allocations alike (the child runs with PYTHONMALLOC=malloc, so that every object is one of its own);
tracemalloc, where memray is not installed, sees Python's and NumPy's.

Python keeps freed dicts, tuples, lists and floats for the next that needs one; whoever leaks such a second-hand object
did not allocate it, and the blame would go to the line that did. A full collection throws them away, so there is one
after every tracked step.

Beside the lines, the lists, dicts, sets and deques that have more entries after either half are named by what refers to
them: where the line allocates is often far from what keeps the object.

One live object of an environment is no leak, so a line counts only where it left something behind in both halves of the
tracked steps; the shares of the halves are compared by steps.
"""

from __future__ import annotations

import gc
from collections import defaultdict, deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from types import ModuleType
from typing import Any

from legroom.profiling.own_frames import Frame, env_folders, library_folders, own_frame
from legroom.profiling.stepping import SEED, Stepper

MOST_LINES, MOST_CONTAINERS = 10, 3
LEAST_SHARE = 0.02  # of the largest line
LEAST_PER_STEP = 0.25  # bytes
TRACEMALLOC_FRAMES = 25

_CONTAINERS = (list, dict, set, deque)

Sizes = dict[Frame, int]
Located = Callable[[list[Frame]], Frame | None]


def find_lines(
    env: Any, built_from: dict[str, Any], folder: str, *, warm_up: int, steps: int, seed: int = SEED, tool: str = ""
) -> dict[str, Any]:
    """Return `{"found_by", "lines", "kept_in"}`: lines that leave memory behind, largest first; what grew meanwhile.

    Args:
        warm_up: steps before anything is tracked.
        steps: tracked, in two halves.
        tool: `memray` or `tracemalloc`; the better one that there is if left out.

    Raises:
        EnvError: the environment raised.
    """
    libraries, envs = library_folders(), env_folders(env)
    tool = tool or ("memray" if find_spec("memray") is not None else "tracemalloc")
    track = {"memray": _memray, "tracemalloc": _tracemalloc}[tool]
    stepper = Stepper(env, seed=seed)
    stepper.advance(warm_up)
    gc.collect()
    containers = [each for each in gc.get_objects() if isinstance(each, _CONTAINERS)]
    sizes_then = [[len(each) for each in containers]]
    gc.freeze()  # makes the many collections that follow cheap
    halves: list[Sizes] = []
    half = max(1, steps // 2)
    try:
        for number in range(2):
            sizes: Sizes = {}
            with track(Path(folder, f"half-{number}.bin"), lambda stack: own_frame(stack, libraries, envs), sizes):
                for _ in range(half):
                    stepper.advance(1)
                    gc.collect()
            halves.append(sizes)
            sizes_then.append([len(each) for each in containers])
    finally:
        gc.unfreeze()
    grew = [
        (after - middle, number)
        for number, (before, middle, after) in enumerate(zip(*sizes_then, strict=True)) if before < middle < after
    ]  # fmt: skip
    named = {_name_of(containers[number], containers): None for _, number in sorted(grew, reverse=True)}
    return {"found_by": tool, "lines": _rank(halves, half), "kept_in": [*filter(None, named)][:MOST_CONTAINERS]}


def _name_of(container: Any, others: list[Any]) -> str:
    """Return `Owner.attribute (list) of Kind`, or `module.name (…)`; empty where neither an object nor a module has it.

    An instance that has no dict of its own refers to its attributes itself; else its dict does.
    """
    newest = next(reversed(list(container.values() if isinstance(container, dict) else container)), None)
    what = f"({type(container).__name__}) of {type(newest).__name__}"
    for referrer in gc.get_referrers(container):
        if referrer is others:
            continue
        owners = [referrer, *gc.get_referrers(referrer)] if isinstance(referrer, dict) else [referrer]
        for owner in owners:
            attributes = {} if owner is others else getattr(owner, "__dict__", {})
            name = next((name for name, value in list(attributes.items()) if value is container), "")
            if name and not type(owner).__module__.startswith(("legroom.profiling", "memray")):
                kept = owner.__name__ if isinstance(owner, type | ModuleType) else type(owner).__name__
                return f"{kept}.{name} {what}"
    return ""


def _rank(halves: list[Sizes], half: int) -> list[dict[str, Any]]:
    """Return the lines with what each left behind per step, the functions' frames of one line taken together."""
    kept = {frame: min(sizes.get(frame, 0) for sizes in halves) for frame in halves[0]}
    per_step = {
        frame: sum(sizes[frame] for sizes in halves) / (2 * half)
        for frame, least in kept.items()
        if least / half >= LEAST_PER_STEP
    }
    largest = max(per_step.values(), default=0.0)
    ranked = sorted(per_step.items(), key=lambda entry: -entry[1])[:MOST_LINES]
    return [
        {"file": frame.file, "line": frame.line, "function": frame.function, "bytes_per_step": round(each, 2)}
        for frame, each in ranked
        if each >= LEAST_SHARE * largest
    ]


@contextmanager
def _memray(file: Path, locate: Located, into: Sizes) -> Iterator[None]:
    """Track with memray and add up what is left by the user's line."""
    memray = import_module("memray")
    with memray.Tracker(destination=memray.FileDestination(str(file), overwrite=True)):
        yield
    found: Sizes = defaultdict(int)
    with memray.FileReader(str(file)) as reader:
        for record in reader.get_leaked_allocation_records(merge_threads=True):
            frame = locate([Frame(*entry) for entry in record.stack_trace()])
            if frame is not None:
                found[frame] += record.size
    into.update(found)
    file.unlink(missing_ok=True)


@contextmanager
def _tracemalloc(file: Path, locate: Located, into: Sizes) -> Iterator[None]:
    """Track with tracemalloc, the same way."""
    tracemalloc = import_module("tracemalloc")
    tracemalloc.start(TRACEMALLOC_FRAMES)
    try:
        yield
        snapshot = tracemalloc.take_snapshot()
    finally:
        tracemalloc.stop()
    found: Sizes = defaultdict(int)
    for statistic in snapshot.statistics("traceback"):
        stack = [Frame("", entry.filename, entry.lineno) for entry in reversed(statistic.traceback)]
        frame = locate(stack)
        if frame is not None:
            found[frame] += statistic.size
    into.update(found)
