"""If these fail, replay of maps of float32 numbers comes back changed, is far larger, or cannot be loaded again."""

from __future__ import annotations

import numpy as np
import pytest
from gymnasium import spaces

from legroom.backends.sb3.lean_replay import LeanReplayBuffer
from legroom.storing.budget import Options, load_shelf, new_shelf
from legroom.storing.stacks import FrameStack

MAPS = spaces.Box(0.0, np.inf, (3, 60, 60), np.float32)
CELLS = spaces.MultiDiscrete([3600] * 4)
ENVS = 2


def maps(rng):
    """Return a scene of patches: few different numbers, in no order that bytes would show."""
    values = (rng.permutation(5000)[:60] / 1000).astype(np.float32)
    coarse = rng.integers(0, 60, (3, 20, 20))
    return values[coarse.repeat(3, axis=1).repeat(3, axis=2)]


def filled(rows=60, length=10, seed=0):
    """Return a buffer of episodes in which four cells change per step, and the transitions themselves."""
    rng = np.random.default_rng(seed)
    buffer = LeanReplayBuffer(rows * ENVS, MAPS, CELLS, "cpu", ENVS, handle_timeout_termination=False)
    kept, now = [], np.stack([maps(rng) for _ in range(ENVS)])
    for row in range(rows):
        after = now.copy()
        cells = rng.integers(0, 3600, (ENVS, 4))
        for env in range(ENVS):
            after[env].reshape(3, -1)[1:, cells[env]] = np.float32(0.485)
        done = (row + 1) % length == 0
        buffer.add(now, after, cells, np.full(ENVS, row), np.full(ENVS, done), [{}] * ENVS)
        kept.append((now, after, cells))
        now = np.stack([maps(rng) for _ in range(ENVS)]) if done else after
    return buffer, kept


def test_maps_come_back_bit_for_bit_and_small():
    buffer, kept = filled()
    for row, (now, after, cells) in enumerate(kept):
        found = buffer.transitions(np.full(ENVS, row), np.arange(ENVS))
        assert np.array_equal(found.observations.numpy(), now)
        assert np.array_equal(found.next_observations.numpy(), after)
        assert np.array_equal(found.actions.numpy(), cells)
    # 12 scenes of 43,200 B, most of it numbers that repeat in threes, and 120 times 8 changed words
    records = buffer.columns[""].shelves[-1].store.nbytes()
    assert sum(entry[1] for entry in records.values() if isinstance(entry, tuple)) < 0.4 * 12 * 43_200


def test_a_saved_buffer_goes_on_as_the_one_it_was_saved_from(tmp_path):
    buffer, _ = filled()
    buffer.save(tmp_path / "replay")
    other, _ = filled(seed=1)
    other.load(tmp_path / "replay")
    rows, envs = np.arange(60), np.ones(60, int)
    assert np.array_equal(other.transitions(rows, envs).observations, buffer.transitions(rows, envs).observations)


@pytest.mark.parametrize("page_bytes", [0, 4096, 16384])
def test_what_was_stored_in_pages_of_another_size_can_be_read(page_bytes):
    scenes = np.stack([maps(np.random.default_rng(number)) for number in range(ENVS)])
    shelf = new_shelf(Options(), ENVS, scenes[0].nbytes, FrameStack(), page_bytes=page_bytes)
    numbers, again = np.empty(ENVS, np.uint32), np.empty_like(scenes)
    shelf.store.append_all(scenes, numbers)
    loaded = load_shelf(shelf.dump(), Options(), ENVS, scenes[0].nbytes, FrameStack())
    loaded.store.read(np.arange(ENVS, dtype=np.uint32), numbers, again)
    assert np.array_equal(again, scenes)


@pytest.mark.parametrize("exactly", [False, True])
@pytest.mark.parametrize("page_bytes", [0, 4096, 16384, 32768])
@pytest.mark.parametrize("frame_bytes", [1, 8, 63, 600, 8192, 8193, 10_000, 16_384, 16_385, 20_000, 32_768, 40_000])
def test_frames_of_all_sizes_are_loaded_whatever_their_pages(frame_bytes, page_bytes, exactly):
    """Earlier versions cut frames above 8 KiB into pages of this size, also where one page is larger than the frame."""
    frames = np.random.default_rng(0).integers(0, 256, (1, frame_bytes), np.uint8)
    shelf = new_shelf(Options(), 1, frame_bytes, FrameStack(), page_bytes=page_bytes, exactly=exactly)
    numbers, again = np.empty(1, np.uint32), np.empty_like(frames)
    shelf.store.append_all(frames, numbers)
    loaded = load_shelf(shelf.dump(), Options(), 1, frame_bytes, FrameStack())
    loaded.store.read(np.zeros(1, np.uint32), numbers, again)
    assert np.array_equal(again, frames)


@pytest.mark.parametrize("index", [b"", b"\x00" * 40, b"\xff" * 64])
def test_a_damaged_index_is_refused(index):
    with pytest.raises(ValueError):  # core and reference put it in words of their own
        load_shelf({"index": index, "arenas": []}, Options(), ENVS, 43_200, FrameStack())
