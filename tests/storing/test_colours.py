"""Pictures of few colours take a third of what their bytes would, and every picture comes back."""

from types import ModuleType

import numpy as np
import pytest
import reference

from legroom.storing import _core as core
from legroom.storing.budget import Options, new_shelf
from legroom.storing.column import Column
from legroom.storing.outputs import Outputs
from legroom.storing.ring import Ring, RingSegment
from legroom.storing.stacks import IN_PIXELS, IN_PLANES, NO_COLOURS, FrameStack, StackFinder

SIZE = (48, 64)
both = pytest.mark.parametrize("made_by", [core, reference], ids=["core", "reference"])


def pictures(n: int, n_colours: int, seed: int = 0) -> np.ndarray:
    """Return pictures [n, height, width, 3] of a wall of tiles that moves by a pixel or two a step."""
    rng = np.random.default_rng(seed)
    colours = rng.integers(0, 256, (n_colours, 3), np.uint8)
    tiles = rng.integers(0, n_colours, (12, 8, 8))
    wall = tiles[rng.integers(0, 12, (SIZE[0] // 8, 80))].transpose(0, 2, 1, 3).reshape(SIZE[0], 640)
    lefts = np.cumsum(rng.integers(0, 3, n)) % (640 - SIZE[1])
    return colours[np.stack([wall[:, left : left + SIZE[1]] for left in lefts])]


def arenas(store: object) -> int:
    return sum(len(store.dump_arena(i)) for i in range(store.n_arenas()))


def numbers_of(store: object, frames: np.ndarray) -> list[int]:
    return [store.append(0, frame) for frame in np.ascontiguousarray(frames)]


def read(store: object, numbers: list[int], like: np.ndarray) -> np.ndarray:
    out = np.empty_like(like)
    store.read(np.zeros(len(numbers), np.uint32), np.array(numbers, np.uint32), out)
    return out


def in_layout(frames: np.ndarray, colours: int) -> np.ndarray:
    return np.ascontiguousarray(frames.transpose(0, 3, 1, 2) if colours == IN_PLANES else frames)


@pytest.mark.parametrize("colours", [IN_PLANES, IN_PIXELS])
@pytest.mark.parametrize("n_colours", [1, 4, 16, 17, 64, 65, 200, 256])
def test_pictures_of_few_colours_come_back_and_take_less(colours: int, n_colours: int) -> None:
    frames = in_layout(pictures(60, n_colours), colours)
    plain, lean = (core.Store(1, frames[0].nbytes, page_bytes=4096, colours=each) for each in (NO_COLOURS, colours))
    for store in (plain, lean):
        assert np.array_equal(read(store, numbers_of(store, frames), frames), frames)
    table = 772  # bytes; a picture of one colour has nothing else
    assert arenas(lean) <= arenas(plain) / 2 + 2 * table


@both
@pytest.mark.parametrize("colours", [IN_PLANES, IN_PIXELS])
def test_a_table_that_is_full_begins_anew(made_by: ModuleType, colours: int) -> None:
    """Each scene has other colours: 40 scenes of 20 are more than a table holds."""
    scenes = [in_layout(pictures(20, 20, seed), colours) for seed in range(40)]
    frames = np.concatenate(scenes)
    store = made_by.Store(1, frames[0].nbytes, page_bytes=1024, colours=colours)
    numbers = numbers_of(store, frames)
    assert np.array_equal(read(store, numbers, frames), frames)
    assert arenas(store) < frames.nbytes / 3


@both
def test_pictures_of_many_colours_between_others_are_kept_as_they_are(made_by: ModuleType) -> None:
    frames = pictures(80, 8)
    noise = np.random.default_rng(1).integers(0, 256, frames.shape, np.uint8)
    noisy = np.isin(np.arange(80), [0, 7, 8, 9, 30, 31, 32, 33, 34, 60, 79])
    frames[noisy] = noise[noisy]
    store = made_by.Store(1, frames[0].nbytes, page_bytes=1024, colours=IN_PIXELS)
    numbers = numbers_of(store, frames)
    assert np.array_equal(read(store, numbers, frames), frames)
    again = made_by.Store(1, frames[0].nbytes, page_bytes=1024, colours=IN_PIXELS)
    again.load(store.dump_index(), [store.dump_arena(i) for i in range(store.n_arenas())])
    numbers += numbers_of(again, frames[::-1])
    assert np.array_equal(read(again, numbers, np.concatenate([frames] * 2)), np.concatenate([frames, frames[::-1]]))


def test_noise_in_colours_takes_no_more_than_without_them() -> None:
    frames = np.random.default_rng(0).integers(0, 256, (40, *SIZE, 3), np.uint8)
    sizes = []
    for colours in (NO_COLOURS, IN_PIXELS):
        store = core.Store(1, frames[0].nbytes, page_bytes=4096, colours=colours)
        numbers_of(store, frames)
        sizes.append(arenas(store))
    assert sizes[1] <= sizes[0] + 64


@both
def test_stacked_pictures_come_back(made_by: ModuleType) -> None:
    """A stack along the last axis, the newest first: colours are those of one frame."""
    frames = pictures(30, 5)
    stacks = np.stack([np.concatenate([frames[i - k] for k in range(3)], axis=-1) for i in range(2, 30)])
    each = frames[0].nbytes
    pixels = SIZE[0] * SIZE[1]
    store = made_by.Store(1, each, n_stack=3, outer=pixels, newest_first=True, page_bytes=1024, colours=IN_PIXELS)
    numbers = numbers_of(store, stacks)
    assert store.length(0) == 30
    assert np.array_equal(read(store, numbers, stacks), stacks)


@both
def test_sizes_that_have_no_colours_are_refused(made_by: ModuleType) -> None:
    for sizes in ({"frame_bytes": 100}, {"frame_bytes": 99, "page_bytes": 512}, {"frame_bytes": 99, "colours": 3}):
        with pytest.raises(ValueError):
            made_by.Store(**{"n_streams": 1, "colours": IN_PIXELS, **sizes})


@pytest.mark.parametrize(
    ("shape", "dtype", "colours"),
    [
        ((64, 64, 3), "u1", IN_PIXELS),
        ((3, 64, 64), "u1", IN_PLANES),
        ((1, 3, 64, 64), "u1", IN_PLANES),
        ((3, 64, 3), "u1", NO_COLOURS),  # too small to be worth a table
        ((64, 64), "u1", NO_COLOURS),
        ((64, 64, 4), "u1", NO_COLOURS),
        ((64, 64, 3), "f4", NO_COLOURS),
    ],
)
def test_colours_are_where_a_shape_says(shape: tuple[int, ...], dtype: str, colours: int) -> None:
    assert StackFinder(shape, np.dtype(dtype)).found.colours == colours


@pytest.mark.parametrize(
    ("stacked", "outer", "colours"),
    [
        (lambda frames: np.concatenate(frames.transpose(0, 3, 1, 2), axis=0), 1, IN_PLANES),
        (lambda frames: np.concatenate(frames, axis=-1), SIZE[0] * SIZE[1], IN_PIXELS),
        (lambda frames: frames, 1, IN_PIXELS),
    ],
)
def test_a_stack_of_pictures_has_the_colours_of_one(stacked: object, outer: int, colours: int) -> None:
    frames = pictures(12, 6)
    rows = [stacked(frames[i : i + 4]) for i in range(9)]
    column = Column(9, 1, rows[0].shape, np.dtype(np.uint8), Options(), Outputs())
    for row, observation in enumerate(rows):
        column[row] = observation[None]
    assert column.stack == FrameStack(4, outer, False, colours, SIZE[1] * (3 if colours == IN_PIXELS else 1))
    assert np.array_equal(column[:][:, 0], np.stack(rows))


@both
def test_stores_with_and_without_colours_and_of_other_pages_are_read_together(made_by: ModuleType) -> None:
    """As a buffer does that was saved by an earlier version, filled on, and sampled from."""
    frames = pictures(8, 6)
    each = frames[0].nbytes
    ways = [{"page_bytes": 1024}, {"colours": IN_PIXELS, "page_bytes": 4096}, {}, {"colours": IN_PIXELS}]
    stores = [made_by.Store(1, each, **way) for way in ways]
    numbers = [[store.append(0, frame) for frame in frames] for store in stores]
    which, out = np.repeat(np.arange(4, dtype=np.uint32), 8), np.empty((32, *frames[0].shape), np.uint8)
    made_by.gather(tuple(stores), which, np.zeros(32, np.uint32), np.array(numbers, np.uint32).ravel(), out)
    assert np.array_equal(out, np.concatenate([frames] * 4))


def test_an_earlier_ring_goes_on_in_pages_of_its_own_size() -> None:
    """Pictures of 64×64×3 were four pages of 4 KiB; now they are one."""
    frames = np.random.default_rng(0).integers(0, 256, (90, 64, 64, 3), np.uint8)
    ring = Ring(100, 1, frames[0].shape, np.dtype(np.uint8), Options(), Outputs())
    ring.finder.recall(FrameStack(), decided=True)
    ring._segments = [
        RingSegment(0, new_shelf(Options(), 1, frames[0].nbytes, FrameStack(), page_bytes=4096, exactly=True))
    ]
    for row in range(80):
        ring.add(row, frames[row][None], frames[row + 1][None])
    assert len({bytes(segment.shelf.store.dump_index()[24:28]) for segment in ring._segments}) == 2
    rows = np.arange(80)
    assert np.array_equal(ring.read(rows, np.zeros_like(rows), 1), frames[1:81])


def test_what_was_stored_without_colours_goes_on_without_them() -> None:
    """A checkpoint of an earlier version says nothing of colours."""
    frames = pictures(20, 6)
    ring = Ring(32, 1, frames[0].shape, np.dtype(np.uint8), Options(), Outputs())
    ring.finder.recall(FrameStack(), decided=True)
    for row in range(10):
        ring.add(row, frames[row][None], frames[row + 1][None])
    state = ring.state()
    state["stack"] = state["stack"][:3]
    assert state["stack"] == (1, 1, False)
    again = Ring(32, 1, frames[0].shape, np.dtype(np.uint8), Options(), Outputs())
    assert again.stack.colours == IN_PIXELS
    again.prepare(state)()
    for row in range(10, 19):
        again.add(row, frames[row][None], frames[row + 1][None])
    assert again.stack.colours == NO_COLOURS
    rows = np.arange(19)
    assert np.array_equal(again.read(rows, np.zeros_like(rows), 1), frames[1:])
