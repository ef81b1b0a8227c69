"""If these fail, training gets levels that nobody can solve, or map files that are read wrongly or with a traceback."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from legroom.errors import BadInput
from legroom.reading import read
from legroom_workloads.ninja.env import NinjaEnv
from legroom_workloads.ninja.game import Game
from legroom_workloads.ninja.generator import generate
from legroom_workloads.ninja.level import Level, centre
from legroom_workloads.ninja.level_pack import generated_pack
from legroom_workloads.ninja.map_file import HEADER, TILES_NBYTES, map_bytes, parse_map, read_map, write_map
from legroom_workloads.ninja.solving import shortest_path, solvable
from legroom_workloads.ninja.tiles import COLUMNS, EMPTY, FULL, ROWS
from legroom_workloads.ninja.witness import play_through


def hall(rows, start, switch, door, mines=()):
    """Return a level from text, `#` for full; the rest of the playfield is full."""
    tiles = np.full((ROWS, COLUMNS), FULL, np.uint8)
    for number, row in enumerate(rows):
        tiles[number, : len(row)] = [FULL if tile == "#" else EMPTY for tile in row]
    places = [centre(*cell) for cell in mines]
    return Level("hall", tiles, centre(*start), centre(*switch), centre(*door), np.array(places), np.empty((0, 2)))


# -- the coarse graph -------------------------------------------------------------------------------------------------


def test_a_corridor_is_walked_tile_by_tile():
    level = hall(["......"], (0, 0), (5, 0), (2, 0))
    assert shortest_path(level) == [(1 + c, 1) for c in (0, 1, 2, 3, 4, 5, 4, 3, 2)]  # with the border


@pytest.mark.parametrize(("step", "possible"), [(1, True), (2, True)])
def test_steps_of_two_tiles_can_be_jumped(step, possible):
    rows = ["......"] * (5 - step) + ["...###"] * step
    assert solvable(hall(rows, (0, 4), (5, 4 - step), (1, 4))) is possible


# -- generated levels -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("size", "difficulty", "count"), [("small", 0.3, 8), ("small", 1.0, 3), ("medium", 0.3, 2)])
def test_generated_levels_are_solved_by_the_real_physics(size, difficulty, count):
    for seed in range(100, 100 + count):
        level = generate(seed, size, difficulty)
        assert solvable(level)
        actions = play_through(level)
        assert actions is not None, seed
        game = Game(level)
        for action in actions:
            game.step(action)
        assert game.won


def test_a_seed_is_a_level_and_another_seed_another():
    assert generate(7).key == generate(7).key
    assert len({generate(seed).key for seed in range(20)}) == 20
    assert generate(7, difficulty=0.3).key != generate(7, difficulty=0.6).key


def test_a_pack_holds_the_same_levels_and_generates_others():
    pack = generated_pack(50, 3, "small", 0.5, shared=False)
    assert [pack.level(seed).key for seed in (50, 52, 53)] == [generate(s, "small", 0.5).key for s in (50, 52, 53)]


# -- map files --------------------------------------------------------------------------------------------------------


def test_a_map_survives_the_round_trip(tmp_path):
    for seed in range(3):
        level = generate(seed, "large", 1.0)
        write_map(level, tmp_path / "one.map")
        back = read_map(tmp_path / "one.map")
        assert np.array_equal(back.tiles, level.tiles) and back.start == level.start and back.exit == level.exit
        assert np.abs(back.mines - level.mines).max() <= 3.0 and np.array_equal(back.gold, level.gold)
        assert map_bytes(back) == map_bytes(level) and back.name == "one"


GOOD = map_bytes(generate(1, "small", 1.0))
TILES_AT, RECORDS_AT = HEADER.size, HEADER.size + TILES_NBYTES


@pytest.mark.parametrize(
    ("data", "says"),
    [
        (b"", "m.map: 0 bytes, and the header alone has 12"),
        (b"PNG" + GOOD[3:], r"byte 0: begins with b'PNGJAMAP'"),
        (GOOD[:8] + b"\7" + GOOD[9:], "byte 8: version 7.0"),
        (GOOD[:-1], "1017 bytes, and 8 entity records make it 1018"),
        (GOOD + b"\0", "1019 bytes, and 8 entity records"),
        (GOOD[:10] + b"\xff\xff" + GOOD[12:], "byte 10: 65535 entity records"),
        (GOOD[: TILES_AT + 43] + b"\xc8" + GOOD[TILES_AT + 44 :], "byte 55: tile 200 in row 1, column 1"),
        (GOOD[:RECORDS_AT] + b"\x09" + GOOD[RECORDS_AT + 1 :], "byte 978: entity 0 has type 9"),
        (GOOD[: RECORDS_AT + 1] + b"\xfa" + GOOD[RECORDS_AT + 2 :], "byte 978: entity 0 has x 250"),
        (GOOD[: RECORDS_AT + 4] + b"\x04" + GOOD[RECORDS_AT + 5 :], "entity 0 has mode 4"),
        (GOOD[:RECORDS_AT] + b"\x01" + GOOD[RECORDS_AT + 1 :], "0 records of type 0, start"),
    ],
)
def test_a_malformed_map_is_one_line_that_says_where_and_what(data, says):
    with pytest.raises(BadInput, match=says) as raised:
        parse_map(data, "m.map")
    assert "\n" not in str(raised.value) and str(raised.value).startswith("m.map: ")


@settings(max_examples=150, deadline=None)
@given(st.lists(st.tuples(st.integers(0, len(GOOD) - 1), st.integers(0, 255)), max_size=5))
def test_a_damaged_map_is_a_level_or_an_error(damage):
    data = bytearray(GOOD)
    for at, value in damage:
        data[at] = value
    try:
        game = Game(parse_map(bytes(data)))
    except BadInput:
        return
    for action in range(6):
        game.step(action)


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"tiles": np.zeros((3, 3), np.uint8)}, "tiles are \\(3, 3\\)"),
        ({"tiles": np.full((ROWS, COLUMNS), 99)}, "tile 99 in row 0, column 0"),
        ({"start": (0.0, 100.0)}, "start at 0, 100"),
        ({"mines": np.full((129, 2), 100.0)}, "129 mines"),
        ({"gold": [(float("nan"), 100.0)]}, "gold at nan"),
    ],
)
def test_a_level_that_cannot_be_is_refused(change, says):
    good = {"tiles": np.zeros((ROWS, COLUMNS), np.uint8), "mines": np.empty((0, 2)), "gold": np.empty((0, 2))}
    places = {"start": centre(1, 1), "switch": centre(2, 2), "exit": centre(3, 3)}
    with pytest.raises(BadInput, match=says):
        Level("wrong", **{**good, **places, **change})


def test_a_level_of_ones_own_is_seen_in_the_spaces_that_the_run_declares(tmp_path):
    write_map(generate(1, "small", 0.3), tmp_path / "own.map")
    run = read("ninja:default", overrides=[("--data", str(tmp_path / "own.map"))])
    env = NinjaEnv(**run.env.kwargs)
    assert run.env.kwargs["data"] == str(tmp_path / "own.map")
    declared = run.env.spaces.observation.spaces
    assert {key: box.shape for key, box in env.observation_space.items()} == {
        key: box.shape for key, box in declared.items()
    }
    with pytest.raises(BadInput, match="cannot be read"):
        read("ninja:default", overrides=[("--data", str(tmp_path / "none.map"))])
