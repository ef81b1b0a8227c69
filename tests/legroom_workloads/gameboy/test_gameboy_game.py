"""If these fail, the fighter game is no fight: a rule does not hold, or one button wins it."""

import pytest

from legroom_workloads.gameboy.assembler import assemble
from legroom_workloads.gameboy.cartridge import read_cartridge
from legroom_workloads.gameboy.env import GameBoyEnv
from legroom_workloads.gameboy.fighter_names import MOST_HEALTH, NAMES, SECONDS
from legroom_workloads.gameboy.players import (
    GUARDS,
    HURTS,
    KICK,
    NOTHING,
    PUNCH,
    RECOVERS,
    answer,
    guess,
)

SMALL = {"grey": True, "downsample": 4}


@pytest.fixture(scope="module")
def env():
    made = GameBoyEnv(action_repeat=1, **SMALL)
    yield made
    made.close()


def put(env, **numbers):
    """Write numbers of the cartridge into RAM."""
    for name, value in numbers.items():
        env._emulator.write(env.cartridge.memory[name], value)


def alone(env, frames, action, **numbers):
    """Play with an opponent that is busy for ever; return the last numbers."""
    env.reset(seed=0)
    put(env, **numbers)
    for _ in range(frames):
        put(env, enemy_time=200)
        info = env.step(action)[4]
    return info


def share_won(player, rounds, **kwargs):
    env = GameBoyEnv(**SMALL, **kwargs)
    won = 0
    for number in range(rounds):
        _, info = env.reset(seed=number)
        done = False
        while not done:
            _, _, terminated, truncated, info = env.step(player(info))
            done = terminated or truncated
        won += info["is_success"]
    env.close()
    return won / rounds


def test_the_cartridge_file_names_the_addresses_of_the_program():
    _, names = assemble(NAMES, 16)
    memory = read_cartridge().memory
    for field in ("X", "STATE", "TIME", "HEALTH"):
        assert memory[f"player_{field.lower()}"].address == 0xC000 + names[field]
        assert memory[f"enemy_{field.lower()}"].address == 0xC100 + names[field]
    assert memory["result"].address == names["RESULT"] and memory["timer"].address == names["SECONDS_LEFT"]
    assert memory["random"].address == names["RANDOM"] and memory["mode"].address == names["MODE"]


def test_a_round_begins_with_full_health_and_a_running_clock(env):
    _, info = env.reset(seed=0)
    assert info["player_health"] == info["enemy_health"] == MOST_HEALTH == 48
    assert info["timer"] == SECONDS == 30 and info["result"] == 0 and info["mode"] == 1
    assert alone(env, 150, NOTHING)["timer"] == 28


def test_a_punch_takes_six_points_in_reach_and_none_out_of_it(env):
    hit = alone(env, 14, PUNCH, player_x=60, enemy_x=86)
    assert hit["enemy_health"] == 48 - 6 and hit["enemy_state"] == HURTS and hit["enemy_x"] == 86 + 8
    assert alone(env, 25, PUNCH, player_x=60, enemy_x=87)["enemy_health"] == 48


def test_a_guard_takes_most_of_a_punch_and_none_of_a_kick(env):
    guarding = {"player_x": 60, "enemy_x": 80, "enemy_state": GUARDS}
    caught = alone(env, 13, PUNCH, **guarding)
    assert caught["enemy_health"] == 48 - 1 and caught["player_state"] == RECOVERS
    assert caught["player_time"] > 20  # long enough for a punch of ten frames
    assert alone(env, 24, KICK, **guarding)["enemy_health"] == 48 - 8


def test_anything_at_random_loses_and_the_right_answers_win():
    assert share_won(guess(0), 10) < 0.3
    assert share_won(answer, 10) > 0.7


def test_rounds_differ_by_their_seed_alone():
    env = GameBoyEnv(**SMALL)

    def played(seed):
        env.reset(seed=seed)
        return [tuple(env.step(NOTHING)[4].values()) for _ in range(60)]

    assert played(1) == played(1) != played(2)
    env.close()
