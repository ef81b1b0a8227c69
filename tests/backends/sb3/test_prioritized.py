"""If these fail, transitions are drawn that are not there, or count for more or less than their chance to be drawn."""

import numpy as np
import pytest
import torch
from dqn_cases import cells
from gymnasium import spaces
from scipy.stats import chisquare
from stable_baselines3.common.buffers import DictReplayBuffer, NStepReplayBuffer, ReplayBuffer
from stable_baselines3.common.vec_env import VecNormalize

from legroom import LeanReplayBuffer
from legroom.errors import BadInput
from legroom_workloads.fire.algorithms.prioritized import Priorities, PrioritizedMinibatch, transitions

VECTOR = spaces.Box(-1, 1, (3,), np.float32)
PICTURE = spaces.Box(0, 255, (8, 8), np.uint8)
BOTH = spaces.Dict({"picture": PICTURE, "vector": VECTOR})
N_ENVS, ROWS = 3, 5
ONE_ARRAY = {"optimize_memory_usage": True, "handle_timeout_termination": False}
KINDS = {
    "plain": (ReplayBuffer, VECTOR, {}),
    "one array": (ReplayBuffer, PICTURE, ONE_ARRAY),
    "dict": (DictReplayBuffer, BOTH, {}),
    "lean": (LeanReplayBuffer, PICTURE, {}),
    "lean dict": (LeanReplayBuffer, BOTH, {}),
}


def buffer_of(kind):
    make, space, kwargs = KINDS[kind]
    return make(ROWS * N_ENVS, space, spaces.MultiDiscrete([9, 9]), device="cpu", n_envs=N_ENVS, **kwargs)


def add(buffer, rows, priorities=None):
    space = buffer.observation_space
    for _ in range(rows):
        pair = [[space.sample() for _ in range(N_ENVS)] for _ in range(2)]
        if isinstance(space, spaces.Dict):
            pair = [{key: np.stack([one[key] for one in several]) for key in space.spaces} for several in pair]
        else:
            pair = [np.stack(several) for several in pair]
        actions = np.stack([buffer.action_space.sample() for _ in range(N_ENVS)])
        dones = np.random.random(N_ENVS) < 0.3
        infos = [{"TimeLimit.truncated": bool(np.random.random() < 0.5)} for _ in range(N_ENVS)]
        buffer.add(*pair, actions, np.random.random(N_ENVS), dones, infos)
        if priorities is not None:
            priorities.added(buffer)


def flat(samples):
    for part in samples:
        yield from part.values() if isinstance(part, dict) else [] if part is None else [part]


@pytest.mark.parametrize("kind", KINDS)
def test_transitions_are_sb3s_own(kind):
    buffer = buffer_of(kind)
    add(buffer, 8)
    rows = np.array([4, 0, 2, 2, 1, 0, 4, 0])
    np.random.seed(3)
    theirs = buffer._get_samples(rows)
    np.random.seed(3)
    ours = transitions(buffer, rows, np.random.randint(0, N_ENVS, size=len(rows)), None)
    for mine, its in zip(flat(ours), flat(theirs), strict=True):
        assert mine.dtype == its.dtype
        assert torch.equal(mine, its)


def test_observations_and_rewards_are_normalized_as_sb3_does():
    env = VecNormalize(cells(N_ENVS))
    env.reset()
    buffer = ReplayBuffer(30, env.observation_space, env.action_space, "cpu", n_envs=N_ENVS)
    add(buffer, 4)
    np.random.seed(3)
    theirs = buffer._get_samples(np.arange(4), env)
    np.random.seed(3)
    ours = transitions(buffer, np.arange(4), np.random.randint(0, N_ENVS, size=4), env)
    assert all(torch.equal(mine, its) for mine, its in zip(flat(ours), flat(theirs), strict=True))


def test_only_what_is_there_is_drawn_and_all_of_it():
    buffer = buffer_of("plain")
    priorities = Priorities(buffer, 0.6, 1e-6)
    for rows in (1, 2, 5, 9):
        add(buffer, rows - (buffer.pos + ROWS * buffer.full), priorities)
        there = min(rows, ROWS) * N_ENVS
        draw = priorities.draw(buffer, there, 0.4)  # equal priorities: from each of as many strata another one
        assert sorted(draw.slots) == list(range(there))
        assert (draw.weights == 1.0).all()


def test_equal_priorities_are_drawn_uniformly():
    buffer = buffer_of("plain")
    priorities = Priorities(buffer, 0.6, 1e-6)
    add(buffer, ROWS, priorities)
    priorities.learned(np.arange(ROWS * N_ENVS), np.full(ROWS * N_ENVS, 0.7, np.float32))
    np.random.seed(0)
    draws = [priorities.draw(buffer, 7, 0.4) for _ in range(1_500)]
    counts = np.bincount(np.concatenate([draw.slots for draw in draws]), minlength=ROWS * N_ENVS)
    assert chisquare(counts).pvalue > 0.01
    assert all((draw.weights == 1.0).all() for draw in draws)


def test_chances_go_by_errors_and_weights_take_them_back():
    buffer = buffer_of("plain")
    priorities = Priorities(buffer, 0.5, 1e-12)
    add(buffer, 1, priorities)
    priorities.learned(np.arange(3), np.array([1.0, 16.0, 25.0]))  # to the power of a half: 1, 4, 5
    np.random.seed(0)
    slots = np.concatenate([priorities.draw(buffer, 10, 0.5).slots for _ in range(300)])
    assert np.bincount(slots).tolist() == pytest.approx([300, 1200, 1500], abs=5)  # strata: hardly any chance
    draw = priorities.draw(buffer, 10, 0.5)
    by_slot = dict(zip(draw.slots.tolist(), draw.weights.tolist(), strict=True))
    assert by_slot == pytest.approx({0: 1.0, 1: (1 / 4) ** 0.5, 2: (1 / 5) ** 0.5})
    assert priorities.draw(buffer, 10, 1.0).weights.min() == pytest.approx(1 / 5)  # in full


def test_new_transitions_count_as_the_largest_so_far_and_take_the_place_of_old_ones():
    buffer = buffer_of("plain")
    priorities = Priorities(buffer, 1.0, 0.5)
    add(buffer, ROWS, priorities)
    assert priorities.kept.tolist() == [1.0] * 15
    priorities.learned(np.arange(15), np.full(15, 0.25))
    priorities.learned(np.array([7]), np.array([3.0]))
    add(buffer, 1, priorities)  # over the first row
    assert priorities.kept.tolist() == [3.5] * 3 + [0.75] * 4 + [3.5] + [0.75] * 7


def test_errors_that_are_no_numbers_do_not_spoil_the_sums():
    buffer = buffer_of("plain")
    priorities = Priorities(buffer, 1.0, 0.5)
    add(buffer, 1, priorities)
    priorities.learned(np.arange(3), np.array([1.5, np.nan, np.inf]))
    assert priorities.kept.tolist() == [2.0, 1.0, 1.0]
    assert (priorities.highest, priorities.tree.total) == (2.0, 4.0)


def test_a_row_whose_observation_was_written_over_is_not_drawn():
    buffer = buffer_of("one array")
    priorities = Priorities(buffer, 0.6, 1e-6)
    add(buffer, ROWS + 2, priorities)
    assert sorted(priorities.draw(buffer, (ROWS - 1) * N_ENVS, 0.4).slots // N_ENVS) == sorted([0, 1, 3, 4] * N_ENVS)


def test_a_buffer_that_somebody_else_has_filled_counts_as_new():
    buffer = buffer_of("plain")
    priorities = Priorities(buffer, 0.6, 1e-6)
    add(buffer, 3)
    assert sorted(priorities.draw(buffer, 9, 0.4).slots) == list(range(9))


def test_parts_are_the_whole_and_errors_find_their_places():
    buffer = buffer_of("plain")
    priorities = Priorities(buffer, 0.6, 1e-6)
    add(buffer, ROWS, priorities)
    priorities.learned(np.arange(15), np.random.random(15))
    minibatch = PrioritizedMinibatch(buffer, priorities.draw(buffer, 10, 0.4), None, torch.float64)
    (whole,) = minibatch(10)
    first, second, third = minibatch(4)
    for field in ("observations", "actions", "rewards", "weights"):
        assert torch.equal(getattr(whole, field), torch.cat([getattr(p, field) for p in (first, second, third)]))
    third.errors.fill_(3.0)
    first.errors.fill_(1.0)
    assert minibatch.errors.flatten().tolist() == [1.0] * 4 + [0.0] * 4 + [3.0] * 2


@pytest.mark.parametrize("make", [NStepReplayBuffer, LeanReplayBuffer])
def test_n_step_returns_are_refused_in_one_line(make):
    with pytest.raises(BadInput, match=r"n-step returns do not go together \(priority_alpha: 0"):
        Priorities(make(30, VECTOR, spaces.Discrete(3), "cpu", n_envs=3, n_steps=3), 0.6, 1e-6)
