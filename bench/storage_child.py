"""The measured processes of the storage bench: one buffer filled and weighed, or ours and SB3's racing each other.

    python -m bench.storage_child weigh|race WORKLOAD LIBRARY FRAMES [--quick]

prints one line of JSON last. Memory is the growth of the process's own memory (USS) from just before the buffer is
built until it is full; its data, its library and a first use of both are there before. The peak goes on through the
first minibatches and comes from the kernel's own high-water mark of resident memory, which sampling would miss.

Times that are compared come from one process, one data and alternating turns, each the median of its turns.
"""

from __future__ import annotations

import ctypes
import gc
import itertools
import json
import sys
import time
import warnings
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np

from bench.storage_data import Step
from bench.storage_rivals import LIBRARIES, OURS, Holder, Sb3Rollout, Shape, Workload, workloads

AGAINST = "sb3"
CHECKED_BYTES = 256 * 2**20  # observations held at once while they are compared
CHECKED_ROWS = 400  # random ones; as many ends of episodes come on top
WARM_ROWS = 8
FIRST_DRAWS = 20
DRAWN = 3  # minibatches of an epoch that are compared
COPY_EVERY = 8  # adds between two copies of the same observation to an array that is there
PART_BATCHES, PART_TURNS = 4, 5


def weigh(workload: Workload, library: str) -> dict[str, Any]:
    """Fill one library's buffer; return its memory, its times and how many observations came back changed."""
    shape = replace(workload.shape, rows=workload.parts.get(library, workload.shape.rows))
    make = LIBRARIES[library].make
    _use_once(make(replace(shape, rows=WARM_ROWS)), workload)
    stream = _spread(workload, shape.rows)
    steps = itertools.chain([next(stream)], stream)  # the first one takes the stream's memory
    adds, copies = np.full(shape.rows, np.nan), np.full(shape.rows, np.nan)
    ends = np.ones((shape.rows, shape.n_envs), bool)
    target = np.ones((shape.n_envs, *shape.observation.shape), shape.observation.dtype)
    _settle()
    before, resident_before = _private(), _reset_peak()
    holder = make(shape)
    for row, step in zip(range(shape.rows), steps, strict=False):
        if row % COPY_EVERY == 0:
            copies[row] = _seconds(np.copyto, target, step.obs)
        adds[row] = _seconds(holder.add, step)
        ends[row] = step.done
    holder.finish()
    _settle()
    full = _private() - before
    draws = [_seconds(draw) for draw in itertools.islice(_draws(holder, shape, workload.batches[0]), FIRST_DRAWS)]
    result = {
        "nbytes": full, "peak": _peak() - resident_before, "rows": shape.rows, "of_rows": workload.shape.rows,
        "add_s": median(adds), "mean_add_s": float(adds.mean()), "mean_copy_s": float(np.nanmean(copies)),
        "draw_s": median(draws), "ends": int(ends.sum()), "payload": _payload(holder),
    }  # fmt: skip
    result |= _compare(holder, workload, ends)
    if library == OURS and workload.sb3_rows:
        result |= _race_part(holder, workload)
    return result


def race(workload: Workload) -> dict[str, Any]:
    """Fill ours and SB3's with the same steps; return the seconds of both for adding and drawing, in turns."""
    ours, theirs = LIBRARIES[OURS].make(workload.shape), LIBRARIES[AGAINST].make(workload.shape)
    adds = np.zeros((2, workload.shape.rows))
    for row, step in enumerate(itertools.islice(workload.stream(), workload.shape.rows)):
        for who, holder in ((0, ours), (1, theirs))[:: 1 if row % 2 else -1]:
            begin = time.perf_counter()
            holder.add(step)
            adds[who, row] = time.perf_counter() - begin
    ours.finish()
    theirs.finish()
    result: dict[str, Any] = {"add": _duel(adds[0], adds[1])}
    for batch in workload.batches:
        if workload.shape.kind == "replay":
            result[f"draw-{batch}"] = _race_samples(ours, theirs, batch)
        else:
            result[f"draw-{batch}"] = _race_epochs(ours, theirs, batch)
    if workload.shape.kind == "rollout":  # SB3 flattens once per rollout: its later epochs, for information
        batch = workload.batches[0]
        _run_epoch(theirs, batch)
        later = [[_seconds(_run_epoch, who, batch) for who in (ours, theirs)] for _ in range(2)]
        result["later-epochs"] = _duel(*np.array(later).T)
    return result


def _race_samples(ours: Holder, theirs: Holder, batch: int, turns: int = 40, calls: int = 10) -> dict[str, float]:
    for holder in (ours, theirs):
        holder.sample(batch)
    times = np.array([
        [_seconds(_sample_often, holder, batch, calls) / calls for holder in (ours, theirs)]
        for _ in range(turns)
    ])  # fmt: skip
    return _duel(*times.T)


def _race_epochs(ours: Holder, theirs: Holder, batch: int, turns: int = 3) -> dict[str, float]:
    """Return the seconds of one whole epoch; SB3's with its flatten, which is undone after each turn."""
    buffer = theirs.buffer  # type: ignore[attr-defined]
    unflattened = dict(buffer.__dict__)
    times = []
    for _ in range(turns):
        own = _seconds(_run_epoch, ours, batch)
        others = _seconds(_run_epoch, theirs, batch)
        times.append([own, others])
        buffer.__dict__.update(unflattened)
        _settle()
    return _duel(*np.array(times).T)


def _race_part(ours: Holder, workload: Workload) -> dict[str, Any]:
    """Race where SB3 cannot hold the rollout: it gets rows from the middle of it, ours keeps the whole.

    In the process that weighed ours, because filling it takes minutes.
    """
    assert workload.sb3_rows is not None
    few = min(workload.sb3_rows, workload.shape.rows)
    theirs = LIBRARIES[AGAINST].make(replace(workload.shape, rows=few))
    first = (workload.shape.rows - few) // 2
    adds = [_seconds(theirs.add, step) for step in itertools.islice(workload.stream(), first, first + few)]
    theirs.finish()
    batch = workload.batches[0]
    per_epoch = few * workload.shape.n_envs // batch
    _run_epoch(theirs, batch)  # flattens
    times = []
    for _ in range(PART_TURNS):
        # A generator that reads ahead is closed inside its time, so that nothing of it runs in the other's turn.
        own = _seconds(_run_epoch, ours, batch, PART_BATCHES)
        others = _seconds(_run_epoch, theirs, batch)
        times.append([own / PART_BATCHES, others / per_epoch])
    return {"sb3_add_s": median(adds), f"draw-{batch}": _duel(*np.array(times).T)}


def _duel(ours: np.ndarray, theirs: np.ndarray) -> dict[str, float]:
    own, others = float(np.median(ours)), float(np.median(theirs))
    return {"ours_s": own, "theirs_s": others, "ratio": own / others}


def _payload(holder: Holder) -> int | None:
    """Return the bytes of the compressed objects themselves where a buffer keeps such, without what they occupy."""
    buffer = getattr(holder, "buffer", None)
    arrays = [getattr(buffer, name, None) for name in ("observations", "next_observations")]
    found = [array for array in arrays if isinstance(array, np.ndarray) and array.dtype == object]
    return sum(len(one) for array in found for one in array.ravel()) if found else None


def _spread(workload: Workload, rows: int) -> Iterator[Step]:
    """Yield steps without end, so many apart that `rows` of them are spread over the whole workload.

    Without end, because an iterator that has come to its end lets go of its stream, and the stream's memory, which was
    there before the buffer, would then be taken off what the buffer needs.
    """
    return itertools.islice(workload.stream(), 0, None, workload.shape.rows // rows)


def _use_once(holder: Holder, workload: Workload) -> None:
    """Let the library load and compile what it loads on first use."""
    for step in itertools.islice(workload.stream(), WARM_ROWS):
        holder.add(step)
    holder.finish()
    next(_draws(holder, replace(workload.shape, rows=WARM_ROWS), 2))()


def _draws(holder: Holder, shape: Shape, batch: int) -> Iterator[Callable[[], Any]]:
    """Yield what makes one minibatch each; SB3's rollout buffer flattens in the first one."""
    if shape.kind == "replay":
        while True:
            yield lambda: holder.sample(batch)
    batches = holder.epoch(batch)
    for _ in range(-(-shape.rows * shape.n_envs // batch)):
        yield lambda: next(batches)


def _compare(holder: Holder, workload: Workload, ends: np.ndarray) -> dict[str, Any]:
    """Return how many stored observations differ from what the stream said: random ones, ends and starts of episodes.

    Of a rollout also those of the first minibatches, which may come another way than single rows do.
    """
    rows, n_envs = ends.shape
    most = min(CHECKED_ROWS, max(CHECKED_BYTES // workload.obs_bytes, 8))
    rng = np.random.default_rng(6)
    picks = {(int(rng.integers(0, rows)), int(rng.integers(0, n_envs))) for _ in range(most)}
    for row, env in np.argwhere(ends)[: most // 2]:
        picks |= {(int(row), int(env)), (min(int(row) + 1, rows - 1), int(env))}
    order = np.array(sorted(picks))
    obs, next_obs = holder.rows(order[:, 0], order[:, 1])
    if isinstance(holder, Sb3Rollout):
        drawn_rows, drawn_envs, drawn = holder.drawn(max(most // DRAWN, 1), DRAWN)
        order = np.concatenate([order, np.stack([drawn_rows, drawn_envs], axis=1)])
        obs = np.concatenate([obs, drawn])
    by_row: dict[int, list[int]] = {}
    for place, row in enumerate(order[:, 0]):
        by_row.setdefault(int(row), []).append(place)
    wrong = {"wrong_starts": 0, "wrong_obs": 0, "wrong_ends": 0, "wrong_next": 0}
    age = np.zeros(n_envs, np.int64)
    for row, step in zip(range(rows), _spread(workload, rows), strict=False):
        age = np.where(step.start, 0, age + 1)
        for place in by_row.get(row, ()):
            env = order[place, 1]
            if not _same(obs[place], step.obs[env]):
                wrong["wrong_starts" if age[env] < workload.shape.n_stack - 1 else "wrong_obs"] += 1
            if next_obs is not None:
                assert step.next_obs is not None
                if not _same(next_obs[place], step.next_obs[env]):
                    wrong["wrong_ends" if step.done[env] else "wrong_next"] += 1
    return {"checked": len(order)} | wrong


def _same(stored: np.ndarray, given: np.ndarray) -> bool:
    return stored.dtype == given.dtype and stored.tobytes() == given.tobytes()


def _run_epoch(holder: Holder, batch: int, most: int | None = None) -> None:
    """Draw the minibatches of an epoch, or the first of them, and end it."""
    batches = holder.epoch(batch)
    for _ in itertools.islice(batches, most):
        pass
    batches.close()  # type: ignore[attr-defined]


def _sample_often(holder: Holder, batch: int, calls: int) -> None:
    for _ in range(calls):
        holder.sample(batch)


def _seconds(action: Callable[..., Any], *arguments: Any) -> float:
    begin = time.perf_counter()
    action(*arguments)
    return time.perf_counter() - begin


def _settle() -> None:
    gc.collect()
    ctypes.CDLL(None).malloc_trim(0)


def _private() -> int:
    """Return the bytes that only this process has and that it wrote.

    This is the USS without its clean file pages: those of a library turn from shared to private, and back, with the
    comings and goings of other processes that use it.
    """
    lines = Path("/proc/self/smaps_rollup").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("Private_Dirty:")) * 1024


def _reset_peak() -> int:
    """Set the high-water mark of resident memory to what is resident now, and return it."""
    Path("/proc/self/clear_refs").write_text("5")
    return _peak()


def _peak() -> int:
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("VmHWM:")) * 1024


def main(arguments: list[str]) -> None:
    mode, name, library, frames = arguments[:4]
    warnings.filterwarnings("ignore")
    workload = workloads(Path(frames), quick="--quick" in arguments)[name]
    begin = time.perf_counter()
    result = weigh(workload, library) if mode == "weigh" else race(workload)
    result["seconds"] = time.perf_counter() - begin
    print(json.dumps(result))


if __name__ == "__main__":
    main(sys.argv[1:])
