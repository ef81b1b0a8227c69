"""Stable-Baselines3's own tests pass with lean storage attached, as far as they pass without it.

Its wheel has no tests: they are taken from a checkout of its sources, whose folder SB3_SOURCES names.

    SB3_SOURCES=~/stable-baselines3 make test-slow
"""

import os
import subprocess
import sys
from pathlib import Path
from xml.etree import ElementTree

import pytest

SOURCES = os.environ.get("SB3_SOURCES", "")
FILES = ("test_buffers", "test_n_step_replay", "test_dict_env", "test_her", "test_spaces", "test_save_load")

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not SOURCES, reason="SB3_SOURCES names no checkout of stable-baselines3"),
]


def passing(folder: Path, name: str, *options: str) -> set[str]:
    """Return the tests of a file that pass, run as a program of legroom's."""
    report = folder / f"{options[0].strip('-')}.xml"
    tests = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", f"--junitxml={report}"]
    command = [sys.executable, "-m", "legroom", "train", "--out", str(folder / options[0]), *options, "--", *tests]
    surroundings = {**os.environ, "OMP_NUM_THREADS": "1"}
    subprocess.run([*command, f"tests/{name}.py"], cwd=SOURCES, env=surroundings, capture_output=True, check=False)
    cases = ElementTree.parse(report).iter("testcase")
    return {f"{case.get('classname')}::{case.get('name')}" for case in cases if not list(case)}


@pytest.mark.parametrize("name", FILES)
def test_what_passes_without_it_passes_with_it(tmp_path: Path, name: str) -> None:
    plain, lean = passing(tmp_path, name, "--plain"), passing(tmp_path, name, "--with", "lean")
    assert plain
    assert plain - lean == set()
