"""The environment: an episode's arithmetic, what is seen, what is refused, and that it goes on where it was."""

from __future__ import annotations

import subprocess
import sys

import numpy as np
import pytest
from gymnasium.utils.env_checker import check_env

from legroom.errors import BadInput
from legroom_workloads.fire.env import FireEnv
from legroom_workloads.fire.observation import CHANNELS, unpack


@pytest.fixture(autouse=True)
def own_cache(tmp_path_factory, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path_factory.getbasetemp() / "cache"))


def make(**arguments):
    return FireEnv(**dict(grid=(20, 20), rasters=4, sims=6, budget=30, breaks_per_step=10) | arguments)


def play(env, seed=0, choose=None):
    rng = np.random.default_rng(seed)
    env.reset(seed=seed)
    steps = []
    while True:
        steps.append(env.step(rng.random(env.breaks.size) if choose is None else choose(env)))
        if steps[-1][2]:
            return steps


@pytest.mark.filterwarnings("ignore::UserWarning")
def test_gymnasium_accepts_it():
    check_env(make(), skip_render_check=True)
    check_env(make(breaks_per_step=1), skip_render_check=True)


def test_rewards_add_up_to_the_share_of_the_raster_that_was_saved():
    env = make()
    steps = play(env)
    assert len(steps) == 3  # 30 breaks, 10 per step
    info = steps[-1][4]
    assert sum(step[1] for step in steps) == pytest.approx((info["burned_before"] - info["burned"]) / 400)
    assert all(step[1] >= 0 for step in steps)  # a break never helps the fire
    assert env.breaks.sum() == 30 and info["wasted"] == 0
    last = env.last_episode
    assert last["before"].sum() == pytest.approx(info["burned_before"])
    assert last["after"].sum() == pytest.approx(info["burned"])
    assert not last["after"][last["breaks"]].any()


def test_cells_that_are_not_allowed_cost_budget_and_change_nothing():
    env = make()
    env.reset(seed=3)
    cell = int(np.flatnonzero(env.action_masks())[0])
    env.step(np.full(10, cell))
    assert env.breaks.sum() == 1 and not env.action_masks()[cell]
    _, reward, _, _, _ = env.step(np.full(10, cell))
    assert reward == 0 and env.breaks.sum() == 1
    info = env.step(np.full(10, cell))[4]
    assert info["wasted"] == 29


def test_the_mask_allows_what_burns_and_is_no_break_yet():
    env = make()
    env.reset(seed=0)
    fuel = env.landscapes[env.get_state()["raster"]]["fbfm40"].ravel()
    assert (env.action_masks() == (fuel > 99)).all()
    env.step(np.arange(10))
    assert not env.action_masks()[:10].any()


def test_packed_observations_are_13_bytes_per_cell_and_exact():
    env = make()
    play(env, seed=2)
    packed = env.pack()
    assert sum(layer.nbytes for layer in packed.values()) == 13 * 400
    assert list(packed) == list(CHANNELS)
    assert unpack(packed).tobytes() == env.observe().tobytes()


def test_bound_to_slots_it_writes_there_and_nowhere_else():
    env, plain = make(), make()
    slots = [np.zeros((8, 20, 20), np.float32) for _ in range(2)]
    env.bind_observation(slots)
    env.write_to(1)
    shown, _ = env.reset(seed=4)
    assert shown is slots[1] and (slots[1] == plain.reset(seed=4)[0]).all()
    with pytest.raises(BadInput, match="a slot of float64"):
        env.bind_observation([np.zeros((8, 20, 20))])


def test_the_same_seed_is_the_same_episode_and_another_is_not():
    first, again, other = (play(make(), seed=seed) for seed in (1, 1, 2))
    for a, b in zip(first, again, strict=True):
        assert a[1:] == b[1:] and (a[0] == b[0]).all()
    assert first[-1][4] != other[-1][4]


def test_a_state_goes_on_where_it_was():
    env = make()
    play(env, seed=8)
    env.reset()
    env.step(np.random.default_rng(0).random(400))
    state = env.get_state()
    other = make()
    other.set_state(state)
    assert (other.observe() == env.observe()).all()
    assert (other.last_episode["after"] == env.last_episode["after"]).all()
    for _ in range(4):  # over the end of the episode
        values = np.random.default_rng(1).random(400)
        ours, theirs = env.step(values), other.step(values)
        assert ours[1:] == theirs[1:] and (ours[0] == theirs[0]).all()
        if ours[2]:
            assert (env.reset()[0] == other.reset()[0]).all()


def test_a_state_of_something_else_is_refused():
    env = make()
    for state in ({}, make().get_state() | {"raster": 99}, make().get_state() | {"breaks": np.array([400])}):
        with pytest.raises(BadInput, match="the state to continue from is not one of these landscapes"):
            env.set_state(state)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (dict(sims=0), "sims is 0"),
        (dict(budget=True), "budget is True"),
        (dict(breaks_per_step=401), "401 breaks per step in 400 cells"),
        (dict(hours=-1), "hours is -1"),
        (dict(wind_km_h=float("nan")), "wind_km_h is nan"),
        (dict(rasters=0), "0 rasters"),
        (dict(rasters="/nowhere"), "no such file or folder"),
        (dict(grid=(20, 20, 20)), "grid"),
        (dict(moisture=dict(dead_2h=0.1)), "moisture of dead_2h"),
        (dict(moisture=dict(dead_1h=-1)), "moisture dead_1h is -1"),
        (dict(neighbours=4), "neighbours is 4"),
        (dict(render_mode="human"), "render_mode is 'human'"),
    ],
)
def test_arguments_that_cannot_be(arguments, message):
    with pytest.raises(BadInput, match=message):
        make(**arguments)


def test_a_worker_needs_neither_torch_nor_rasterio():
    code = (
        "import sys; from legroom_workloads.fire import FireEnv; e = FireEnv(grid=(20, 20), rasters=4); e.reset();"
        "print([m for m in ('torch', 'rasterio', 'stable_baselines3', 'matplotlib') if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
