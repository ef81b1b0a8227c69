"""LeanVecEnv beside DummyVecEnv: the same calls must give the same arrays, infos and attributes."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from functools import partial
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
from gymnasium import spaces
from sb3_contrib.common.maskable.utils import get_action_masks, is_masking_supported
from stable_baselines3.common.monitor import Monitor
from stable_baselines3.common.vec_env import DummyVecEnv, VecEnv
from worker_envs import SPACES, InPlace, Scaled, Steered, Walk

from legroom import LeanVecEnv
from legroom.errors import BadInput


def assert_same(one: Any, other: Any) -> None:
    """Equal to the bit, in structure, shape, dtype and content."""
    if isinstance(one, dict):
        assert isinstance(other, dict)
        assert list(one) == list(other)
        for key in one:
            assert_same(one[key], other[key])
    elif isinstance(one, list | tuple):
        assert type(one) is type(other)
        assert len(one) == len(other)
        for mine, its in zip(one, other, strict=True):
            assert_same(mine, its)
    elif isinstance(one, np.ndarray):
        assert one.dtype == other.dtype
        np.testing.assert_array_equal(one, other)
    else:
        assert one == other


def without_time(infos: Any) -> list[dict[str, Any]]:
    for info in infos:
        if "episode" in info:
            info["episode"].pop("t")
    return list(infos)


def assert_walk_alike(lean: VecEnv, dummy: VecEnv, steps: int, draw: Callable[[], Any] | None = None) -> None:
    """Seed, reset and step both; compare everything they return, one step later too."""
    rng = np.random.default_rng(0)
    for env in (lean, dummy):
        env.seed(5)
    last, dummy_last = lean.reset(), dummy.reset()
    assert_same(last, dummy_last)
    assert_same(list(lean.reset_infos), list(dummy.reset_infos))
    for _ in range(steps):
        actions = draw() if draw else rng.integers(0, 3, lean.num_envs)
        now, rewards, dones, infos = lean.step(actions)
        dummy_now, *dummy_rest, dummy_infos = dummy.step(actions)
        for info in dummy_infos:
            if "terminal_observation" in info:  # ours has the dtype of the space, whatever the environment returned
                info["terminal_observation"] = cast(dummy.observation_space, info["terminal_observation"])
        assert_same(last, dummy_last)  # SB3 stores it only now
        assert_same(now, dummy_now)
        assert_same((rewards, dones), tuple(dummy_rest))
        assert_same(without_time(infos), without_time(dummy_infos))
        assert_same(list(lean.reset_infos), list(dummy.reset_infos))
        last, dummy_last = now, dummy_now


def cast(space: spaces.Space, observation: Any) -> Any:
    if isinstance(space, spaces.Dict):
        return {key: cast(part, observation[key]) for key, part in space.spaces.items()}
    if isinstance(space, spaces.Tuple):
        return tuple(cast(part, each) for part, each in zip(space.spaces, observation, strict=True))
    return np.asarray(observation, dtype=space.dtype)


@pytest.mark.parametrize("kind", [kind for kind in SPACES if kind != "text"])
def test_every_kind_of_observation_arrives_as_from_DummyVecEnv(kind: str, opened: Any) -> None:
    lean = opened([partial(Walk, kind)] * 3, envs_per_worker=3)
    dummy = DummyVecEnv([lambda: Monitor(Walk(kind))] * 3)
    assert lean.observation_space == dummy.observation_space
    assert_walk_alike(lean, dummy, 40)


@pytest.mark.parametrize("per_worker", [1, 4, 9])
def test_any_number_of_environments_per_worker(per_worker: int, opened: Any) -> None:
    fns = [partial(Walk, "box", limit) for limit in (3, 5, 8, 13)]
    dummy = DummyVecEnv([lambda fn=fn: Monitor(fn()) for fn in fns])
    lean = opened(fns, envs_per_worker=per_worker)
    assert len(lean._crew.workers) == -(-4 // per_worker)
    assert_walk_alike(lean, dummy, 30)


def test_actions_keep_their_dtype_and_stay_what_they_were(opened: Any) -> None:
    lean, dummy = opened([Steered] * 2, 2), DummyVecEnv([lambda: Monitor(Steered())] * 2)
    rng = np.random.default_rng(1)
    for dtype in ("float32", "float64"):
        assert_walk_alike(lean, dummy, 12, lambda dtype=dtype: rng.normal(size=(2, 3)).astype(dtype))
    assert_same(lean.env_method("all_kept"), dummy.env_method("all_kept"))


def test_actions_that_are_no_array_of_numbers_arrive_too(opened: Any) -> None:
    lean = opened([Walk] * 2, 2)
    lean.seed(1)
    lean.reset()
    by_array = [lean.step(np.array([1, 2]))[0].copy(), lean.step(np.array([3, 0]))[0].copy()]
    lean.seed(1)
    lean.reset()
    objects = np.array([[None, "1"], [None, "2"]], dtype=object)
    with pytest.raises(TypeError):  # the environment's own complaint about int(array)
        lean.step(objects)
    with pytest.raises(TypeError):
        lean.step([(1, [2, 3]), (4, [5])])
    lean.seed(1)
    lean.reset()
    assert_same([lean.step([1, 2])[0].copy(), lean.step(np.array([3, 0], dtype="uint8"))[0].copy()], by_array)
    with pytest.raises(BadInput, match="3 actions for 2"):
        lean.step(np.zeros(3, int))


def test_an_environment_that_updates_in_place_writes_into_the_slots(opened: Any) -> None:
    lean = opened([InPlace] * 3, envs_per_worker=2)
    assert lean.get_attr("bound") == [1, 1, 1]
    assert_walk_alike(lean, DummyVecEnv([lambda: Monitor(InPlace())] * 3), 50)


@pytest.mark.parametrize(
    "wrap", [Scaled, lambda env: gym.wrappers.TransformObservation(env, lambda seen: seen // 2, env.observation_space)]
)
def test_in_place_under_other_wrappers_is_copied(wrap: Any, opened: Any) -> None:
    lean = opened([lambda: wrap(InPlace())] * 2, 2)
    assert lean.get_attr("bound") == [0, 0]
    assert_walk_alike(lean, DummyVecEnv([lambda: Monitor(wrap(InPlace()))] * 2), 30)


def test_observations_are_views_that_last_one_step_and_copies_on_demand(opened: Any) -> None:
    views, copies = opened([Walk] * 2, 2), opened([Walk] * 2, 2, copy_observations=True)
    for env, lasts in ((views, False), (copies, True)):
        env.seed(0)
        first = env.reset()
        kept = first.copy()
        env.step(np.zeros(2, int))
        np.testing.assert_array_equal(first, kept)
        env.step(np.zeros(2, int))
        assert np.array_equal(first, kept) == lasts


def test_large_terminal_observations_are_exact_and_give_their_memory_back(opened: Any) -> None:
    class Large(gym.Env):
        observation_space = spaces.Box(0, 255, (1500, 1000), "uint8")
        action_space = spaces.Discrete(2)
        time = 0

        def reset(self, **arguments: Any) -> Any:
            self.time += 1
            return np.full((1500, 1000), self.time % 251, "uint8"), {}

        def step(self, action: Any) -> Any:
            self.time += 1
            return np.full((1500, 1000), self.time % 251, "uint8"), 0.0, True, False, {}

    env = opened([Large] * 2, 2)
    env.reset()
    for count in range(1, 6):
        seen, _, _, infos = env.step(np.zeros(2, int))
        last = infos[1]["terminal_observation"]
        assert (last == 2 * count).all()
        assert (seen == 2 * count + 1).all()
        assert last.flags.owndata
    assert not env._slots.places[2].any()


def test_attributes_and_methods_as_sb3_has_them(opened: Any) -> None:
    lean, dummy = opened([Walk] * 4, envs_per_worker=3), DummyVecEnv([Walk] * 4)
    for env in (lean, dummy):
        env.seed(2)
        env.reset()
        env.set_attr("limit", 20, indices=[1, 3])
        env.set_attr("unheard_of", "new")
    for ask in (
        lambda env: env.get_attr("limit"),
        lambda env: env.get_attr("limit", indices=2),
        lambda env: env.get_attr("limit", indices=[3, 0, -1]),
        lambda env: env.get_attr("unheard_of"),
        lambda env: env.env_method("add", 1, 2, bonus=3, indices=[0, 2]),
        lambda env: env.env_method("action_masks"),
        lambda env: env.has_attr("action_masks"),
        lambda env: env.has_attr("nothing of the kind"),
        lambda env: env.render_mode,
        lambda env: env.render(),
        lambda env: env.get_images(),
        lambda env: get_action_masks(env),
        lambda env: is_masking_supported(env),
    ):
        assert_same(ask(lean), ask(dummy))
    with pytest.raises(AttributeError, match="nothing"):
        lean.get_attr("nothing")
    assert not is_masking_supported(opened([Steered]))


def test_it_says_to_be_wrapped_in_Monitor_where_episodes_are_counted(opened: Any) -> None:
    def limited() -> gym.Env:
        return gym.wrappers.TimeLimit(Walk(), 50)

    counted, plain = opened([limited] * 2, 2), opened([limited] * 2, 2, monitor=False)
    assert counted.env_is_wrapped(Monitor) == [True, True]
    assert plain.env_is_wrapped(Monitor) == [False, False]
    for env in (counted, plain):
        assert env.env_is_wrapped(gym.wrappers.TimeLimit, indices=1) == [True]
        assert env.env_is_wrapped(gym.Wrapper) == [True, True]
        assert env.env_is_wrapped(gym.wrappers.ClipReward) == [False, False]
    plain.reset()
    infos = [info for _ in range(60) for info in plain.step(np.zeros(2, int))[3]]
    assert not any("episode" in info for info in infos)


def test_seeds_and_options_are_used_once(opened: Any) -> None:
    lean, dummy = opened([Walk] * 2), DummyVecEnv([Walk] * 2)
    for env in (lean, dummy):
        assert env.seed(11) == [11, 12]
        env.set_options([{"level": 1}, {"level": 2}])
    assert_same(lean.reset(), dummy.reset())
    assert lean.get_attr("last_options") == [{"level": 1}, {"level": 2}]
    assert_same(lean.reset_infos, dummy.reset_infos)
    lean.reset()
    assert lean.get_attr("last_options") == [None, None]


def test_environments_registered_by_the_program_can_be_made_by_name(opened: Any) -> None:
    gym.register("legroom-tests/Walk-v0", entry_point=lambda limit=6: Walk("box", limit))
    gym.register("legroom-tests/Named-v0", entry_point="worker_envs:Walk")
    try:
        env = opened(
            [lambda: gym.make("legroom-tests/Walk-v0", limit=4), lambda: gym.make("legroom-tests/Named-v0")], 2
        )
        assert env.get_attr("limit") == [4, 13]
    finally:
        del gym.registry["legroom-tests/Walk-v0"], gym.registry["legroom-tests/Named-v0"]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (([],), "at least 1"),
        (([Walk], 0), "at least 1"),
        (([partial(Walk, "box"), partial(Walk, "image")],), "env 1 has the spaces"),
        (([partial(Walk, "text")],), "not arrays of a fixed shape"),
    ],
)
def test_what_cannot_be_used_is_said_in_one_line(arguments: Any, message: str) -> None:
    with pytest.raises(BadInput, match=message) as told:
        LeanVecEnv(*arguments)
    assert "\n" not in str(told.value)


def test_env_functions_that_make_no_environment_of_their_own_are_refused() -> None:
    env = Walk()
    with pytest.raises(ValueError, match="each must make its own"):
        LeanVecEnv([lambda: env, lambda: env], envs_per_worker=2)
    with pytest.raises(TypeError, match=r"not a gymnasium.Env"):
        LeanVecEnv([lambda: 3])


def test_no_warnings_in_ordinary_use() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        env = LeanVecEnv([Walk])
        env.reset()
        env.step(np.zeros(1, int))
        env.close()
        env.close()
    with pytest.raises(BadInput, match="closed"):
        env.reset()
