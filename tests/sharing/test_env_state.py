"""State of a chain of wrappers: an environment put back goes on exactly as the original does."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
from gymnasium import wrappers
from stable_baselines3.common.monitor import Monitor
from stable_baselines3.common.vec_env import DummyVecEnv
from worker_envs import Scaled, Steered, Walk

from legroom import LeanVecEnv
from legroom.errors import BadInput
from legroom.sharing.env_state import EpisodeStatistics, capture, obstacle, restore

CHAINS: dict[str, Callable[[], gym.Env]] = {
    "bare": Walk,
    "as gym.make wraps": lambda: wrappers.TimeLimit(wrappers.OrderEnforcing(wrappers.PassiveEnvChecker(Walk())), 9),
    "frame stack": lambda: wrappers.FrameStackObservation(Walk("image"), 3),
    "frame stack of dicts": lambda: wrappers.FrameStackObservation(Walk("small dict"), 2, padding_type="zero"),
    "statistics": lambda: wrappers.RecordEpisodeStatistics(Walk(), buffer_length=3),
    "normalized": lambda: wrappers.NormalizeReward(wrappers.NormalizeObservation(Walk())),
    "delayed, sticky, aware": lambda: wrappers.DelayObservation(
        wrappers.StickyAction(wrappers.TimeAwareObservation(wrappers.TimeLimit(Walk(), 11)), 0.4), 2
    ),
    "transformed": lambda: wrappers.ClipReward(
        wrappers.TransformObservation(wrappers.RescaleObservation(Walk("image"), 0, 1), np.negative, None), 0, 1
    ),
    "user's wrapper without attributes": lambda: Scaled(Walk()),
    "Monitor": lambda: Monitor(wrappers.TimeLimit(Walk(), 6)),
}


def outcome(env: gym.Env, actions: list[int]) -> list[Any]:
    """Play on, resetting where episodes end; return everything seen but the clock."""
    seen: list[Any] = []
    for action in actions:
        observation, reward, terminated, truncated, info = env.step(action)
        info.get("episode", {}).pop("t", None)
        seen.append((observation, reward, terminated, truncated, info))
        if terminated or truncated:
            seen.append(env.reset())
    seen.append((env.action_space.sample(), env.unwrapped.np_random.random()))
    return seen


@pytest.mark.parametrize("chain", CHAINS)
def test_a_restored_environment_goes_on_as_the_original_does(chain: str) -> None:
    actions = np.random.default_rng(0).integers(0, 3, 60).tolist()
    original, other = EpisodeStatistics(CHAINS[chain]()), EpisodeStatistics(CHAINS[chain]())
    original.reset(seed=4)
    original.action_space.seed(1)
    outcome(original, actions[:17])
    state = original.get_state()
    assert state is not None
    assert original.offers_state()
    expected = outcome(original, actions[17:])
    other.reset(seed=99)
    outcome(other, actions[:5])
    assert_plain(state)
    other.set_state(state)
    np.testing.assert_equal(outcome(other, actions[17:]), expected)
    other.set_state(state)  # the state is a copy: playing on has not changed it
    np.testing.assert_equal(outcome(other, actions[17:]), expected)


def assert_plain(value: Any) -> None:
    if isinstance(value, dict):
        for key, each in value.items():
            assert type(key) is str
            assert_plain(each)
    elif isinstance(value, list):
        for each in value:
            assert_plain(each)
    elif not isinstance(value, np.ndarray | np.generic):
        json.dumps(value)
        assert value is None or type(value) in (bool, int, float, str)


class Remembering(gym.Wrapper):
    """A wrapper with an attribute nobody knows."""

    def __init__(self, env: gym.Env) -> None:
        super().__init__(env)
        self.memory = 0


class Longer(wrappers.TimeLimit):
    """A subclass of a known wrapper, which may have more state."""


@pytest.mark.parametrize(
    ("make", "why"),
    [
        (Steered, "Steered cannot save its state"),
        (lambda: Remembering(Walk()), "Remembering cannot save its state"),
        (lambda: Longer(Walk(), 5), "Longer cannot save its state"),
    ],
)
def test_a_link_that_nobody_knows_means_no_state(make: Any, why: str) -> None:
    env = EpisodeStatistics(make())
    env.reset()
    assert env.get_state() is None
    assert capture(env) is None
    assert not env.offers_state()
    assert why in obstacle(env) == env.why_no_state()


def test_state_with_other_things_than_plain_data_is_none() -> None:
    class Odd(Walk):
        def get_state(self) -> dict[str, Any]:
            return {"position": (1, 2)}

    env = EpisodeStatistics(Odd())
    env.reset()
    assert env.get_state() is None
    assert "tuple is not plain data" in env.why_no_state()


def test_the_state_of_another_chain_is_refused() -> None:
    limited, bare = wrappers.TimeLimit(Walk(), 5), Walk()
    limited.reset()
    bare.reset()
    with pytest.raises(BadInput, match=r"TimeLimit of worker_envs.Walk, and the environment is worker_envs.Walk"):
        restore(bare, capture(limited) or {})


def test_it_works_alike_through_both_vector_environments() -> None:
    def limited() -> gym.Env:
        return EpisodeStatistics(wrappers.TimeLimit(Walk(), 7))

    dummy = DummyVecEnv([limited] * 2)
    lean = LeanVecEnv([limited] * 2, envs_per_worker=2)
    zeros = np.zeros(2, int)
    dummy.seed(1)
    dummy.reset()
    for _ in range(10):
        dummy.step(zeros)
    lean.reset()
    for index, state in enumerate(dummy.env_method("get_state")):
        lean.env_method("set_state", state, indices=index)
    for _ in range(15):
        for mine, its in zip(lean.step(zeros)[:3], dummy.step(zeros)[:3], strict=True):
            np.testing.assert_array_equal(mine, its)
    lean.close()


def test_statistics_are_those_of_Monitor() -> None:
    ours, monitor = EpisodeStatistics(Walk(limit=6)), Monitor(Walk(limit=6))
    for env in (ours, monitor):
        env.reset(seed=3)
    episodes = 0
    for _ in range(40):
        (*_, info), (*_, other) = ours.step(1), monitor.step(1)
        assert ("episode" in info) == ("episode" in other)
        if "episode" in info:
            episodes += 1
            assert info["episode"]["t"] == pytest.approx(other["episode"]["t"], abs=0.5)
            assert {**info["episode"], "t": 0} == {**other["episode"], "t": 0}
            ours.reset()
            monitor.reset()
    assert episodes > 3


def test_masks_are_there_only_where_the_environment_has_them() -> None:
    env = EpisodeStatistics(wrappers.TimeLimit(Walk(), 5))
    env.reset()
    np.testing.assert_array_equal(env.action_masks(), [False, True, True, True])
    assert not hasattr(EpisodeStatistics(Steered()), "action_masks")
