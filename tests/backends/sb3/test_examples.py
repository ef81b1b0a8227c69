"""The examples that the README names run as they are, and do what they promise."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).parents[3] / "examples"


@pytest.mark.parametrize(
    ("name", "megabytes"), [pytest.param("guard_sb3.py", 300, marks=pytest.mark.slow), ("survive_loop.py", 40)]
)
def test_an_example_runs_out_of_memory_and_goes_on(name: str, megabytes: int) -> None:
    command = [sys.executable, str(EXAMPLES / name), str(megabytes)]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    done = subprocess.run(command, capture_output=True, text=True, env=environment, check=False, timeout=300)
    assert done.returncode == 0, done.stderr
    assert "redone with micro-batches of" in done.stderr
    assert "micro-batch" in done.stdout.splitlines()[-1]
