"""If these fail, an agent sees, earns or continues something else than the game that is played."""

import subprocess
import sys
import warnings

import numpy as np
import pytest
from gymnasium.utils.env_checker import check_env

from legroom.errors import BadInput
from legroom.sharing.env_state import capture, restore
from legroom_workloads.ninja import NinjaEnv, generate, write_map
from legroom_workloads.ninja.game_state import NAMES
from legroom_workloads.ninja.level import Level, centre
from legroom_workloads.ninja.tiles import COLUMNS, ROWS, TILE

SMALL = {"level_size": "small", "levels": 3, "share": False}
VECTOR = {**SMALL, "observation": "vector"}
EVERYTHING = {**SMALL, "entity_states": "full", "reachability": True, "difficulty": 1.0}


def play(env, rng, steps, action=None):
    """Play at random, beginning again whenever an episode ends; return all that was seen and earned."""
    seen = []
    for step in range(steps):
        if step % 5 == 0 or action is None:
            action = int(rng.integers(6))
        observation, reward, terminated, truncated, info = env.step(action)
        seen.append((flat(observation), reward, terminated, truncated, info))
        if terminated or truncated:
            seen.append((flat(env.reset()[0]), 0.0, False, False, {}))
    return seen


def flat(observation):
    parts = observation.values() if isinstance(observation, dict) else [observation]
    return b"".join(part.tobytes() for part in parts)


def corridor(door=8, switch=5):
    """Return a level of one row: start in column 2, and the given columns."""
    tiles = np.ones((ROWS, COLUMNS), np.uint8)
    tiles[5, :12] = 0
    none = np.empty((0, 2), np.float32)
    return Level("corridor", tiles, centre(2, 5), centre(switch, 5), centre(door, 5), none, none)


# -- spaces and observations ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kwargs", [VECTOR, EVERYTHING, {**SMALL, "game_state": "float16", "entity_states": "compact"}])
def test_gymnasium_finds_nothing_wrong(kwargs):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        warnings.filterwarnings("ignore", message=".*WARN: .*(render|spec).*")
        check_env(NinjaEnv(**kwargs), skip_render_check=True)


def test_the_observation_has_the_sizes_of_the_document():
    space = NinjaEnv(**EVERYTHING).observation_space
    sizes = {key: (box.shape, str(box.dtype)) for key, box in space.spaces.items()}
    assert sizes == {
        "player_frame": ((128, 128, 1), "uint8"),
        "global_view": ((128, 256, 1), "uint8"),
        "game_state": ((30,), "float32"),
        "entity_states": ((769,), "float32"),
        "reachability": ((8,), "float32"),
    }


def test_game_state_says_where_the_ninja_and_its_goals_are():
    env = NinjaEnv(**SMALL)
    env.use_level(corridor())
    state = dict(zip(NAMES, env.observe()["game_state"].tolist(), strict=True))
    assert state["x"] == pytest.approx(2 * (3.5 * TILE) / 1056 - 1) and state["vx"] == 0
    assert state["goal_dx"] == state["switch_dx"] == pytest.approx(3 * TILE / 1056) and state["goal_dy"] == 0
    assert state["exit_dx"] == pytest.approx(6 * TILE / 1056)
    env.game.switch_on = True
    state = dict(zip(NAMES, env.observe()["game_state"].tolist(), strict=True))
    assert state["goal_dx"] == state["exit_dx"] and state["switch_on"] == 1


def test_observations_handed_out_stay_as_they_are():
    env = NinjaEnv(**EVERYTHING)
    kept = [env.reset(seed=1)[0]] + [env.step(5)[0] for _ in range(20)]
    bytes_then = [flat(each) for each in kept]
    play(env, np.random.default_rng(0), 200)
    assert [flat(each) for each in kept] == bytes_then


def test_bound_slots_take_turns():
    env = NinjaEnv(**SMALL)
    slots = [env._observer.new_arrays() for _ in range(2)]
    env.bind_observation(slots)
    env.write_to(0)
    env.reset(seed=0)
    before = flat(slots[0])
    env.write_to(1)
    for _ in range(10):
        env.step(5)
    assert flat(slots[0]) == before != flat(slots[1])
    with pytest.raises(BadInput, match="keys"):
        env.bind_observation([{"player_frame": slots[0]["player_frame"]}])


# -- rewards and ends -------------------------------------------------------------------------------------------------


def test_the_rewards_of_a_corridor_by_hand():
    env = NinjaEnv(**VECTOR)
    env.use_level(corridor())
    rewards, terminated = [], False
    while not terminated:
        _, reward, terminated, truncated, info = env.step(2)
        rewards.append(reward)
        assert not truncated and len(rewards) < 300
    assert info["is_success"] and info["frames"] == len(rewards) and info["died"] == ""
    assert sum(rewards) == pytest.approx(1.0 + 0.1 - 0.01 * len(rewards) / 60)
    assert rewards[0] == pytest.approx(-0.01 / 60) and rewards[-1] == pytest.approx(1.0 - 0.01 / 60)


def test_death_ends_an_episode_and_costs():
    level = corridor()
    env = NinjaEnv(**VECTOR)
    mine = np.array([centre(4, 5)], np.float32)
    env.use_level(Level("deadly", level.tiles, level.start, level.switch, level.exit, mine, level.gold))
    terminated = False
    while not terminated:
        _, reward, terminated, _, info = env.step(2)
    assert reward == pytest.approx(-0.5 - 0.01 / 60) and info["died"] == "mine" and not info["is_success"]


# -- seeds and states -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kwargs", [VECTOR, EVERYTHING])
def test_a_seed_determines_everything(kwargs):
    one, other = NinjaEnv(**kwargs), NinjaEnv(**kwargs, seed=4)
    assert flat(one.reset(seed=4)[0]) == flat(other.reset()[0])
    assert play(one, np.random.default_rng(2), 300) == play(other, np.random.default_rng(2), 300)


@pytest.mark.parametrize("kwargs", [VECTOR, EVERYTHING, {**VECTOR, "levels": 0, "max_frames": 60}])
def test_a_state_continues_in_another_environment(kwargs):
    one, other = NinjaEnv(**kwargs), NinjaEnv(**kwargs)
    one.reset(seed=5)
    play(one, np.random.default_rng(3), 137)
    state = capture(one)
    other.reset(seed=99)
    play(other, np.random.default_rng(4), 50)
    restore(other, state)
    assert flat(other.observe()) == flat(one.observe())
    assert play(one, np.random.default_rng(5), 300) == play(other, np.random.default_rng(5), 300)


def test_a_state_of_other_levels_is_refused():
    state = NinjaEnv(**VECTOR).get_state()
    with pytest.raises(BadInput, match="another level"):
        NinjaEnv(**{**VECTOR, "level_seed": 7, "levels": 1}, difficulty=0.9).set_state(state | {"level_seed": 7})
    with pytest.raises(BadInput, match="not one of the ninja"):
        NinjaEnv(**VECTOR).set_state({})


def test_a_map_file_is_played(tmp_path):
    write_map(generate(9, "medium", 0.5), tmp_path / "nine.map")
    env = NinjaEnv(observation="vector", data=str(tmp_path / "nine.map"))
    env.reset(seed=0)
    assert env.game.level.name == "nine"
    play(env, np.random.default_rng(0), 100)
    (tmp_path / "nine.map").write_bytes(b"not a map at all")
    with pytest.raises(BadInput, match=r"nine\.map: byte 0: begins with b'not a ma'"):
        NinjaEnv(data=str(tmp_path / "nine.map"))


# -- configuration ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("wrong", "says"),
    [
        ({"playerframe": True}, "no argument 'playerframe' .did you mean player_frame"),
        ({"game_state": "float64"}, "game_state is 'float64'"),
        ({"difficulty": 2}, "difficulty is 2"),
        ({"max_frames": 0}, "max_frames is 0"),
        ({"levels": 1.5}, "levels is 1.5"),
        ({"rewards": {"winning": 1}}, "rewards has no argument 'winning'"),
        ({"rewards": {"death": "yes"}}, "rewards.death is 'yes'"),
        ({"player_frame": False, "global_view": False, "game_state": None}, "nothing in it"),
        ({"press_again": True}, "one frame per step"),
        ({"render_mode": "ascii"}, "render_mode is 'ascii'"),
        ({"data": "/nowhere.map"}, "/nowhere.map: cannot be read"),
    ],
)
def test_what_cannot_be_is_said_in_one_line(wrong, says):
    with pytest.raises(BadInput, match=says):
        NinjaEnv(**{**SMALL, **wrong})


def test_importing_the_environment_brings_neither_torch_nor_scipy():
    code = (
        "import sys; from legroom_workloads.ninja import NinjaEnv; NinjaEnv(levels=1, level_size='small').reset(); "
        "sys.exit(any(name in sys.modules for name in ('torch', 'scipy', 'pygame', 'matplotlib')))"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


# -- judging ----------------------------------------------------------------------------------------------------------


def test_new_levels_leave_nothing_behind_in_the_shared_data(monkeypatch):
    import legroom_workloads.ninja.static_layer as layers

    shared = []
    monkeypatch.setattr(layers, "share_arrays", lambda key, build: shared.append(key) or build())
    env = NinjaEnv(level_size="small", levels=2, global_view=False)
    for seed in range(8):
        env.reset(seed=seed)
    assert len(set(shared)) == 2
    env.reset(options={"level_seed": 50})
    fresh = NinjaEnv(level_size="small", levels=0, global_view=False)
    for seed in range(3):
        fresh.reset(seed=seed)
    assert len(set(shared)) == 2
