"""`legroom.LeanArray`: a list of frames that gives every frame back, however it was written, saved and opened."""

import gc
import pickle
import subprocess
import sys

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import legroom
from legroom.errors import BadInput
from legroom.storing.array import LeanArray
from legroom.storing.saving import HEAD, write_file


def moving(count: int, shape: tuple[int, ...] = (12, 30), seed: int = 0) -> np.ndarray:
    """Frames of which each differs from the one before in one number."""
    rng = np.random.default_rng(seed)
    made = np.repeat(rng.integers(0, 250, shape, np.uint8)[None], count, 0)
    for step in range(1, count):
        made[step] = made[step - 1]
        made[(step, *(rng.integers(size) for size in shape))] ^= 1
    return made


def test_is_a_list_of_frames():
    frames, plain = legroom.LeanArray((12, 30), np.uint8), moving(200)
    for frame in plain[:50]:
        frames.append(frame)
    frames.extend(plain[50:])
    assert len(frames) == 200 and frames.shape == (200, 12, 30)
    assert np.array_equal(frames[7], plain[7]) and np.array_equal(frames[-1], plain[-1])
    assert np.array_equal(frames[10:90:3], plain[10:90:3]) and np.array_equal(frames[[5, 1, -2]], plain[[5, 1, -2]])
    assert np.array_equal(frames[plain[:, 0, 0] > 9], plain[plain[:, 0, 0] > 9])
    assert np.array_equal(np.asarray(frames), plain) and np.array_equal(list(frames)[3], plain[3])
    out = np.empty((3, 12, 30), np.uint8)
    assert frames.gather([9, 9, 0], out) is out and np.array_equal(out, plain[[9, 9, 0]])
    assert frames.nbytes < plain.nbytes / 2


@settings(max_examples=40, deadline=None)
@given(st.data())
def test_whatever_is_written_comes_back(data):
    shape = data.draw(st.sampled_from([(3,), (40,), (4, 6, 6), (5, 2, 13)]))
    dtype = np.dtype(data.draw(st.sampled_from(["u1", "f4", "i8", "?"])))
    streams = data.draw(st.integers(1, 3))
    rng = np.random.default_rng(data.draw(st.integers(0, 9)))
    frames, plain = LeanArray(shape, dtype, n_streams=streams), []
    for _ in range(data.draw(st.integers(0, 400))):
        frame = rng.integers(0, 3, shape).astype(dtype)
        if len(plain) < 60 and (not plain or rng.random() < 0.7):
            frames.append(frame, int(rng.integers(streams)))
            plain.append(frame)
        else:
            place = int(rng.integers(len(plain)))
            frames[place] = plain[place] = frame
    again = pickle.loads(pickle.dumps(frames))
    for each in (frames, again):
        assert np.array_equal(each[:], np.array(plain, dtype).reshape(-1, *shape))


def test_memory_stays_flat_in_a_ring_and_in_any_order():
    frames, plain = LeanArray((12, 30), np.uint8), moving(3000)
    frames.extend(plain)
    full = frames.nbytes
    for step in range(12000):
        frames[step % 3000] = plain[step % 3000]
    assert frames.nbytes < 1.5 * full and np.array_equal(frames[:], plain)
    rng = np.random.default_rng(1)
    for place in rng.integers(0, 3000, 12000).tolist():
        frames[place] = plain[place]
    assert np.array_equal(frames[:], plain) and frames.nbytes < 2.2 * plain.nbytes


def test_stacks_cost_one_frame_each():
    rng = np.random.default_rng(0)
    single = rng.integers(0, 256, (403, 20, 20), np.uint8)
    frames = LeanArray((4, 20, 20), np.uint8)
    frames.extend(np.stack([single[i : i + 4] for i in range(400)]))
    assert frames.nbytes < 1.3 * single.nbytes and np.array_equal(frames[399], single[399:403])


def test_saved_arrays_are_loaded_and_opened(tmp_path):
    frames, plain = LeanArray((12, 30), np.uint8, n_streams=2), moving(700)
    frames.extend(plain)
    for place in range(300):
        frames[place] = plain[699 - place]
    plain[:300] = plain[699:399:-1]
    frames.save(tmp_path / "frames.bin")
    loaded, opened = LeanArray.load(tmp_path / "frames.bin"), LeanArray.open(tmp_path / "frames.bin")
    assert np.array_equal(loaded[:], plain) and np.array_equal(opened[:], plain)
    loaded.append(plain[0])
    assert len(loaded) == 701 and opened.nbytes < frames.nbytes
    with pytest.raises(ValueError, match="cannot be changed"):
        opened.append(plain[0])
    opened.save(tmp_path / "again.bin")
    del frames, opened
    gc.collect()
    assert np.array_equal(LeanArray.open(tmp_path / "again.bin")[:], plain)


def saved(path, count: int = 100) -> tuple[bytes, np.ndarray]:
    """Save noise and frames that resemble each other, and return the file's bytes and the frames."""
    noise = np.random.default_rng(0).integers(0, 256, (count // 2, 40, 40), np.uint8)
    plain = np.concatenate([noise, moving(count // 2, (40, 40))])
    frames = LeanArray((40, 40), np.uint8)
    frames.extend(plain)
    frames.save(path)
    return path.read_bytes(), plain


def reported(path, plain) -> bool:
    """Say whether opening or reading raises an OSError in one line that names the file; else every frame is right."""
    try:
        opened = LeanArray.open(path)
        assert all(np.array_equal(opened[place], plain[place]) for place in range(len(plain)))
    except OSError as error:
        assert str(path) in str(error) and "\n" not in str(error)
        return True
    return False


@pytest.mark.parametrize("flips", [80, pytest.param(2000, marks=pytest.mark.slow)])
def test_every_flipped_bit_is_reported(tmp_path, flips):
    path, rng = tmp_path / "frames.bin", np.random.default_rng(3)
    whole, plain = saved(path)
    assert not reported(path, plain)
    head = HEAD.size + HEAD.unpack(whole[: HEAD.size])[1]
    for place in [*range(HEAD.size), *rng.integers(0, len(whole), flips), *rng.integers(0, head, flips // 4)]:
        damaged = bytearray(whole)
        damaged[place] ^= 1 << int(rng.integers(8))
        path.write_bytes(damaged)
        assert reported(path, plain), place
    for part in (whole[:-1], whole[: len(whole) // 2], whole + b"x"):
        path.write_bytes(part)
        for read in (LeanArray.load, LeanArray.open):
            with pytest.raises(BadInput, match="damaged") as refused:
                read(path)
            assert isinstance(refused.value, OSError)


CUT = """
import os, sys
from legroom.storing.array import LeanArray
path = sys.argv[1]
size, reported = os.path.getsize(path), 0
for part in range(51):
    with open(path + ".cut", "wb") as copy:
        copy.write(open(path, "rb").read())
    opened = LeanArray.open(path + ".cut")
    for place in range(0, len(opened), 7):
        opened[place]
    os.truncate(path + ".cut", size * part // 50)
    try:
        opened[:]
    except OSError as error:
        assert ".cut" in str(error) and "block" in str(error), error
        reported += 1
    with open(path + ".cut", "ab") as longer:
        longer.write(bytes(100000))
    try:
        opened[:]
    except OSError:
        pass
print(reported)
"""


def test_a_file_that_is_cut_while_it_is_open_is_an_error(tmp_path):
    saved(tmp_path / "frames.bin")
    command = [sys.executable, "-c", CUT, str(tmp_path / "frames.bin")]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=100, check=False)
    assert ended.returncode == 0, ended.stderr  # not -SIGBUS
    assert int(ended.stdout) > 10  # what was read before is still there


def test_a_file_of_an_earlier_version_is_checked_when_it_is_opened(tmp_path):
    frames, plain, path = LeanArray((40, 40), np.uint8), moving(90, (40, 40)), tmp_path / "frames.bin"
    frames.extend(plain)
    write_file(path, {"buffer": {"kind": "LeanArray"}, "state": frames.__getstate__()})  # as 0.2 wrote it
    assert np.array_equal(LeanArray.open(path)[:], plain)
    damaged = bytearray(path.read_bytes())
    damaged[-9] ^= 4
    path.write_bytes(damaged)
    with pytest.raises(OSError, match="not as written"):
        LeanArray.open(path)


def test_spilled_frames_are_read_back(tmp_path):
    noise = np.random.default_rng(0).integers(0, 256, (600, 100, 100), np.uint8)
    frames = LeanArray((100, 100), np.uint8, max_bytes="2MB", spill_dir=str(tmp_path))
    frames.extend(noise)
    assert np.array_equal(frames[::7], noise[::7]) and frames.nbytes < noise.nbytes


@pytest.mark.parametrize(
    ("wrong", "error", "text"),
    [
        (lambda a: a.append(np.zeros((3, 3))), ValueError, "shape"),
        (lambda a: a[5], IndexError, "5"),
        (lambda a: a[[0, -3]], IndexError, "-3"),
        (lambda a: a.__setitem__(2, np.zeros((2, 50))), IndexError, "item 2 of 2"),
        (lambda a: a.gather([0], np.empty((2, 2, 50))), ValueError, "not C-contiguous"),
        (lambda a: LeanArray((3,), object), BadInput, "objects"),
        (lambda a: LeanArray((0, 3), "u1"), BadInput, "at least 1"),
        (lambda a: LeanArray.load("/nowhere/x"), BadInput, "cannot be read"),
    ],
)
def test_mistakes_are_named(wrong, error, text):
    frames = LeanArray((2, 50), np.float64)
    frames.extend(np.zeros((2, 2, 50)))
    with pytest.raises(error, match=text):
        wrong(frames)
    assert len(frames) == 2
