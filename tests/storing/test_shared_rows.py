"""Lean replay that samples as `optimize_memory_usage=True` does, and lean buffers that become the library's own."""

import io
import pickle

import numpy as np
import pytest
from gymnasium import spaces
from stable_baselines3.common.buffers import ReplayBuffer

from legroom import LeanReplayBuffer
from legroom.storing.plain_pickle import PIECE_BYTES, Rows, dump, plain_reduction

SPACE, ACTIONS = spaces.Box(0, 255, (40, 30), np.uint8), spaces.Discrete(3)


def filled(buffer: ReplayBuffer, steps: int) -> ReplayBuffer:
    def observation(step: int) -> np.ndarray:
        return np.full((2, 40, 30), step % 251, np.uint8)

    for step in range(steps):
        # the observation after an episode's end is another one than what followed the last
        following = observation(step + 1) if step % 7 != 6 else observation(100 + step)
        ends = np.array([step % 7 == 6] * 2)
        buffer.add(observation(step), following, np.array([1, 2]), np.array([0.5, step]), ends, [{}, {}])
    return buffer


def pair(steps: int) -> tuple[ReplayBuffer, LeanReplayBuffer]:
    arguments = (40, SPACE, ACTIONS, "cpu", 2)
    plain = ReplayBuffer(*arguments, optimize_memory_usage=True, handle_timeout_termination=False)
    lean = LeanReplayBuffer(*arguments, handle_timeout_termination=False)
    lean.share_rows()
    return filled(plain, steps), filled(lean, steps)


@pytest.mark.parametrize("steps", [1, 5, 19, 20, 21, 53, 60])
def test_samples_with_shared_rows_are_SB3s(steps: int) -> None:
    plain, lean = pair(steps)
    for _ in range(5):
        np.random.seed(steps)
        theirs = plain.sample(16)
        after = np.random.random()
        np.random.seed(steps)
        ours = lean.sample(16)
        assert np.random.random() == after
        for name in ("observations", "next_observations", "actions", "dones", "rewards"):
            assert np.array_equal(getattr(theirs, name).numpy(), getattr(ours, name).numpy()), name


@pytest.mark.parametrize("steps", [5, 20, 53])
def test_the_array_is_the_one_that_SB3_has(steps: int) -> None:
    plain, lean = pair(steps)
    written = min(steps + 1, 20)
    assert np.array_equal(np.asarray(lean.observations)[:written], plain.observations[:written])


@pytest.mark.parametrize("way", ["streamed", "at once"])
@pytest.mark.parametrize("steps", [5, 53])
def test_a_pickle_of_it_is_SB3s_buffer(steps: int, way: str) -> None:
    plain, lean = pair(steps)

    class Pickled(LeanReplayBuffer):
        def __reduce_ex__(self, protocol):
            return plain_reduction(self, ReplayBuffer, ("columns", "options", "sampler", "n_steps", "gamma"))

    lean.__class__ = Pickled
    file = io.BytesIO()
    if way == "streamed":
        dump(lean, file)
    else:
        pickle.dump(lean, file, protocol=pickle.HIGHEST_PROTOCOL)
    assert b"legroom" not in file.getvalue()
    loaded = pickle.loads(file.getvalue())
    assert type(loaded) is ReplayBuffer
    assert vars(loaded).keys() == vars(plain).keys()
    for name, value in vars(plain).items():
        assert np.array_equal(value, vars(loaded)[name]), name
    filled(loaded, 30)  # it can be written to


def test_a_large_array_is_written_in_pieces() -> None:
    rows = Rows(np.arange(3 * PIECE_BYTES // 8).reshape(-1, 1024))
    pieces = list(rows.pieces())
    assert [each.nbytes for each in pieces] == [PIECE_BYTES] * 3
    assert np.array_equal(np.concatenate(pieces), rows.source)
