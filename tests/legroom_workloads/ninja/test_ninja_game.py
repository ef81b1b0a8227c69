"""If these fail, the ninja falls, jumps, dies or collides otherwise than it should, or a game cannot be repeated."""

import random

import numpy as np
import pytest

from legroom.errors import BadInput
from legroom_workloads.ninja import game as g
from legroom_workloads.ninja.collision import closest
from legroom_workloads.ninja.game import ACTIONS, Game
from legroom_workloads.ninja.level import Level, centre
from legroom_workloads.ninja.tiles import COLUMNS, HEIGHT, ROWS, SHAPES, TILE

NOOP, LEFT, RIGHT, JUMP, JUMP_LEFT, JUMP_RIGHT = range(6)
FLOOR = HEIGHT - TILE  # y of the playfield's own floor


def level(tiles=None, start=(300.0, FLOOR - 10.0), switch=None, door=None, mines=(), gold=()):
    """Return a level that is empty but for what is given; switch and exit are out of the way."""
    tiles = np.zeros((ROWS, COLUMNS), np.uint8) if tiles is None else tiles
    return Level(
        "test", tiles, start, switch or centre(40, 1), door or centre(38, 1), np.array(mines), np.array(gold)
    )  # fmt: skip


def random_level(seed, density=0.25):
    rng = np.random.default_rng(seed)
    tiles = np.where(rng.random((ROWS, COLUMNS)) < density, rng.integers(1, len(SHAPES), (ROWS, COLUMNS)), 0)
    tiles[10:13, 10:13] = 0
    places = rng.uniform(3 * TILE, HEIGHT - 3 * TILE, (60, 2))
    return level(tiles.astype(np.uint8), centre(11, 11), mines=places[:10], gold=places[10:])


def play(game, seed, frames, change=0.1):
    """Play at random, actions held for a while, and return all that happened."""
    rng, action, happened = random.Random(seed), 0, []
    for _ in range(frames):
        if rng.random() < change:
            action = rng.randrange(len(ACTIONS))
        happened.append((game.step(action), game.x, game.y, game.vx, game.vy))
        if game.dead or game.won:
            game.restart()
    return happened


# -- falling and jumping ----------------------------------------------------------------------------------------------


def test_a_fall_of_a_second_by_hand():
    # Each frame v = 0.9933 * (v + 1/15). After 60: v = 0.9933 / 15 * (1 - 0.9933^60) / 0.0067, 0.9933^60 = 0.66807;
    # the way is the sum of v: 0.9933 / (15 * 0.0067) * (60 - 0.9933 * 0.33193 / 0.0067).
    game = Game(level(start=(300.0, 100.0)))
    for _ in range(60):
        game.step(NOOP)
    assert game.vy == pytest.approx(3.2807, abs=1e-3)
    assert game.y - 100.0 == pytest.approx(106.66, abs=0.05)
    assert game.x == 300.0


def test_the_ninja_comes_to_rest_with_its_radius_above_the_floor():
    game = Game(level(start=(300.0, FLOOR - 100.0)))
    for _ in range(200):
        game.step(NOOP)
    assert game.on_ground and game.y == pytest.approx(FLOOR - 10.0, abs=1e-6) and game.vy == 0.0


@pytest.mark.parametrize(("held", "height"), [(1, 27), (10, 39), (45, 74), (90, 74)])
def test_a_longer_press_jumps_higher_up_to_45_frames(held, height):
    game, highest = Game(level()), FLOOR
    for frame in range(150):
        game.step(JUMP if frame < held else NOOP)
        highest = min(highest, game.y)
    assert FLOOR - 10 - highest == pytest.approx(height, abs=0.8)


def test_running_speeds_up_to_the_limit_and_stops_by_friction():
    game = Game(level())
    for _ in range(150):
        game.step(RIGHT)
    assert 3.0 < game.vx <= g.MAX_RUN + 0.07 and game.facing == 1
    for _ in range(200):
        game.step(NOOP)
    assert abs(game.vx) < 0.01


# -- surfaces ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(12))
def test_never_inside_a_wall_over_random_play(seed):
    game = Game(random_level(seed))
    rng, action = random.Random(seed), 0
    for _ in range(1500):
        if rng.random() < 0.1:
            action = rng.randrange(6)
        game.step(action)
        assert closest(game.level.world, game.x, game.y, 10.0)[0] ** 0.5 > 9.998
        if game.dead or game.won:
            game.restart()


@pytest.mark.parametrize(("height", "dies"), [(230, False), (280, True)])
def test_impact_kills_from_above_ten_tiles(height, dies):
    game = Game(level(start=(300.0, FLOOR - 10.0 - height)))
    happened = [game.step(NOOP) for _ in range(200)]
    assert game.dead is dies and (g.DIED_BY_IMPACT in happened) is dies


# -- what lies about --------------------------------------------------------------------------------------------------


def test_a_mine_kills_whoever_touches_it_and_not_before():
    game = Game(level(mines=[(400.0, FLOOR - 4.0)]))
    while not game.dead:
        event = game.step(RIGHT)
        assert game.frame < 300
    # 14 px from centre to centre, and the mine lies 6 px lower: 12.65 px sideways
    assert event == g.DIED_BY_MINE and 400 - 12.65 <= game.x < 400 - 12.65 + g.MAX_RUN


def test_the_door_opens_with_the_switch_only():
    game = Game(level(door=(350.0, FLOOR - 10.0), switch=(420.0, FLOOR - 10.0)))
    happened = [game.step(RIGHT) for _ in range(80)]
    assert game.switch_on and not game.won and sum(event & g.SWITCH for event in happened) == g.SWITCH
    while not game.won:
        event = game.step(LEFT)
        assert game.frame < 400
    assert event & g.WON and game.step(RIGHT) == 0  # and nothing happens after the end


# -- repeating --------------------------------------------------------------------------------------------------------


def test_the_same_inputs_give_the_same_game_to_the_last_bit():
    assert play(Game(random_level(3)), 5, 2000) == play(Game(random_level(3)), 5, 2000)


@pytest.mark.parametrize("seed", range(6))
def test_a_saved_game_continues_as_if_nothing_had_been(seed):
    game, other = Game(random_level(seed)), Game(random_level(seed))
    play(game, seed, 50 + 37 * seed)
    state = game.get_state()
    play(other, 99, 200)
    other.set_state(state)
    assert _same(other.get_state(), state)
    assert other.mines.tolist() == game.mines.tolist() and other.gold.tolist() == game.gold.tolist()
    assert play(game, 7, 500) == play(other, 7, 500)


def _same(one, other):
    return all(np.array_equal(one[name], other[name]) for name in (*one, *other))


def test_a_state_of_another_level_is_refused():
    state = Game(random_level(1)).get_state()
    with pytest.raises(BadInput, match=r"10 mines, level test has 0"):
        Game(level()).set_state(state)
    with pytest.raises(BadInput, match="not one of this game"):
        Game(level()).set_state({"x": 1.0})
