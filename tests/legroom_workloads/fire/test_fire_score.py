"""The players that a policy is compared with, and the comparison itself."""

from __future__ import annotations

import numpy as np
import pytest

from legroom_workloads.fire import score
from legroom_workloads.fire.env import FireEnv
from legroom_workloads.fire.score import score_policy

SMALL = dict(grid=(20, 20), rasters=4, sims=6, budget=30, breaks_per_step=10)


@pytest.fixture(autouse=True)
def own_cache(tmp_path_factory, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path_factory.getbasetemp() / "cache"))


def test_a_policy_that_is_one_of_the_players_is_neither_better_nor_worse_than_it(monkeypatch):
    def first(env, rng):
        return lambda: np.flatnonzero(env.action_masks())[:10]

    monkeypatch.setattr(score, "PLAYERS", {"random": first})
    figures = score_policy(lambda seen, _: np.flatnonzero((seen[4:] > 0).any(axis=0))[:10], SMALL, 3)
    assert figures["reduction"] == pytest.approx(figures["random_reduction"])
    assert figures["less_than_random"] == pytest.approx(0.0) == figures["less_than_random_se"]
    assert figures["landscapes"] == 3 and figures["wasted"] == 0


def test_the_share_that_burns_less_and_its_error_are_of_pairs():
    saved, error = score._saved(np.array([1.0, 2.0, 3.0]), np.array([2.0, 4.0, 6.0]))
    assert (saved, error) == (pytest.approx(0.5), pytest.approx(0.0))  # half of it in every landscape
    saved, error = score._saved(np.array([1.0, 3.0]), np.array([4.0, 4.0]))
    assert saved == pytest.approx(0.5)
    assert error == pytest.approx(np.sqrt(2.0) / np.sqrt(2.0) / 4.0)  # residuals -1 and 1


def test_the_landscapes_of_a_judgement_are_none_of_those_trained_on(monkeypatch):
    made = []

    class Watched(FireEnv):
        def __init__(self, **arguments):
            made.append(arguments)
            super().__init__(**arguments)

    monkeypatch.setattr(score, "FireEnv", Watched)
    score_policy(lambda seen, _: np.zeros(seen[0].size), SMALL, 1)
    assert made[0]["first_raster"] == score.HELD_OUT_SEED > 100_000  # the most landscapes that a run can have
