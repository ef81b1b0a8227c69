"""What a policy and a person see: things are where they are, vanish when they are gone, and nothing else appears."""

import re
import sys
from types import SimpleNamespace

import numpy as np
import pytest

from legroom.errors import MissingExtra
from legroom.installing import install_command
from legroom_workloads.ninja import sprites, static_layer
from legroom_workloads.ninja.frames import Frames
from legroom_workloads.ninja.game import ACTIONS, Game
from legroom_workloads.ninja.generator import generate
from legroom_workloads.ninja.human import Window
from legroom_workloads.ninja.level import Level
from legroom_workloads.ninja.pictures import Pictures, to_grey
from legroom_workloads.ninja.static_layer import BACKGROUND, SOLID
from legroom_workloads.ninja.tiles import COLUMNS, ROWS

ANIMATED = SimpleNamespace(enable_animation=True)


def level(mines=(), gold=(), tiles=None, start=(528.5, 300.5)):
    """An empty hall, with the switch and the exit far to the right of the start."""
    tiles = np.zeros((ROWS, COLUMNS), np.uint8) if tiles is None else tiles
    places = [np.array(each, np.float32).reshape(-1, 2) for each in (mines, gold)]
    return Level("hall", tiles, start, (900.0, 300.0), (1000.0, 300.0), *places)


def at(hall, x, y, **changed):
    """A game whose ninja is there."""
    game = Game(hall)
    for name, value in {"x": x, "y": y, "on_ground": False, "on_wall": 0, **changed}.items():
        setattr(game, name, value)
    return game


def player(frames, game):
    out = np.full((128, 128, 1), 7, np.uint8)
    frames.player_frame(game, out)
    return out[:, :, 0]


def small(frames, game):
    out = np.full((128, 256, 1), 7, np.uint8)
    frames.global_view(game, out)
    return out[:, :, 0]


def test_ninja_is_in_the_middle_of_an_otherwise_empty_frame():
    frame = player(Frames(level(), share=False), at(level(), 400.0, 300.0))
    rows, columns = np.nonzero(frame != BACKGROUND)
    assert frame.max() == 255
    assert 64 - 11 <= rows.min() <= rows.max() <= 64 + 11
    assert 64 - 11 <= columns.min() <= columns.max() <= 64 + 11
    assert abs(columns.mean() - 64) < 3
    assert abs(rows.mean() - 64) < 3


def test_a_mine_is_where_it_is_and_vanishes_when_it_is_gone():
    hall = level(mines=[(430.0, 280.0)])
    frames, game = Frames(hall, share=False), at(hall, 400.0, 300.0)
    frame = player(frames, game)
    around = frame[64 - 20 - 6 : 64 - 20 + 7, 64 + 30 - 6 : 64 + 30 + 7]
    assert (around == np.maximum(sprites.mine().grey, BACKGROUND)).all()
    game.mines = game.mines[:0]
    without = player(frames, game)
    assert (without[44 - 6 : 44 + 7, 94 - 6 : 94 + 7] == BACKGROUND).all()
    assert (player(Frames(level(), share=False), at(level(), 400.0, 300.0)) == without).all()


def test_picture_shows_in_colour_what_the_frame_shows_in_grey():
    hall = generate(5, "large", 0.8)
    frames, pictures, game = Frames(hall, share=False), Pictures(hall, share=False), Game(hall)
    rng = np.random.default_rng(0)
    for _ in range(12):
        for _ in range(15):
            game.step(int(rng.integers(len(ACTIONS))))
        grey = np.pad(to_grey(pictures.picture(game)), 64, constant_values=SOLID)
        top, left = int(game.y), int(game.x)
        assert (player(frames, game) == grey[top : top + 128, left : left + 128]).all()


def _play(game, rng, steps):
    for _ in range(steps):
        if game.dead or game.won:
            game.restart()
        game.step(int(rng.integers(len(ACTIONS))))


@pytest.mark.parametrize("seed", range(3))
def test_reused_frames_equal_fresh_ones_over_random_play(seed):
    rng = np.random.default_rng(seed)
    halls = [generate(seed, "large", 0.9), generate(seed + 10, "medium", 0.5)]
    game, frames, states = Game(halls[0]), Frames(halls[0], share=False), []
    for turn in range(60):
        _play(game, rng, int(rng.integers(1, 30)))
        kind = rng.integers(6)
        if kind == 0:
            states.append((game.level, game.get_state()))
        elif kind == 1 and states:
            hall, state = states[rng.integers(len(states))]
            game.use_level(hall)
            game.set_state(state)
        elif kind == 2:
            game.use_level(halls[turn % 2])
        elif kind == 3 and len(game.gold):  # onto a piece of gold: it is picked up with the next frame
            game.x, game.y = (float(each) for each in game.gold[rng.integers(len(game.gold))])
        fresh = Frames(game.level, share=False)
        assert (player(frames, game) == player(fresh, game)).all()
        assert (small(frames, game) == small(fresh, game)).all()


def test_shared_layer_is_one_read_only_and_unchanged_by_drawing():
    hall = generate(7, "medium", 0.6)
    twin = Level("twin", hall.tiles, hall.start, hall.switch, hall.exit, hall.mines, hall.gold)
    one, other = Frames(hall), Frames(twin)
    assert np.shares_memory(one.layer.canvas, other.layer.canvas)
    for array in (one.layer.canvas, one.layer.small):
        with pytest.raises(ValueError, match="read-only"):
            array[0, 0] = 1
    drawn, game, rng = static_layer.draw_layer(hall), Game(hall), np.random.default_rng(0)
    pictures = Pictures(hall, ANIMATED)
    for _ in range(40):
        _play(game, rng, 5)
        player(one, game), small(one, game), pictures.advance(game)
    pictures.picture(game)
    assert (one.layer.canvas == drawn["canvas"]).all()
    assert (one.layer.small == drawn["small"]).all()


def test_an_environment_needs_little_memory_of_its_own_for_frames():
    frames, game = Frames(level(), share=False), at(level(), 400.0, 300.0)
    player(frames, game), small(frames, game)
    own = [getattr(frames, name) for name in frames.__slots__ if isinstance(getattr(frames, name), np.ndarray)]
    assert 0 < sum(array.nbytes for array in own) < 110_000


def test_a_window_without_pygame_says_how_to_get_it(monkeypatch):
    monkeypatch.setitem(sys.modules, "pygame", None)
    with pytest.raises(
        MissingExtra, match=rf"render_mode human needs pygame.*{re.escape(install_command('ninja', 'pygame'))}"
    ):
        Window()
