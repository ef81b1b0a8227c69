"""Features of the coarse graph: right by hand on a small hall, consistent with the solver, and bounded in memory."""

import numpy as np
import pytest

from legroom_workloads.ninja import reachability
from legroom_workloads.ninja.game import Game
from legroom_workloads.ninja.generator import generate
from legroom_workloads.ninja.level import Level, centre
from legroom_workloads.ninja.reachability import FEATURES, Reachability
from legroom_workloads.ninja.solving import Graph, shortest_path
from legroom_workloads.ninja.tiles import COLUMNS, FULL, ROWS

NO_PLACES = np.zeros((0, 2), np.float32)


def corridor(start, switch, door, gap=None):
    """One row of empty tiles, all else solid; `gap` closes one of them."""
    tiles = np.full((ROWS, COLUMNS), FULL, np.uint8)
    tiles[10] = 0
    if gap is not None:
        tiles[10, gap] = FULL
    places = (centre(column, 10) for column in (start, switch, door))
    return Level("corridor", tiles, *places, NO_PLACES, NO_PLACES)


def one_step_graph(level):
    """Neighbours in the corridor, both ways: a graph whose distances can be counted."""
    columns = np.flatnonzero(level.tiles[10] == 0)
    nodes = np.stack([columns + 1, np.full(len(columns), 11)], axis=1).astype(np.int16)
    pairs = [(a, a + 1) for a in range(len(columns) - 1) if columns[a + 1] == columns[a] + 1]
    return Graph(nodes, np.array(pairs + [pair[::-1] for pair in pairs], np.int32).reshape(-1, 2))


def named(features):
    return dict(zip(FEATURES, features.tolist(), strict=True))


@pytest.fixture
def counted(monkeypatch):
    """The corridor's own graph instead of the solver's, and how often it was built."""
    built = []
    monkeypatch.setattr(reachability, "coarse_graph", lambda level: built.append(level.key) or one_step_graph(level))
    return built


def test_moves_and_directions_in_a_corridor(counted):
    game = Game(corridor(start=5, switch=25, door=2))
    seen = named(Reachability().features(game))
    assert seen["moves_to_goal"] == pytest.approx(0.20)
    assert seen["way_known"] == 1
    assert (seen["next_x"], seen["next_y"]) == pytest.approx((1, 0))
    assert seen["goal_x"] == pytest.approx(20 * 24 / 1056)
    assert seen["moves_from_start"] == 0
    assert seen["reachable_share"] == pytest.approx(42 / (42 * 23))
    game.switch_on = True
    seen = named(Reachability().features(game))
    assert seen["moves_to_goal"] == pytest.approx(0.03)
    assert seen["next_x"] == pytest.approx(-1)
    assert seen["goal_x"] == pytest.approx(-3 * 24 / 1056)


def test_behind_a_wall_there_is_no_way(counted):
    game = Game(corridor(start=5, switch=25, door=2, gap=15))
    seen = named(Reachability().features(game))
    assert seen["moves_to_goal"] == 1
    assert seen["way_known"] == 0
    assert (seen["next_x"], seen["next_y"]) == (0, 0)
    assert seen["reachable_share"] == pytest.approx(15 / (42 * 23))


def test_built_on_first_use_and_once_per_level(counted):
    reach = Reachability()
    assert counted == []
    assert len(reach) == 0
    game = Game(corridor(5, 25, 2))
    for switch_on in (False, True, False):
        game.switch_on = switch_on
        reach.features(game)
    assert counted == [game.level.key]


@pytest.mark.parametrize("seed", range(4))
def test_following_the_directions_leads_to_the_goal_in_as_many_moves_as_the_solver_needs(seed):
    level = generate(seed, "medium", 0.6)
    reach, moves = Reachability(), 0
    tile = int(level.start[1] // 24) * 44 + int(level.start[0] // 24)
    for switch_on in (False, True):
        field = reach.field(level, switch_on)
        for left in range(int(field.to_goal[tile]), 0, -1):
            assert field.to_goal[tile] == left
            tile, moves = int(field.next_tile[tile]), moves + 1
    assert tile == int(level.exit[1] // 24) * 44 + int(level.exit[0] // 24)
    assert moves == len(shortest_path(level)) - 1
