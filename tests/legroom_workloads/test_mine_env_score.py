"""If these fail, a policy's score is not the money it makes, or its picture cannot be looked at."""

import xml.etree.ElementTree as ET

import numpy as np
import pytest

from legroom_workloads.mine.env import MineEnv
from legroom_workloads.mine.greedy import best_greedy
from legroom_workloads.mine.pictures import draw
from legroom_workloads.mine.score import policy_npv, score_policy

KWARGS = {"grid": [6, 6, 5]}
MONEY = ("pit_value_usd", "greedy_npv_usd", "random_npv_usd", "agent_npv_usd")


@pytest.fixture(autouse=True, scope="module")
def cache(tmp_path_factory):
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_CACHE_HOME", str(tmp_path_factory.mktemp("cache")))
        yield


@pytest.fixture
def env():
    return MineEnv(**KWARGS)


def replay(order):
    """Return a policy that digs the columns of a schedule, then whatever is left."""
    steps = iter(order)
    return lambda _, mask: next(steps, int(np.argmax(mask)))


def test_the_greedy_schedule_replayed_in_the_env_earns_what_it_says(env):
    npv, order, _ = best_greedy(env.prepared.values, env.prepared.pit, env.discount_factors, size_m=env.prepared.size_m)
    if len(order) == env.blocks_to_mine:
        assert policy_npv(env, replay(order)) == pytest.approx(npv, rel=1e-12)
    assert policy_npv(env, replay(order)) > 0.9 * npv


def test_the_figures_are_in_order(env):
    _, order, _ = best_greedy(env.prepared.values, env.prepared.pit, env.discount_factors, size_m=env.prepared.size_m)
    score = score_policy(replay(order), KWARGS)
    assert tuple(score) == MONEY
    assert score["pit_value_usd"] > score["greedy_npv_usd"] >= score["agent_npv_usd"] > score["random_npv_usd"]


def test_a_policy_sees_the_observation_of_its_step_and_its_mask(env):
    seen = []

    def look(observation, mask):
        seen.append((observation[13].sum(), mask.sum()))
        return np.argmax(mask)

    score_policy(look, KWARGS)
    assert [mined for mined, _ in seen] == list(range(env.blocks_to_mine))
    assert all(allowed > 0 for _, allowed in seen)


# -- pictures ---------------------------------------------------------------------------------------------------------


def test_the_last_schedule_is_drawn(env, tmp_path):
    npv = policy_npv(env, lambda _, mask: np.argmax(mask))
    draw(env, tmp_path / "schedule.svg", references={"best greedy": 2 * npv})
    draw(env.last_episode, tmp_path / "schedule.png")
    text = " ".join(ET.parse(tmp_path / "schedule.svg").getroot().itertext())
    assert text  # it is well-formed
    assert (tmp_path / "schedule.png").read_bytes().startswith(b"\x89PNG")
