"""What lean buffers can and SB3's cannot: micro-batches, decoding ahead, saving without pickle, spilling, few bytes."""

import contextlib
import gc
import json
import os
import pickle
import resource
import subprocess
import sys
import threading
import time
from pathlib import Path

import numpy as np
import pytest
import torch
from buffer_pairs import (
    ACTIONS,
    BOXES,
    MIB,
    PAGES,
    PLAIN,
    REPLAYS,
    ROLLOUTS,
    VECTOR,
    Pair,
    contents,
    facts,
    one_line,
    random_state,
    space_for,
)
from gymnasium import spaces
from stable_baselines3.common.buffers import RolloutBuffer
from toy_envs import noise, stack

import legroom
from legroom.errors import BadInput, LegroomError
from legroom.storing.outputs import Outputs, PageLocked

# A decoded copy, where max_bytes allows it


@pytest.mark.parametrize(("max_bytes", "kept"), [("100MB", True), (None, False), ("50kB", False)])
def test_a_budget_is_used_for_a_decoded_copy(max_bytes, kept):
    space = spaces.Box(0, 255, (40, 40), np.uint8)
    plain = RolloutBuffer(64, space, spaces.Discrete(3), device="cpu", n_envs=2)
    lean = legroom.LeanRolloutBuffer(64, space, spaces.Discrete(3), device="cpu", n_envs=2, max_bytes=max_bytes)
    rng = np.random.default_rng(0)
    for round_ in range(2):
        for buffer in (plain, lean):
            buffer.reset()
        for _ in range(64):
            row = (rng.integers(0, 255, (2, 40, 40), np.uint8), np.zeros((2, 1)), np.zeros(2), np.zeros(2))
            for buffer in (plain, lean):
                buffer.add(*row, torch.zeros(2), torch.zeros(2))
        for epoch in range(2):
            batches = []
            for buffer in (plain, lean):
                np.random.seed(10 * round_ + epoch)
                batches.append([batch.observations for batch in buffer.get(32)])
            assert all(torch.equal(one, other) for one, other in zip(*batches, strict=True))
        assert ("decoded" in lean.breakdown()) == kept
        assert not kept or lean.nbytes > 64 * 2 * 1600


# Micro-batches


@pytest.mark.parametrize("batch_size", [8, 7, None, 100])
@pytest.mark.parametrize("micro_batch", [1, 3, 8, 1000])
@pytest.mark.parametrize("name", ROLLOUTS)
def test_micro_batches_are_the_batches_in_parts(name, micro_batch, batch_size):
    pair = Pair(name, space_for(name), rows=11, n_envs=3).feed()
    np.random.seed(9)
    whole = list(pair.plain.get(batch_size))
    after_whole = random_state()
    np.random.seed(9)
    parts = list(pair.lean.get(batch_size, micro_batch=micro_batch))
    assert random_state() == after_whole
    assert max(len(part.actions) for part in parts) <= micro_batch
    ends = set(np.cumsum([len(part.actions) for part in parts]).tolist())
    assert set(np.cumsum([len(batch.actions) for batch in whole]).tolist()) <= ends  # no part is in two batches
    assert facts(joined(parts)) == facts(joined(whole))


def joined(batches):
    def join(values):
        if isinstance(values[0], dict):
            return {key: torch.cat([value[key] for value in values]) for key in values[0]}
        return torch.cat(values)

    return type(batches[0])(*[join(values) for values in zip(*batches, strict=True)])


PEAK = """
import json, resource, sys
import numpy as np, torch
from gymnasium import spaces
import legroom

def peak_mib():
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024

rows = 192
space = spaces.Box(0, 255, (1 << 20,), np.uint8)
buffer = legroom.LeanRolloutBuffer(rows, space, spaces.Discrete(2), device="cpu")
obs = np.random.randint(0, 256, (1, 1 << 20), np.uint8)
for row in range(rows):
    obs[0, row * 5000] ^= 255
    one = np.ones(1)
    buffer.add(obs, np.ones((1, 1), np.int64), one, one, torch.ones(1), torch.ones(1))
buffer.compute_returns_and_advantage(torch.ones(1), one)
report = {"held": buffer.nbytes / (1 << 20)}
for _ in buffer.get(8):  # the first batches warm up whatever there is to warm up
    pass
report["before"] = peak_mib()
for _ in buffer.get(192, micro_batch=4):
    pass
report["micro"] = peak_mib()
for _ in buffer.get(4):
    pass
report["small"] = peak_mib()
left = buffer.get(4)
next(left)  # an epoch cut short must not keep the process from ending
print(json.dumps(report))
"""


@pytest.mark.slow
def test_peak_memory_is_the_micro_batch():
    """192 observations of 1 MiB: a batch or a flattened copy would be 192 MiB."""
    done = subprocess.run([sys.executable, "-c", PEAK], capture_output=True, text=True, timeout=60, check=True)
    report = json.loads(done.stdout)
    assert report["held"] < 20
    assert report["micro"] - report["before"] < 40
    assert report["small"] - report["before"] < 40


# Decoding ahead of time

# Saving without pickle


@pytest.fixture
def no_pickle(monkeypatch):
    def forbidden(*_, **__):
        raise AssertionError("pickle was used")

    for name in ("dump", "dumps", "load", "loads", "Pickler", "Unpickler"):
        monkeypatch.setattr(pickle, name, forbidden)
    for name in ("save", "load"):
        monkeypatch.setattr(torch, name, forbidden)


@pytest.mark.parametrize("rows", [0, 4, 9, 23])
@pytest.mark.parametrize("name", PLAIN)
def test_saved_and_loaded(name, rows, tmp_path, no_pickle):
    pair = Pair(name, space_for(name))
    pair.feed(rows if pair.is_replay else min(rows, 9))
    if rows == 23:
        contents(pair.lean)  # a rollout in the middle of its epochs
        contents(pair.plain)
    path = tmp_path / "kept"
    pair.lean.save(path)
    assert [entry.name for entry in tmp_path.iterdir()] == ["kept"]
    pair.lean = Pair(name, space_for(name)).feed(3).lean  # in place: what was there is replaced
    state = random_state()
    pair.lean.load(path)
    assert random_state() == state
    pair.check()
    pair.feed(7 if pair.is_replay else None).check()
    for buffer in pair.both:
        buffer.reset()
    pair.feed(9).check()


@pytest.mark.parametrize("name", ["LeanMaskableDictRolloutBuffer", "LeanReplayBuffer"])
def test_an_altered_file_is_refused(name, tmp_path):
    pair = Pair(name, space_for(name)).feed(9)
    path = tmp_path / "kept"
    pair.lean.save(path)
    good = path.read_bytes()
    victim = Pair(name, space_for(name))
    victim.feed(3)
    victim.feed(6, look=noise)

    def refused(data):
        path.write_bytes(data)
        with pytest.raises(BadInput) as error:
            victim.lean.load(path)
        assert one_line(error) and str(path) in str(error.value)

    rng = np.random.default_rng(0)
    spread = rng.integers(0, len(good), 300).tolist()
    for place in {*range(min(150, len(good))), *spread, *range(len(good) - 40, len(good))}:
        altered = bytearray(good)
        altered[place] ^= rng.choice([1, 0x20, 0x80, 0xFF])
        refused(bytes(altered))
    for length in {0, 1, 7, len(good) // 2, len(good) - 1, *spread[:60]}:
        refused(good[:length])
    refused(good + b"\0")
    refused(good + good)
    refused(b"")
    victim.check()
    path.write_bytes(good)
    victim.lean.load(path)
    assert contents(victim.lean) == contents(pair.plain)


OTHERS = {
    "rows": dict(rows=8),
    "envs": dict(n_envs=3),
    "shape": dict(space=spaces.Box(0, 1, (7, 5, 3), np.float32)),
    "dtype": dict(space=BOXES["int32"]),
    "actions": dict(action=ACTIONS["MultiDiscrete"]),
    "class": dict(name="LeanReplayBuffer"),
}


@pytest.mark.parametrize("other", OTHERS.values(), ids=OTHERS)
def test_a_file_of_another_buffer_is_refused(other, tmp_path):
    usual = dict(name="LeanMaskableRolloutBuffer", space=BOXES["float32"])
    Pair(**usual | other).feed(8).lean.save(tmp_path / "kept")
    victim = Pair(**usual).feed()
    with pytest.raises(BadInput) as refused:
        victim.lean.load(tmp_path / "kept")
    assert one_line(refused)
    victim.check()


@contextlib.contextmanager
def disk_full(nbytes):
    """Every file ends at `nbytes`, as on a full disk; the signal that goes with it is ignored by Python."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (nbytes, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


def test_saving_on_a_full_disk_leaves_the_old_file(tmp_path):
    pair = Pair("LeanReplayBuffer", PAGES, rows=200).feed(50, look=noise)
    pair.lean.save(tmp_path / "kept")
    before = contents(pair.plain)
    pair.feed(200, look=noise)
    with disk_full(MIB // 2), pytest.raises((OSError, LegroomError)):
        pair.lean.save(tmp_path / "kept")
    assert [entry.name for entry in tmp_path.iterdir()] == ["kept"]
    pair.check()
    pair.lean.load(tmp_path / "kept")
    assert contents(pair.lean) == before


# Bytes


@pytest.mark.parametrize("name", PLAIN)
def test_nbytes_and_its_breakdown(name):
    pair = Pair(name, space_for(name)).feed(9)
    assert type(pair.lean.nbytes) is int
    assert pair.lean.nbytes > 0
    breakdown = pair.lean.breakdown()
    assert breakdown and all(type(key) is str and type(value) is int for key, value in breakdown.items())
    assert all(value >= 0 for value in breakdown.values())


DISCOVERIES = {
    "first axis": ((4, 32, 32), 0, np.uint8),
    "last axis": ((32, 32, 4), 2, np.uint8),
    "middle axis": ((32, 4, 32), 1, np.uint8),
    "three channels, last axis": ((24, 24, 12), 2, np.uint8),
    "three channels, first axis": ((12, 24, 24), 0, np.uint8),
    "vectors, end to end": ((4 * 300,), 0, np.float32),
    "vectors, one below the other": ((4, 300), 0, np.float64),
}


@pytest.mark.parametrize("newest_first", [False, True], ids=["newest last", "newest first"])
@pytest.mark.parametrize("stacked", DISCOVERIES.values(), ids=DISCOVERIES)
@pytest.mark.parametrize("name", ["LeanRolloutBuffer", "LeanReplayBuffer"])
def test_stacks_are_found_and_kept_once(name, stacked, newest_first):
    """Frames of noise: only keeping each frame once, not four times, makes them smaller."""
    shape, axis, dtype = stacked
    held = held_of(name, spaces.Box(0, 1, shape, dtype), stack(axis, 4, newest_first=newest_first))
    assert held < 1.25 * STACK_ROWS * np.prod(shape) * np.dtype(dtype).itemsize / 4 + 64 * 1024


STACK_ROWS = 180


def held_of(name, space, look):
    pair = Pair(name, space, rows=STACK_ROWS, n_envs=1)
    for args, kwargs in pair.transitions(STACK_ROWS, look=look, ends=0.02):
        pair.lean.add(*args, **kwargs)
    return pair.lean.nbytes


@pytest.mark.parametrize("name", ["LeanRolloutBuffer", "LeanReplayBuffer"])
def test_what_does_not_change_costs_nothing(name):
    """64 KiB of which 40 numbers change per step; plain, 300 rows of 2 envs are 39 MB."""
    pair = Pair(name, spaces.Box(0, 1, (16, 1024), np.float32), rows=300)

    def look(space, rng, previous):
        if previous is None:
            return noise(space, rng)
        now = previous.copy()
        now[3, 100:140] = rng.normal()
        return now

    for args, kwargs in pair.transitions(300, look=look, ends=0.01):
        pair.add(args, kwargs)
    assert pair.lean.nbytes < 2.5 * MIB
    if not pair.is_replay:
        pair.finish()
    pair.check()


@pytest.mark.parametrize("extras", [{}, dict(max_bytes=MIB)], ids=["in memory", "spilling"])
@pytest.mark.parametrize("name", REPLAYS)
def test_memory_stays_flat_over_ten_times_the_capacity(name, extras, tmp_path):
    space = spaces.Dict(only=PAGES) if "Dict" in name else PAGES
    if extras:
        extras = extras | dict(spill_dir=tmp_path)
    pair = Pair(name, space, rows=150, n_envs=2, **extras)
    rounds = []
    for _ in range(10):
        peaks = []
        for args, _ in pair.transitions(150, look=noise):
            pair.lean.add(*args)
            peaks.append(pair.lean.nbytes)
        rounds.append((max(peaks), spilled_bytes(tmp_path)))
    memory, disk = zip(*rounds, strict=True)
    assert max(memory[2:]) <= 1.25 * max(memory[:2])
    assert max(disk[2:]) <= 1.25 * max(disk[:2])
    assert bool(disk[0]) == bool(extras)
    pair.lean.reset()
    assert pair.lean.nbytes < min(memory)


# Spilling


def spill_files(directory):
    """Return the file descriptors of this process that are open on files, deleted or not, in `directory`."""
    found = []
    for fd in Path("/proc/self/fd").iterdir():
        with contextlib.suppress(OSError):
            if fd.readlink().is_relative_to(directory):
                found.append(int(fd.name))
    return found


def spilled_bytes(directory):
    return sum(512 * os.fstat(fd).st_blocks for fd in spill_files(directory))


@pytest.mark.parametrize("name", PLAIN)
def test_above_max_bytes_everything_spills_and_is_the_same(name, tmp_path):
    space = spaces.Dict(big=PAGES, small=VECTOR) if "Dict" in name else PAGES
    pair = Pair(name, space, rows=400, n_envs=2, max_bytes=2 * MIB, spill_dir=tmp_path)
    pair.feed(400, look=noise)  # 6.25 MiB of noise, and in a replay the terminal observations
    assert pair.lean.nbytes <= 4 * MIB
    assert spilled_bytes(tmp_path) >= 2 * MIB
    assert list(tmp_path.iterdir()) == []  # nothing to clean up, whatever happens to this process
    assert any("spill" in key and value > 0 for key, value in pair.lean.breakdown().items())
    pair.check()
    if pair.is_replay:
        pair.feed(500, look=noise).check()
    pair.lean = None
    deadline = time.monotonic() + 5
    while spill_files(tmp_path) and time.monotonic() < deadline:  # a batch may still be decoded ahead of time
        gc.collect()
    assert spill_files(tmp_path) == []


@pytest.mark.parametrize("name", ["LeanRolloutBuffer", "LeanReplayBuffer"])
def test_a_full_disk_is_an_error_before_any_loss(name, tmp_path):
    pair = Pair(name, PAGES, rows=400, n_envs=2, max_bytes=MIB, spill_dir=tmp_path)
    given = list(pair.transitions(400, look=noise))
    added = 0
    with disk_full(12345), pytest.raises((OSError, LegroomError)) as full:
        for args, kwargs in given:
            pair.lean.add(*args, **kwargs)
            added += 1
    assert one_line(full)
    added = pair.lean.pos  # the row at which it happened is either in or not, and pos says which
    for args, kwargs in given[:added]:
        pair.plain.add(*args, **kwargs)
    if pair.is_replay:
        pair.check()
    for args, kwargs in given[added:]:
        pair.add(args, kwargs)
    if not pair.is_replay:
        pair.finish()
    pair.check()


# Threads


def test_reading_while_the_ring_runs_over():
    """A row may be replaced between its fields, as in SB3; but no observation is ever half one and half another."""
    shape = (3, 40, 40)
    lean = legroom.LeanReplayBuffer(60, spaces.Box(-9, 9e9, shape, np.float32), spaces.Discrete(9), device="cpu")
    torn, over = [], threading.Event()

    def add(row):
        now, then = (np.full((1, *shape), value, np.float32) for value in (row, row + 1))
        lean.add(now, then, np.array([1]), np.array([row]), np.array([row % 7 == 6]), [{}])

    def read():
        while not over.is_set():
            batch = lean.sample(16)
            for seen in (batch.observations, batch.next_observations):
                values = seen.numpy().reshape(16, -1)
                if not (values == values[:, :1]).all():
                    torn.append(values)

    in_threads(read, 2, lambda: [add(row) for row in range(1, 2000)], over, before=lambda: add(0))
    assert not torn


def in_threads(read, readers, write, over, before=lambda: None):
    """Run `read` in some threads while this one does `write`; whatever they raise is raised here."""
    before()
    raised = []

    def guarded():
        try:
            read()
        except BaseException as error:
            raised.append(error)

    threads = [threading.Thread(target=guarded, daemon=True) for _ in range(readers)]
    for thread in threads:
        thread.start()
    try:
        write()
    finally:
        over.set()
        for thread in threads:
            thread.join(timeout=30)
    assert not any(thread.is_alive() for thread in threads)
    if raised:
        raise raised[0]


def test_memory_that_a_gpu_still_fetches_is_not_handed_out_again():
    outputs = Outputs(keep=2, pinned=lambda n_bytes: np.empty(n_bytes, np.uint8))
    batch = outputs.take((4,), np.dtype(np.float32))
    assert isinstance(batch, PageLocked)
    on_the_way, address = batch.view(np.ndarray), batch.ctypes.data  # what as_tensor keeps until the GPU has it
    del batch
    assert outputs.take((4,), np.dtype(np.float32)).ctypes.data != address
    del on_the_way
    assert outputs.take((4,), np.dtype(np.float32)).ctypes.data == address
