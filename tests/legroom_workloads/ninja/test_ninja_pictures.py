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
from legroom_workloads.ninja.pictures import TINTS, Pictures, _colours, picture, to_grey
from legroom_workloads.ninja.static_layer import BACKGROUND, RIM, SOLID
from legroom_workloads.ninja.tiles import COLUMNS, HEIGHT, ROWS, SHAPES, TILE, WIDTH, solid_mask

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


def test_a_mine_is_seen_small_at_its_place_and_vanishes_when_it_is_gone():
    hall = level(mines=[(528.0, 150.0)])
    frames, game = Frames(hall, share=False), at(hall, 200.0, 500.0)
    view = small(frames, game)
    assert view[32, 128] == sprites.MINE_GREY  # a quarter down, half across
    game.mines = game.mines[:0]
    assert (small(frames, game)[28:37, 122:135] == BACKGROUND).all()


def test_gold_switch_and_door_are_seen_in_both_frames():
    hall = level(gold=[(890.0, 340.0)])
    frames, game = Frames(hall, share=False), at(hall, 950.0, 300.0)
    frame, view = player(frames, game), small(frames, game)
    assert (frame[104 - 6 : 104 + 7, :11] >= sprites.gold().grey[:, 2:]).all()  # cut off by the edge of the frame
    assert (frame[64 - 12 : 64 + 13, 64 + 50 - 12 : 64 + 50 + 13] >= sprites.door(False).grey).all()
    assert (frame[64 - 8 : 64 + 9, 64 - 50 - 8 : 64 - 50 + 9] >= sprites.switch(False).grey).all()
    for x, y in ((890, 340), (900, 300), (1000, 300)):
        assert view[y * 128 // 600 - 2 : y * 128 // 600 + 3, x * 256 // 1056 - 2 : x * 256 // 1056 + 3].max() > 120
    game.switch_on = True
    assert (player(frames, game) != frame).any()
    assert (small(frames, game) != view).any()


@pytest.mark.parametrize("corner", [(34, 34), (WIDTH - 34, 34), (34, HEIGHT - 34), (WIDTH - 34, HEIGHT - 34)])
def test_corners_of_the_world_show_ground_and_nothing_else(corner):
    x, y = corner
    frame = player(Frames(level(), share=False), at(level(), float(x), float(y)))
    rows, columns = np.arange(128)[:, None] + y - 64, np.arange(128)[None, :] + x - 64
    inside = (rows >= TILE + 1) & (rows < HEIGHT - TILE - 1) & (columns >= TILE + 1) & (columns < WIDTH - TILE - 1)
    outside = (rows < TILE - 4) | (rows >= HEIGHT - TILE + 4) | (columns < TILE - 4) | (columns >= WIDTH - TILE + 4)
    ninja = np.zeros((128, 128), bool)
    ninja[53:76, 53:76] = True
    assert (frame[inside & ~ninja] == BACKGROUND).all()
    assert (frame[outside & ~ninja] == SOLID).all()
    assert inside.any()
    assert outside.any()


@pytest.mark.parametrize("place", [(-1e9, 5.0), (1e9, 1e9), (float("inf"), -3.0)])
def test_a_state_that_no_game_reaches_gives_frames_all_the_same(place):
    frames, game = Frames(level(), share=False), at(level(), *place)
    assert player(frames, game).max() == small(frames, game).max() == 255


def test_ground_is_solid_where_tiles_are():
    tiles = np.zeros((ROWS, COLUMNS), np.uint8)
    for number in range(len(SHAPES)):  # apart from each other
        tiles[3 + 3 * (number // 20), 1 + 2 * (number % 20)] = number
    layer = static_layer.static_layer(level(tiles=tiles), share=False)
    for row, column in np.argwhere(tiles):
        mask = solid_mask(tiles[row, column])
        seen = layer.world[(row + 1) * TILE : (row + 2) * TILE, (column + 1) * TILE : (column + 2) * TILE]
        ground = seen > (int(BACKGROUND) + int(RIM)) // 2
        assert (ground == mask).mean() > 0.98, SHAPES[tiles[row, column]]  # the tip of a slope is soft


def test_small_view_is_the_average_of_what_it_covers():
    canvas = np.random.default_rng(1).integers(0, 256, (600, 1056)).astype(np.uint8)
    shrunk = static_layer.shrunk(canvas, 128, 256)
    # Two by one: 600 rows are 128 times 4.6875, so 75 rows are exactly 16; 1056 columns are 256 times 4.125, 33 are 8.
    blocks = canvas.reshape(8, 75, 32, 33).mean(axis=(1, 3))
    assert np.abs(shrunk.reshape(8, 16, 32, 8).mean(axis=(1, 3)) - blocks).max() < 0.3
    first = (canvas[:5].astype(float) * np.array([1, 1, 1, 1, 0.6875])[:, None]).sum(axis=0) / 4.6875
    assert shrunk[0, 0] == round((first[:4].sum() + 0.125 * first[4]) / 4.125)


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


def test_every_grey_has_a_colour_of_that_grey_in_every_tint():
    for tint in TINTS:
        assert (to_grey(_colours(tint)) == np.arange(256)).all()


def test_picture_is_the_callers_and_the_same_from_a_single_call():
    game = at(level(mines=[(430.0, 280.0)]), 400.0, 300.0)
    pictures = Pictures(game.level, share=False)
    first = pictures.picture(game)
    assert first.shape == (600, 1056, 3)
    assert first.dtype == np.uint8
    kept = first.copy()
    game.x += 50
    pictures.picture(game)
    assert (first == kept).all()
    game.x -= 50
    assert (picture(game) == kept).all()
    red, green, blue = first[280, 434].astype(int)
    assert red > max(green, blue) + 40  # a mine is red


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


def test_wherever_the_ninja_goes_a_reused_patch_shows_all_there_is():
    rng = np.random.default_rng(4)
    places = rng.uniform((30, 30), (WIDTH - 30, HEIGHT - 30), (2, 128, 2))
    hall = level(mines=places[0], gold=places[1])
    frames, game = Frames(hall, share=False), at(hall, 100.0, 100.0)
    for _ in range(400):
        game.x = float(np.clip(game.x + rng.normal(0, 20), 34, WIDTH - 34))
        game.y = float(np.clip(game.y + rng.normal(0, 20), 34, HEIGHT - 34))
        grey = np.pad(frames.layer.world, 64, constant_values=SOLID)
        for sprite, each in ((sprites.mine(), game.mines), (sprites.gold(), game.gold)):
            for x, y in each.astype(int):
                sprites.stamp(grey, sprite.grey, y + 64, x + 64)
        sprites.stamp(grey, sprites.switch(False).grey, 364, 964)
        sprites.stamp(grey, sprites.door(False).grey, 364, 1064)
        sprites.stamp(grey, sprites.ninja(*sprites.pose_of(game)).grey, int(game.y) + 64, int(game.x) + 64)
        assert (player(frames, game) == grey[int(game.y) :, int(game.x) :][:128, :128]).all()


def test_two_games_with_as_many_changes_are_not_mistaken_for_each_other():
    hall = level(gold=[(420.0, 300.0), (380.0, 300.0)])
    one, other = at(hall, 400.0, 300.0), at(hall, 400.0, 300.0)
    one.gold, other.gold = one.gold[:1], other.gold[1:]
    frames = Frames(hall, share=False)
    assert (player(frames, one) != player(frames, other)).any()
    assert (small(frames, one) != small(frames, other)).any()


def test_frames_are_written_into_what_the_caller_gives_and_nowhere_else():
    memory = np.full((3, 128, 256, 1), 9, np.uint8)
    frames, game = Frames(level(), share=False), at(level(), 400.0, 300.0)
    frames.global_view(game, memory[1])
    assert (memory[0] == 9).all()
    assert (memory[2] == 9).all()
    kept = memory[1].copy()
    game.x = 600.0
    frames.global_view(game, memory[2])
    assert (memory[1] == kept).all()


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


def test_poses_follow_what_the_ninja_does_and_are_mirrored():
    hall = level()
    assert sprites.pose_of(at(hall, 400.0, 300.0, on_ground=True)) == ("stand", 1)
    assert sprites.pose_of(at(hall, 400.0, 300.0, on_ground=True, vx=-2.0, facing=-1))[0].startswith("run_")
    assert sprites.pose_of(at(hall, 400.0, 300.0, vy=-1.0)) == ("rise", 1)
    assert sprites.pose_of(at(hall, 400.0, 300.0, vy=1.0, facing=-1)) == ("fall", -1)
    assert sprites.pose_of(at(hall, 400.0, 300.0, on_wall=-1)) == ("wall", -1)
    assert sprites.pose_of(at(hall, 400.0, 300.0, dead=True))[0] == "dead"
    drawn = {name: sprites.ninja(name, 1).grey for name in sprites.POSES}
    assert len({grey.tobytes() for grey in drawn.values()}) == len(drawn)
    assert (sprites.ninja("wall", -1).grey == drawn["wall"][:, ::-1]).all()


@pytest.mark.parametrize("row", [-40, -3, 0, 5, 9, 12, 50])
@pytest.mark.parametrize("column", [-40, -2, 0, 9, 11, 50])
def test_a_sprite_over_the_edge_is_cut_off(row, column):
    canvas, sprite = np.zeros((10, 10), np.uint8), np.arange(1, 50, dtype=np.uint8).reshape(7, 7)
    whole = np.zeros((130, 130), np.uint8)
    whole[60 + row - 3 : 60 + row + 4, 60 + column - 3 : 60 + column + 4] = sprite
    sprites.stamp(canvas, sprite, row, column)
    assert (canvas == whole[60:70, 60:70]).all()


def test_animation_adds_light_that_fades_and_does_not_touch_the_game():
    hall = generate(2, "medium", 0.2)
    still, moving = Game(hall), Game(hall)
    pictures, plain = Pictures(hall, ANIMATED, share=False), Pictures(hall, share=False)
    assert plain.animation is None
    differed = 0
    for step, action in enumerate([2] * 40 + [5] * 20 + [1] * 40):
        still.step(action)
        moving.step(action)
        pictures.advance(moving)
        plain.advance(moving)
        if step % 5 == 0:
            differed += bool((pictures.picture(moving) != plain.picture(moving)).any())
    assert differed > 5
    assert str(still.get_state()) == str(moving.get_state())
    moving.vx = moving.vy = 0.0
    for _ in range(120):
        pictures.advance(moving)
    assert not pictures.animation.glow.any()
    assert (pictures.picture(moving) == plain.picture(moving)).all()


def test_animation_is_deterministic_bounded_and_starts_again_with_the_level():
    hall = generate(2, "medium", 0.8)
    one, other = (Pictures(hall, ANIMATED, share=False) for _ in range(2))
    rng, game = np.random.default_rng(3), Game(hall)
    for step in range(600):
        if game.dead or game.won:
            game.restart()
        game.step(int(rng.integers(len(ACTIONS))))
        one.advance(game)
        other.advance(game)
        if step % 50 == 0:
            assert (one.picture(game) == other.picture(game)).all()
    assert len(one.animation._sparks) <= 96
    one.use_level(hall)
    assert not one.animation.glow.any()


def test_a_window_without_pygame_says_how_to_get_it(monkeypatch):
    monkeypatch.setitem(sys.modules, "pygame", None)
    with pytest.raises(
        MissingExtra, match=rf"render_mode human needs pygame.*{re.escape(install_command('ninja', 'pygame'))}"
    ):
        Window()


def test_a_window_shows_the_picture_and_survives_being_closed(monkeypatch):
    pygame = pytest.importorskip("pygame")
    monkeypatch.setenv("SDL_VIDEODRIVER", "dummy")
    game = at(level(), 400.0, 300.0)
    window, shown = Window(frames_per_s=1000), picture(game)
    window.show(shown)
    assert (pygame.surfarray.array3d(pygame.display.get_surface()).swapaxes(0, 1) == shown).all()
    assert window.action() == 0
    pygame.event.post(pygame.event.Event(pygame.QUIT))
    window.show(shown)
    assert not window.is_open
    window.show(shown)
    window.close()
