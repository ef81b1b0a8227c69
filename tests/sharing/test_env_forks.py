"""An environment that forks, and one whose observations are not of its space, in light workers and in the process."""

from __future__ import annotations

from functools import partial
from typing import Any

import forking_envs as envs
import numpy as np
import pytest
from stable_baselines3.common.vec_env import DummyVecEnv, VecEnv

import legroom
from legroom.errors import BadInput
from legroom.sharing.env_state import EpisodeStatistics

QUICK = ("sys.exit", "raises", "wrong", "process")


def stepped(env: VecEnv, steps: int) -> list[np.ndarray]:
    seen = [np.array(env.reset())]
    for _ in range(steps):
        env.step_async(np.zeros(env.num_envs, int))
        seen.append(np.array(env.step_wait()[0]))
    return seen


@pytest.mark.parametrize("forked", [True, pytest.param(False, marks=pytest.mark.slow)], ids=["template", "fresh"])
@pytest.mark.parametrize(
    "way", [each if each in QUICK else pytest.param(each, marks=pytest.mark.slow) for each in envs.WAYS]
)
def test_a_worker_goes_on_whatever_the_environments_child_does(way: str, forked: bool) -> None:
    env = legroom.LeanVecEnv([partial(envs.Forking, way)] * 2, forked=forked)
    try:
        assert [seen[0, 0] for seen in stepped(env, 7)] == [0, 1, 2, 3, 4, 0, 1, 2]  # an episode has five steps
        assert env.get_attr("way") == [way, way]  # asked after the child could have answered
        assert env.env_method("seen", "step")[1].tolist() == [2, 2, 2, 2]
    finally:
        env.close()


def test_a_child_forked_while_an_environment_is_made_does_not_answer_for_the_worker() -> None:
    def make() -> Any:
        env = envs.Forking("returns")
        env._fork()
        return env

    env = legroom.LeanVecEnv([make, make])
    try:
        assert len(stepped(env, 3)) == 4
    finally:
        env.close()


def in_workers(make: Any) -> VecEnv:
    return legroom.LeanVecEnv([make, make], forked=False, envs_per_worker=2, monitor=False)


def in_process(make: Any) -> VecEnv:
    return DummyVecEnv([lambda: EpisodeStatistics(make())] * 2)


PLACES = pytest.mark.parametrize("vectorised", [pytest.param(in_workers, marks=pytest.mark.slow), in_process])


def refusal(vectorised: Any, make: Any) -> str:
    env = vectorised(make)
    try:
        with pytest.raises(BadInput) as refused:
            stepped(env, 6)
        return str(refused.value)
    finally:
        env.close()


@PLACES
@pytest.mark.parametrize("call", ["reset", "step"])
@pytest.mark.parametrize(
    ("form", "words"),
    [
        ("one number", "an observation of shape (1,); its space has (4,)"),
        ("too long", "an observation of shape (5,); its space has (4,)"),
        ("ragged", "an observation that is no array; its space has shape (4,)"),
        ("text", "an observation of <U1 with values that float32 of its space cannot hold"),
    ],
)
def test_an_observation_of_another_form_is_one_line(vectorised: Any, call: str, form: str, words: str) -> None:
    said = refusal(vectorised, partial(envs.Unlike, form, call))
    assert "Unlike" in said and f": {call} returned {words}" in said.replace("(Unlike)", "Unlike")
    assert "\n" not in said


@pytest.mark.parametrize("vectorised", [in_workers, in_process])
def test_the_last_observation_of_an_episode_counts_too(vectorised: Any) -> None:
    said = refusal(vectorised, partial(envs.Unlike, "one number", "step", at=5))
    assert "step returned an observation of shape (1,); its space has (4,)" in said


@PLACES
@pytest.mark.parametrize(
    ("parts", "words"),
    [
        ({"a": np.zeros(4, np.float32)}, "step returned an observation whose part 'b' is missing; it has 'a'"),
        ({"a": np.zeros(4, np.float32), "b": 0.5}, "part 'b' is of float64 with values that int64 of its space cannot"),
        (np.zeros(4, np.float32), "part 'a' is missing; it has no parts: it is a ndarray"),
    ],
)
def test_parts_of_a_dict_are_named(vectorised: Any, parts: Any, words: str) -> None:
    assert words in refusal(vectorised, partial(envs.UnlikeParts, parts))


@PLACES
def test_another_dtype_is_fine_as_long_as_no_value_is_lost(vectorised: Any) -> None:
    env = vectorised(partial(envs.Numbers, [0.0, 7.0, 255.0, 1.0]))
    try:
        assert stepped(env, 1)[1].tolist() == [[0, 7, 255, 1]] * 2
    finally:
        env.close()
    for values in ([0.5, 0, 0, 0], [256, 0, 0, 0], [-1, 0, 0, 0], [np.nan, 0, 0, 0]):
        said = refusal(vectorised, partial(envs.Numbers, values))
        assert "with values that uint8 of its space cannot hold" in said
