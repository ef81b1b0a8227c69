"""Encoding in a thread: the same records as without one, read raw until then, through forks, copies and the end."""

from __future__ import annotations

import copy
import os
import random
import subprocess
import sys
import threading
from typing import Any

import numpy as np
import pytest
from generated import Dump
from gymnasium import spaces
from stable_baselines3.common.buffers import ReplayBuffer

from legroom.backends.sb3.lean_replay import LeanReplayBuffer

core = pytest.importorskip("legroom.storing._core")
NEVER, ALWAYS = 0, 2
PICTURE = 6000  # bytes: two pages


def u32(values: Any) -> np.ndarray:
    return np.asarray(values, np.uint32)


def pictures(n: int, seed: int = 0) -> list[bytes]:
    """Return pictures that move over a background, now and then the same again or quite another."""
    rng = random.Random(seed)
    world = rng.randbytes(PICTURE * 2)
    found: list[bytes] = []
    for _ in range(n):
        kind = rng.random()
        if kind < 0.1 and found:
            found.append(found[-1])
        elif kind < 0.2:
            found.append(rng.randbytes(PICTURE))
        else:
            start = rng.randrange(PICTURE)
            found.append(world[start : start + PICTURE])
    return found


def filled(queueing: int, frames: list[bytes], n_streams: int = 2) -> tuple[Any, list[int]]:
    store = core.Store(n_streams, PICTURE, queueing=queueing)
    return store, [store.append(i % n_streams, frame) for i, frame in enumerate(frames)]


def read(store: Any, numbers: list[int], n_streams: int = 2) -> list[bytes]:
    out = np.empty((len(numbers), PICTURE), np.uint8)
    store.read(u32([i % n_streams for i in range(len(numbers))]), u32(numbers), out)
    return [row.tobytes() for row in out]


def test_records_are_the_same_bytes_in_the_same_order() -> None:
    frames = pictures(400)
    direct, numbers = filled(NEVER, frames)
    queued, same_numbers = filled(ALWAYS, frames)
    assert same_numbers == numbers
    one, other = Dump.of(direct), Dump.of(queued)
    assert (one.index, one.arenas) == (other.index, other.arenas)


def test_readers_and_dumps_while_rows_are_added() -> None:
    """Four threads at once; each reads some observation that was stored, whole."""
    frames = pictures(3000, 1)
    store, numbers, wrong, stop = core.Store(1, PICTURE, queueing=ALWAYS), list[int](), [], threading.Event()

    def look(seed: int) -> None:
        rng, out = random.Random(seed), np.empty((64, PICTURE), np.uint8)
        while not stop.is_set():
            known = len(numbers)
            if not known:
                continue
            places = [max(0, known - 1 - int(rng.expovariate(0.05))) for _ in range(64)]
            core.gather((store,), u32([0] * 64), u32([0] * 64), u32([numbers[i] for i in places]), out)
            wrong.extend(i for i, row in zip(places, out, strict=True) if row.tobytes() != frames[i])

    def dump() -> None:
        while not stop.is_set():
            store.dump_index()
            store.trim()

    threads = [threading.Thread(target=look, args=(seed,)) for seed in range(2)] + [threading.Thread(target=dump)]
    for thread in threads:
        thread.start()
    for frame in frames:
        numbers.append(store.append(0, frame))
    stop.set()
    for thread in threads:
        thread.join()
    assert not wrong
    assert read(store, numbers, 1) == frames


def test_forks_while_encoding_have_everything_and_go_on() -> None:
    """Each forked process reads all, adds more and reads that too, while this one goes on."""
    frames = pictures(1200, 2)
    store, numbers, children = core.Store(2, PICTURE, queueing=ALWAYS), list[int](), []
    for i, frame in enumerate(frames):
        numbers.append(store.append(i % 2, frame))
        if i % 60 != 57:
            continue
        child = os.fork()
        if child == 0:
            good = read(store, numbers) == frames[: len(numbers)]
            more = [store.append(k % 2, frame) for k, frame in enumerate(reversed(frames[:100]))]
            good = good and read(store, more) == frames[:100][::-1]
            os._exit(0 if good else 1)
        children.append(child)
    assert [os.waitpid(child, 0)[1] for child in children] == [0] * len(children)
    assert read(store, numbers) == frames


@pytest.mark.parametrize("ending", ["", "del store", "import os, signal; os.kill(os.getpid(), signal.SIGINT)"])
def test_a_process_ends_while_rows_wait(ending: str) -> None:
    program = f"""
import random
from legroom.storing import _core as core
store = core.Store(1, 200_000, queueing=2)
rng = random.Random(1)
for _ in range(30):
    store.append(0, rng.randbytes(200_000))
{ending}
"""
    done = subprocess.run([sys.executable, "-c", program], timeout=60, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "") or "SIGINT" in ending, done.stderr
    assert "SIGINT" not in ending or done.stderr.strip().endswith("KeyboardInterrupt")


def test_replay_copies_and_saves_what_waits(tmp_path: Any) -> None:
    """Rows overwritten while others wait; a copy, a file and a sample hold what SB3's buffer holds."""
    space, action = spaces.Box(0, 255, (40, 50, 3), np.uint8), spaces.Discrete(2)
    made_of: Any = (300, space, action, "cpu")
    plain, lean = ReplayBuffer(*made_of), LeanReplayBuffer(*made_of)
    frames = [np.frombuffer(frame, np.uint8).reshape(1, 40, 50, 3) for frame in pictures(900, 5)]
    for i in range(899):
        for buffer in (plain, lean):
            buffer.add(frames[i], frames[i + 1], np.zeros((1, 1), int), np.ones(1), np.zeros(1), [{}])
        if i % 100 == 37:
            loaded = LeanReplayBuffer(*made_of)
            lean.save(tmp_path / "replay")
            loaded.load(tmp_path / "replay")
            for one in (lean, copy.deepcopy(lean), loaded):
                np.random.seed(i)
                expected = plain.sample(200)
                np.random.seed(i)
                found = one.sample(200)
                assert all((a == b).all() for a, b in zip(expected[:5], found[:5], strict=True))
