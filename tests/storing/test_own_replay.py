"""Lean storage for a replay buffer with SB3's interface that is no part of SB3, as CleanRL's is."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, NamedTuple

import numpy as np
import pytest
import torch
from gymnasium import spaces

from legroom.backends.sb3 import attaching, mirrored

SPACE, ACTIONS = spaces.Box(0, 255, (40, 30), np.uint8), spaces.Discrete(3)


class Samples(NamedTuple):
    observations: torch.Tensor
    actions: torch.Tensor
    next_observations: torch.Tensor
    dones: torch.Tensor
    rewards: torch.Tensor


class BaseBuffer:
    def __init__(self, buffer_size, observation_space, action_space, device="auto", n_envs=1):
        self.observation_space, self.action_space = observation_space, action_space
        self.obs_shape, self.action_dim = observation_space.shape, 1
        self.pos, self.full, self.device, self.n_envs = 0, False, torch.device(device), n_envs

    def sample(self, batch_size):
        return self._get_samples(np.random.randint(0, self.buffer_size if self.full else self.pos, size=batch_size))

    def to_torch(self, array, copy=True):
        return torch.tensor(array, device=self.device)


class ReplayBuffer(BaseBuffer):
    def __init__(
        self, buffer_size, observation_space, action_space, device="auto", n_envs=1, optimize_memory_usage=False,
        handle_timeout_termination=True,
    ):  # fmt: skip
        super().__init__(buffer_size, observation_space, action_space, device, n_envs)
        self.buffer_size, self.optimize_memory_usage = buffer_size // n_envs, optimize_memory_usage
        shape = (self.buffer_size, n_envs)
        self.observations, self.next_observations = (np.zeros((*shape, 40, 30), np.uint8) for _ in range(2))
        self.actions, self.rewards = np.zeros((*shape, 1), np.int64), np.zeros(shape, np.float32)
        self.dones, self.timeouts = np.zeros(shape, np.float32), np.zeros(shape, np.float32)

    def sample(self, batch_size):
        return super().sample(batch_size)

    @staticmethod
    def _maybe_cast_dtype(dtype):
        return dtype

    def add(self, obs, next_obs, action, reward, done, infos):
        self.observations[self.pos], self.next_observations[self.pos] = obs, next_obs
        self.actions[self.pos], self.rewards[self.pos], self.dones[self.pos] = action.reshape(-1, 1), reward, done
        self.pos = (self.pos + 1) % self.buffer_size
        self.full = self.full or self.pos == 0

    def _get_samples(self, batch_inds):
        envs = np.random.randint(0, high=self.n_envs, size=(len(batch_inds),))
        at = batch_inds, envs
        dones = (self.dones[at] * (1 - self.timeouts[at])).reshape(-1, 1)
        data = self.observations[at], self.actions[at], self.next_observations[at], dones, self.rewards[at]
        return Samples(*(self.to_torch(each) for each in (*data[:4], data[4].reshape(-1, 1))))


@pytest.fixture
def module(monkeypatch: pytest.MonkeyPatch) -> Any:
    """A module with such a buffer, whose code is known."""
    found = SimpleNamespace(BaseBuffer=BaseBuffer, ReplayBuffer=ReplayBuffer, ReplayBufferSamples=Samples)
    pinned = {name: mirrored._fingerprint_in(found, name) for name in mirrored.OWN_REPLAY}
    assert all(pinned.values())
    monkeypatch.setattr(attaching, "OWN_PINNED", pinned)
    yield found
    del ReplayBuffer.__new__


def filled_and_sampled() -> tuple[ReplayBuffer, list[Samples]]:
    np.random.seed(3)
    buffer = ReplayBuffer(60, SPACE, ACTIONS, "cpu", n_envs=2)
    samples = []
    for step in range(50):
        pictures = [np.full((2, 40, 30), (step + more) % 251, np.uint8) for more in range(2)]
        buffer.add(*pictures, np.array([1, 2]), np.array([0.5, step]), np.array([step % 7 == 6, False]), [{}, {}])
        samples.append(buffer.sample(8))
    return buffer, samples


def test_what_is_sampled_is_the_same(module: Any, capfd) -> None:
    plain, theirs = filled_and_sampled()
    attaching.on_own_buffers(module)
    lean, ours = filled_and_sampled()
    assert type(plain) is ReplayBuffer and type(lean) is not ReplayBuffer and isinstance(lean, ReplayBuffer)
    assert lean.nbytes < 2 * 30 * 2 * 40 * 30 / 2  # of both arrays, of so few rows
    for mine, other in zip(ours, theirs, strict=True):
        assert all(torch.equal(*each) and each[0].dtype == each[1].dtype for each in zip(mine, other, strict=True))
    assert "ReplayBuffer of the program is stored losslessly" in capfd.readouterr().err


def test_code_that_is_not_known_is_left_alone(module: Any, monkeypatch: pytest.MonkeyPatch, capfd) -> None:
    monkeypatch.setattr(attaching, "OWN_PINNED", mirrored.OWN_PINNED)
    attaching.on_own_buffers(module)
    assert type(ReplayBuffer(60, SPACE, ACTIONS, "cpu")) is ReplayBuffer
    assert "BaseBuffer.sample of this release is not the code that it mirrors" in capfd.readouterr().err
