"""If these fail, a training sees pictures that change behind its back, or goes on from another game than it left."""

import subprocess
import sys

import numpy as np
import pytest
from gymnasium.utils.env_checker import check_env

from legroom.errors import BadInput
from legroom_workloads.gameboy.build_rom import fighter_rom
from legroom_workloads.gameboy.cartridge import OURS
from legroom_workloads.gameboy.env import GameBoyEnv


@pytest.fixture
def env():
    made = GameBoyEnv()
    yield made
    made.close()


def test_gymnasium_finds_nothing_wrong(env):
    check_env(env, skip_render_check=True)


def test_the_spaces_are_those_of_the_original(env):
    assert env.observation_space.shape == (144, 160, 3) and env.observation_space.dtype == np.uint8
    assert env.action_space.n == 6


def test_grey_and_smaller_show_the_same_picture():
    whole = GameBoyEnv(render_mode="rgb_array")
    grey = GameBoyEnv(grey=True)
    small = GameBoyEnv(grey=True, downsample=2, crop=(80, 0, 64, 160))
    for each in (whole, grey, small):
        each.reset(seed=3)
        for action in (2, 2, 3, 4):
            last = each.step(action)[0]
        if each is whole:
            assert np.array_equal(whole.render(), last)
            colours = last
    assert grey.observe().shape == (144, 160, 1) and np.array_equal(grey.observe()[:, :, 0], colours[:, :, 0])
    part = colours[80:, :, 0].astype(int)
    mean = (part[::2, ::2] + part[1::2, ::2] + part[::2, 1::2] + part[1::2, 1::2]) // 4
    assert small.observe().shape == (32, 80, 1) and np.array_equal(small.observe()[:, :, 0], mean)
    for each in (whole, grey, small):
        each.close()


def test_a_reset_with_a_seed_and_a_second_environment_play_the_same_game(env):
    other = GameBoyEnv()
    actions = np.random.default_rng(0).integers(6, size=60)
    for each in (1, 2):
        one, two = env.reset(seed=each), other.reset(seed=each)
        assert np.array_equal(one[0], two[0]) and one[1] == two[1]
        for action in actions:
            one, two = env.step(action), other.step(action)
            assert np.array_equal(one[0], two[0]) and one[1:] == two[1:]
    other.close()


@pytest.mark.parametrize("into", ["itself", "another"])
def test_a_state_continues_exactly(env, into):
    env.reset(seed=5)
    rng = np.random.default_rng(1)
    for action in rng.integers(6, size=25):
        env.step(action)
    env.step(2)  # right is held
    state, seen = env.get_state(), env.observe()
    assert state["console"].dtype == np.uint8 and state["console"].nbytes < 20_000
    actions = [2, 2, *rng.integers(6, size=250).tolist()]

    def play(each):
        played = []
        for action in actions:
            observation, reward, terminated, truncated, info = each.step(action)
            played.append((observation.tobytes(), reward, terminated, info))
            if terminated or truncated:
                played.append(each.reset()[0].tobytes())
        return played

    expected = play(env)
    target = env if into == "itself" else GameBoyEnv()
    target.set_state(state)
    assert np.array_equal(target.observe(), seen)
    assert play(target) == expected
    assert any(isinstance(each, bytes) for each in expected)  # over the end of a round
    if target is not env:
        target.close()


def test_a_rom_of_the_users_runs_with_its_cartridge_and_leaves_no_files(tmp_path):
    rom = tmp_path / "mine.gb"
    rom.write_bytes(fighter_rom())
    env, ours = GameBoyEnv(rom=rom, cartridge=OURS), GameBoyEnv()
    for each in (1, 2, 3, 3):
        assert np.array_equal(env.reset(seed=each)[0], ours.reset(seed=each)[0])
        assert np.array_equal(env.step(2)[0], ours.step(2)[0])
    env.close()
    ours.close()
    assert [each.name for each in tmp_path.iterdir()] == ["mine.gb"]


def test_episodes_begin_from_a_save_state(env, tmp_path):
    env.reset(seed=0)
    for _ in range(40):
        info = env.step(2)[4]
    saved = tmp_path / "later.state"
    with saved.open("wb") as stream:
        env._emulator._pyboy.save_state(stream)
    later = GameBoyEnv(save_state=saved)
    _, begun = later.reset(seed=0)
    assert begun["timer"] == info["timer"] < 30 and abs(begun["player_x"] - info["player_x"]) <= 1
    there = later.step(0)[4]["player_x"]
    assert later.step(0)[4]["player_x"] == there  # the button that was held in it is not any more
    later.close()


def changed(where, value):
    rom = bytearray(fighter_rom())
    rom[where] = value
    return bytes(rom)


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (None, "no such ROM"),
        (b"", "0 bytes, too short for a Game Boy ROM"),
        (b"MZ" * 20_000, "not a Game Boy ROM, or a damaged one: header checksum"),
        (changed(0x134, 0), "not a Game Boy ROM, or a damaged one: header checksum"),
        (fighter_rom()[:20_000], "20,000 bytes, and its header says 32,768: too short"),
    ],
)
def test_what_is_no_rom_is_one_line(tmp_path, data, message):
    path = tmp_path / "game.gb"
    if data is not None:
        path.write_bytes(data)
    with pytest.raises(BadInput) as problem:
        GameBoyEnv(rom=path, cartridge=OURS)
    assert str(problem.value).startswith(f"{path}: {message}") and "\n" not in str(problem.value)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"rom": "x.gb"}, "a ROM without a cartridge file"),
        ({"action_repeat": 0}, "action_repeat is 0"),
        ({"grey": "yes"}, "grey is 'yes'"),
        ({"downsample": 7}, r"crop \[0, 0, 144, 160\] with downsample 7"),
        ({"crop": [100, 0, 80, 160]}, "crop"),
        ({"crop": "all"}, "crop is 'all'"),
        ({"render_mode": "human"}, "there is no window"),
        ({"save_state": "nowhere.state"}, "nowhere.state: no such save state"),
    ],
)
def test_arguments_that_cannot_be_used_are_one_line(arguments, message):
    with pytest.raises(BadInput, match=message):
        GameBoyEnv(**arguments)


def test_a_worker_holds_no_torch_and_says_nothing():
    code = (
        "import sys; from legroom_workloads.gameboy import GameBoyEnv; e = GameBoyEnv(); e.reset(); e.step(1);"
        "e.close(); assert not {'torch', 'stable_baselines3', 'scipy', 'matplotlib'} & set(sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
