"""Lean buffers are read by any NumPy index, method and operator as SB3's own arrays are, between writes."""

import numpy as np
import pytest
from gymnasium import spaces
from stable_baselines3.common.buffers import ReplayBuffer
from tests.storing.lean_reads import run

import legroom
from legroom.storing.small_arrays import Masks

SPACE = spaces.Box(-9, 9, (16,), np.float32)


def written(buffer, rows, first=0):
    for row in range(first, first + rows):
        obs = np.full((2, 16), row + 0.5, np.float32)
        buffer.add(obs, obs + 1, np.zeros(2, int), np.zeros(2), np.zeros(2), [{}, {}])
    return buffer


def pair(rows):
    made = (
        kind(10, SPACE, spaces.Discrete(2), device="cpu", n_envs=2) for kind in (ReplayBuffer, legroom.LeanReplayBuffer)
    )
    return [written(buffer, rows) for buffer in made]


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("seed", [11, 12])
def test_every_read_is_SB3s(seed):
    counts, differing = run(1000, seed)
    assert not differing and len(counts) > 3


def test_a_write_between_the_two_sides_is_seen():
    rows, envs = np.array([0, 3]), np.array([0, 1])
    for buffer in pair(5):
        assert buffer.observations[rows, envs][:, 0].tolist() == [0.5, 3.5]
        written(buffer, 3, first=7)  # rows 0, 1 and 2 once more
        assert buffer.next_observations[rows, envs][:, 0].tolist() == [8.5, 4.5]
        buffer.observations[rows, envs]
        rows[0] = 1  # in place
        assert buffer.next_observations[rows, envs][:, 0].tolist() == [9.5, 4.5]
        rows[0] = 0


def test_rows_that_were_not_written_are_zeros():
    for buffer in pair(2):
        assert buffer.observations[:, 0, 0].tolist() == [0.5, 1.5, 0, 0, 0]
        assert buffer.next_observations[-1].sum() == 0
    for buffer in pair(0):
        assert buffer.observations[np.array([0, -1]), np.array([1, 0])].tolist() == np.zeros((2, 16)).tolist()


def test_what_cannot_be_written_is_an_error_never_lost():
    _, lean = pair(5)
    for key in (2, (0, 1), slice(None), np.array([1, 2])):
        with pytest.raises(ValueError, match="read-only"):
            lean.observations[key] = 1
    with pytest.raises(ValueError, match="read-only"):
        lean.observations[2][0, 0] = 1
    with pytest.raises(ValueError, match="read-only"):
        lean.dones[2][0] = 1
    before = np.array(lean.observations)
    lean.observations[0] = 7  # the next row
    assert (lean.observations[0] == 7).all() and np.array_equal(lean.observations[1:], before[1:])
    written(lean, 1, first=20)
    assert lean.observations[0, 0, 0] == 20.5


def test_any_part_of_masks_can_be_written():
    masks, plain = Masks(4, 2, 11), np.ones((4, 2, 11), np.float32)
    for key, value in ((1, 0), ((2, 1), np.arange(11) % 2), ((0, 0, 3), 0), ((slice(None), 1, -1), 0)):
        masks[key] = plain[key] = value
        assert np.array_equal(masks, plain)
