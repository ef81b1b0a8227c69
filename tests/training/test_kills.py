"""kill -9 at random moments: no checkpoint is unreadable, and every resume ends with the same parameters."""

import pytest
from bench.kills import measure
from bench.kills_env import RUNS

from legroom.model.run import Run


def test_kills_within_rollouts_and_updates(tmp_path):
    run = Run.model_validate(RUNS["PPO, lean rollout, within iterations"])
    tally = measure(run, 3, tmp_path, seed=4, within=True)
    assert (tally.kills, tally.unreadable, tally.different) == (3, 0, 0)
    assert tally.within > 0


@pytest.mark.slow
def test_five_kills(tmp_path):
    run = Run.model_validate(next(iter(RUNS.values())) | {"total_timesteps": 1500})
    tally = measure(run, 5, tmp_path, seed=2)
    assert (tally.kills, tally.unreadable, tally.different) == (5, 0, 0)
