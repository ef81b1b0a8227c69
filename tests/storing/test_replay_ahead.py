"""Batches of a replay buffer that are decoded ahead of time are those that SB3 samples, whatever happens in between."""

import copy
import os
import pickle
import random
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from gymnasium import spaces
from stable_baselines3.common.buffers import ReplayBuffer

from legroom.backends.sb3.lean_replay import LeanReplayBuffer
from legroom.storing import replay_ahead
from legroom.storing.replay_ahead import ReplayAhead, Rows, state_of_generator

SPACE = spaces.Box(0, 255, (40, 40), np.uint8)


@pytest.fixture(autouse=True)
def always_worth_a_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(replay_ahead, "WORTH_A_THREAD_S", 0.0)
    monkeypatch.setattr(replay_ahead, "LATE", 1e9)
    monkeypatch.setattr(replay_ahead, "count_cores", lambda: 2)


def buffer_pair(rows: int, n_envs: int) -> list[Any]:
    return [cls(rows * n_envs, SPACE, spaces.Discrete(4), "cpu", n_envs) for cls in (ReplayBuffer, LeanReplayBuffer)]


def add(buffer: Any, rng: np.random.Generator) -> None:
    first, second = rng.integers(0, 256, (2, buffer.n_envs, 40, 40), dtype=np.uint8)
    buffer.add(first, second, np.zeros((buffer.n_envs, 1)), np.ones(buffer.n_envs), np.zeros(buffer.n_envs, bool),
               [{}] * buffer.n_envs)  # fmt: skip


def lived(buffer: Any, seed: int) -> list[np.ndarray]:
    """Return what is sampled in a life of adding, drawing and sampling, by chance."""
    np.random.seed(seed)
    chance, frames, found = random.Random(seed), np.random.default_rng(seed), []
    steady = chance.random() < 0.5  # as training is: the same between all samples
    for _ in range(60):
        for _ in range(2 if steady else chance.choice((0, 1, 1, 1, 5))):
            add(buffer, frames)
            np.random.rand()
        if not steady and chance.random() < 0.1:
            np.random.normal(size=chance.randint(1, 700))
        if not steady and chance.random() < 0.05:
            buffer.reset()
        if buffer.pos or buffer.full:
            samples = buffer.sample(16 if steady else chance.choice((16, 16, 16, 7)))
            found += [samples.observations.numpy().copy(), samples.next_observations.numpy().copy()]
    return found


@pytest.mark.parametrize(("worth_s", "ahead"), [(1e-9, True), (1e3, False)])
def test_batches_are_decoded_ahead_once_some_have_taken_long_enough(monkeypatch, worth_s: float, ahead: bool) -> None:
    monkeypatch.setattr(replay_ahead, "WORTH_A_THREAD_S", worth_s)
    (_, buffer), frames, begun = buffer_pair(8, 1), np.random.default_rng(0), []
    for _ in range(8):
        add(buffer, frames)
    for _ in range(2 * replay_ahead.TIMED):
        buffer.sample(16)
        begun.append(buffer.ahead._coming is not None)
    assert begun[-1] is ahead and not any(begun[: replay_ahead.TIMED - 1])


@pytest.mark.parametrize("seed", range(12))
def test_what_is_sampled_is_what_sb3_samples(seed: int) -> None:
    plain, lean = (lived(buffer, seed) for buffer in buffer_pair(30, 1 + seed % 3))
    assert len(plain) == len(lean)
    assert all(np.array_equal(one, other) for one, other in zip(plain, lean, strict=True))


def test_a_training_that_goes_on_steadily_is_guessed() -> None:
    read: list[int] = []

    def reading(rows: np.ndarray, envs: np.ndarray) -> Any:
        read.append(len(rows))
        return {"": rows.copy()}, {"": rows + 1}

    ahead = ReplayAhead(reading)
    np.random.seed(0)
    for step in range(40):
        for _ in range(4):
            np.random.rand()
        there, before = Rows(1000 + 4 * step, 1000 + 4 * step, 1000 + 4 * step, 10**6, 1), ahead.before_drawing()
        rows = np.random.randint(0, there.count, size=32)
        assert np.array_equal(ahead.pairs(rows, np.zeros(32, np.int64), there, before)[0][""], rows)
    ahead.close()
    # two samples tell how many numbers are drawn in between; then each batch is decoded once, but for single rows
    assert read.count(32) in (40, 41)  # the last one is decoded in vain, or given up
    assert sum(n for n in read if n != 32) < 20


def test_a_guess_that_cannot_be_read_does_not_fail_what_can() -> None:
    main = threading.get_ident()

    def reading(rows: np.ndarray, envs: np.ndarray) -> Any:
        if threading.get_ident() != main:
            raise OSError("a damaged block of a file, at a row that nobody asked for")
        return {"": rows.copy()}, {"": rows + 1}

    ahead, there = ReplayAhead(reading), Rows(1000, 1000, 1000, 10**6, 1)
    for _ in range(6):
        before = ahead.before_drawing()
        rows = np.random.randint(0, there.count, size=32)
        assert np.array_equal(ahead.pairs(rows, np.zeros(32, np.int64), there, before)[1][""], rows + 1)
    ahead.close()


def test_training_whose_numbers_cannot_be_guessed_stops_guessing() -> None:
    buffer = buffer_pair(30, 1)[1]
    rng = np.random.default_rng(0)
    for step in range(60):
        add(buffer, rng)
        np.random.rand(step * step % 17)
        buffer.sample(16)
    assert not buffer.ahead._allowed


def test_batches_that_are_waited_for_are_no_longer_decoded_ahead(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(replay_ahead, "LATE", 0.0)
    buffer = buffer_pair(30, 1)[1]
    rng = np.random.default_rng(0)
    for _ in range(30):
        add(buffer, rng)
        buffer.sample(16)
    assert not buffer.ahead._allowed


def test_a_copy_a_saved_buffer_and_a_fork_sample_on(tmp_path: Path) -> None:
    plain, lean = buffer_pair(30, 1)
    for buffer in (plain, lean):
        np.random.seed(0)
        rng = np.random.default_rng(0)
        for _ in range(40):
            add(buffer, rng)
            buffer.sample(16)
    lean.save(tmp_path / "buffer")
    loaded = buffer_pair(30, 1)[1]
    loaded.load(tmp_path / "buffer")
    for other in (copy.deepcopy(lean), pickle.loads(pickle.dumps(lean)), loaded):
        for seed in (1, 2, 3):
            drawn = []
            for buffer in (plain, other):
                np.random.seed(seed)
                drawn.append(buffer.sample(16).observations.numpy().copy())
            assert np.array_equal(*drawn)
    child = os.fork()
    if not child:
        np.random.seed(5)
        ours = lean.sample(16).observations.numpy().copy()
        np.random.seed(5)
        os._exit(0 if np.array_equal(ours, plain.sample(16).observations.numpy()) else 1)
    assert os.waitpid(child, 0)[1] == 0


def test_the_state_of_the_generator_is_read_without_changing_it() -> None:
    np.random.seed(7)
    before = state_of_generator()
    assert before == state_of_generator()
    np.random.rand()
    assert before != state_of_generator()
