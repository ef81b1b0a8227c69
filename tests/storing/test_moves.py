"""A picture that moves costs what comes into it, and comes back whatever moves in it."""

import tempfile

import numpy as np
import pytest
import reference

from legroom.storing import _core as core
from legroom.storing.budget import Options
from legroom.storing.column import Column
from legroom.storing.outputs import Outputs

STEPS, SEED = 120, 5


def walk(shape: tuple[int, ...], seed: int = SEED, most: int = 2) -> np.ndarray:
    """Return pictures [STEPS, *shape], (height, width, ...), of noise under two blocks that move on their own."""
    rng = np.random.default_rng(seed)
    height, width, *rest = shape
    world = rng.integers(0, 256, (2 * height, 2 * width + most * STEPS, *rest), np.uint8)
    sprites = rng.integers(0, 256, (2, 7, 9, *rest), np.uint8)
    at, places, seen = np.array([height // 2, 0]), rng.integers(0, 20, (2, 2)), []
    for _ in range(STEPS):
        at = np.clip(at + rng.integers([-1, 0], [2, most + 1]), 0, [height, world.shape[1] - width])
        picture = world[at[0] : at[0] + height, at[1] : at[1] + width].copy()
        places = np.clip(places + rng.integers(-2, 3, (2, 2)), 0, [height - 7, width - 9])
        for sprite, (top, left) in zip(sprites, places, strict=True):
            picture[top : top + 7, left : left + 9] = sprite
        seen.append(picture)
    return np.stack(seen)


def kinds(store: object) -> dict[str, int]:
    return {kind: entry[0] for kind, entry in store.nbytes().items() if isinstance(entry, tuple)}


def stored(frames: np.ndarray, page_bytes: int, row_bytes: int, **more: int) -> tuple[object, np.ndarray]:
    store = core.Store(1, frames[0].nbytes, page_bytes=page_bytes, row_bytes=row_bytes, **more)
    return store, np.array([store.append(0, frame) for frame in frames], np.uint32)


def read(store: object, numbers: np.ndarray, like: np.ndarray) -> np.ndarray:
    out = np.empty_like(like)
    store.read(np.zeros(len(numbers), np.uint32), numbers, out)
    return out


@pytest.mark.parametrize("shape", [(64, 64, 3), (48, 80), (61, 53), (40, 33, 4), (130, 120)])
@pytest.mark.parametrize("page_bytes", [1024, 4096, 0])
def test_pictures_that_move_come_back(shape: tuple[int, ...], page_bytes: int) -> None:
    frames = walk(shape)
    row = frames[0][0].nbytes
    for row_bytes in (0, row, 16):  # not known, right, wrong
        store, numbers = stored(frames, page_bytes, row_bytes)
        shuffled = np.random.default_rng(0).permutation(len(numbers))
        assert np.array_equal(read(store, numbers[shuffled], frames[shuffled]), frames[shuffled])
        twin = reference.Store(1, frames[0].nbytes, page_bytes=page_bytes)
        twin.load(store.dump_index(), [store.dump_arena(i) for i in range(store.n_arenas())])
        assert np.array_equal(read(twin, numbers, frames), frames)


def test_a_picture_that_moves_takes_a_seventh() -> None:
    """What comes in is about 1.5 columns and a row of 64, and what two blocks hide: 5 % of the picture."""
    frames = walk((64, 64, 3))
    store, _ = stored(frames, 0, 192)
    assert kinds(store)["move"] > 0.8 * len(frames)
    assert sum(len(store.dump_arena(i)) for i in range(store.n_arenas())) < frames.nbytes / 7


def test_moves_are_read_from_a_file() -> None:
    frames = walk((64, 64, 3))
    with tempfile.TemporaryFile() as file:
        store, numbers = stored(frames, 4096, 192, fd=file.fileno())
        store.seal()
        store.spill(0)
        assert np.array_equal(read(store, numbers, frames), frames)


def test_pictures_that_leap_and_turn_come_back() -> None:
    """Far moves one after the other leave the wide picture that moves are decoded in, on both sides."""
    rng, frame = np.random.default_rng(1), walk((64, 64))[0].reshape(-1)
    frames = [frame]
    for shift in [900, 900, 900, 900, -800, -800, -800, -800, 3, 0, 2000, -2000, 64, -64] * 6:
        moved = np.roll(frames[-1], shift)
        if shift > 0:
            moved[:shift] = rng.integers(0, 256, shift)
        elif shift < 0:
            moved[shift:] = rng.integers(0, 256, -shift)
        frames.append(moved)
    pictures = np.stack(frames)
    store, numbers = stored(pictures, 4096, 64)
    assert kinds(store)["move"] > 30
    order = rng.permutation(len(numbers))
    assert np.array_equal(read(store, numbers[order], pictures[order]), pictures[order])


def test_a_column_of_many_colours_is_one_page_a_picture() -> None:
    """More colours than a table holds: pictures are kept as they are, without a table, and moved as a whole."""
    frames = walk((64, 64, 3))
    column = Column(STEPS, 1, frames[0].shape, np.dtype(np.uint8), Options(), Outputs())
    for row, frame in enumerate(frames):
        column[row] = frame[None]
    assert (column.stack.colours, column.stack.row_bytes) == (0, 192)
    assert kinds(column.shelves[0].store)["move"] > 0.8 * STEPS
    assert np.array_equal(column[:][:, 0], frames)
