"""If these fail, a DoubleDQN that was interrupted goes on with other priorities, and ends elsewhere."""

import numpy as np
import pytest
import torch
from dqn_cases import FAST, OpenCells, cells, parameters
from microbatch_cases import surviving

import legroom
from legroom.backends.sb3.state import capture, continue_learning, restore
from legroom.errors import BadInput
from legroom.training.checkpoint import Checkpoints

TOTAL, CUT = 280, 180  # of a ring of 60 rows x 2: it has gone round by then


def sets(**kwargs):
    return surviving(legroom.DoubleDQN)(OpenCells, cells(), **FAST | kwargs)


def pictures(**kwargs):
    lean = dict(replay_buffer_class=legroom.LeanReplayBuffer, policy_kwargs=dict(net_arch=[8]))
    return legroom.DoubleDQN("MlpPolicy", cells(picture=True, chosen=1), **FAST | lean | kwargs)


def written(model, folder, at=CUT):
    """Train to the end, with a checkpoint at the first boundary from `at` on; return it."""
    collect, checkpoints = model.collect_rollouts, Checkpoints(folder)

    def collect_rollouts(*args, **kwargs):
        if model.num_timesteps >= at and checkpoints.newest is None:
            state = capture(model)
            assert (state.exact, state.why_not_exact) == (True, "")
            assert state.data["algorithm"] == "DoubleDQN"
            checkpoints.write(model.num_timesteps, state.tensors, state.data, link=state.link, files=state.files)
        return collect(*args, **kwargs)

    model.collect_rollouts = collect_rollouts
    continue_learning(model, TOTAL)
    return checkpoints.latest()


@pytest.mark.parametrize("make", [sets, pictures])
def test_an_interrupted_run_ends_with_the_same_bits(make, tmp_path):
    torch.set_num_threads(1)
    whole = make()
    checkpoint = written(whole, tmp_path)
    np.random.seed(99)
    torch.manual_seed(99)
    resumed = make()
    assert restore(resumed, checkpoint) == ""
    assert resumed.num_timesteps == checkpoint.step < TOTAL
    continue_learning(resumed, TOTAL)
    assert torch.equal(parameters(whole), parameters(resumed))
    assert whole.priorities.tree.nodes.tobytes() == resumed.priorities.tree.nodes.tobytes()
    assert whole.priorities.highest == resumed.priorities.highest
    assert whole.priorities.highest > 1  # the test says something


def test_priorities_of_a_ring_that_is_not_full_yet(tmp_path):
    whole = sets()
    checkpoint = written(whole, tmp_path, at=40)
    resumed = sets()
    assert restore(resumed, checkpoint) == ""
    assert len(resumed.priorities.kept) == 40
    continue_learning(resumed, TOTAL)
    assert torch.equal(parameters(whole), parameters(resumed))


def test_without_priorities_it_goes_on_and_says_so(tmp_path):
    checkpoint = written(sets(priority_alpha=0), tmp_path)
    resumed = sets()
    assert restore(resumed, checkpoint) == "the checkpoint holds no priorities: every transition counts as new"
    continue_learning(resumed, TOTAL)
    assert (resumed.priorities.kept > 0).all()


def test_what_cannot_be_priorities_is_refused(tmp_path):
    checkpoint = written(sets(), tmp_path)
    tensors = checkpoint.tensors
    for wrong in (np.ones(119), np.ones(120, np.float32), np.full(120, -1.0), np.full(120, np.nan)):
        checkpoint.tensors = lambda part, wrong=wrong: (
            tensors(part) | ({"priorities": wrong} if part == "replay" else {})
        )
        with pytest.raises(BadInput, match="its priorities are not those of 120 transitions"):
            restore(sets(), checkpoint)
