"""kill -9 at random moments: no checkpoint is unreadable, and every resume ends with the same parameters."""

import pytest
from bench.kills import measure
from bench.kills_env import RUNS

from legroom.model.run import Run


@pytest.mark.slow
def test_five_kills(tmp_path):
    run = Run.model_validate(next(iter(RUNS.values())) | {"total_timesteps": 1500})
    tally = measure(run, 5, tmp_path, seed=2)
    assert (tally.kills, tally.unreadable, tally.different) == (5, 0, 0)
