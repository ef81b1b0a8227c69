"""Two minutes of `make soak`: commands under random faults stay as large as they were and leave nothing behind."""

import pytest
from bench.soak import soak


@pytest.mark.slow
def test_commands_under_faults_stay_flat_and_leave_nothing(tmp_path):
    rows, good = soak(2, tmp_path)
    assert good, rows
