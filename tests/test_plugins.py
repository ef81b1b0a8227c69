"""`examples/plugin`, a distribution of its own: its rule checks, its knob is turned; a broken one is left out."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

EXAMPLE = Path(__file__).parents[1] / "examples/plugin"
RUN = """\
algo: PPO
env:
  id: none
  n_envs: 64
  frame_stack: 4
  spaces: {observation: {type: box, shape: [84, 84, 1], dtype: uint8}, action: {type: discrete, n: 6}}
policy: {name: CnnPolicy}
hyperparams: {n_steps: 128, batch_size: 64}
"""


@pytest.fixture(scope="module")
def installed(tmp_path_factory) -> Path:
    """The example, installed by pip into a folder; its sources are copied, since building writes beside them."""
    folder, source = tmp_path_factory.mktemp("site"), tmp_path_factory.mktemp("source") / "plugin"
    shutil.copytree(EXAMPLE, source)
    words = ["--quiet", "--no-deps", "--no-build-isolation", "--target", str(folder), str(source)]
    subprocess.run([sys.executable, "-m", "pip", "install", *words], check=True)
    (folder / "run.yaml").write_text(RUN)
    return folder


def legroom(folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    path = os.pathsep.join([str(folder), *os.environ.get("PYTHONPATH", "").split(os.pathsep)])
    return subprocess.run(
        [sys.executable, "-m", "legroom", *words],
        capture_output=True, text=True, cwd=folder, env={**os.environ, "PYTHONPATH": path}, check=False,
    )  # fmt: skip


def test_its_rule_is_one_of_the_checks(installed):
    told = legroom(installed, "check", "run.yaml", "--ram", "16GiB", "--json")
    found = [finding for finding in json.loads(told.stdout)["findings"] if finding["code"] == "EX001"]
    assert [(each["line"], each["message"]) for each in found] == [(4, "64 environments; our machines have 32 cores")]
    assert "more-envs-than-cores" in legroom(installed, "check", "--explain-rule", "EX001").stdout
    ignored = legroom(installed, "check", "run.yaml", "--ram", "16GiB", "--ignore", "EX001", "--json")
    assert "EX001" not in ignored.stdout


def test_its_knob_is_turned_where_nothing_cheaper_is_enough(installed):
    told = legroom(installed, "fit", "run.yaml", "--ram", "330MiB", "--mode", "arithmetic", "--cpu-only", "--json")
    plan = json.loads(told.stdout)
    tried = {knob["name"]: knob for knob in plan["knobs"]}
    assert tried["env.frame_stack"]["price"] == "changes-learning"
    assert tried["env.frame_stack"]["to"] < 4


def test_what_cannot_be_loaded_is_told_of_and_left_out(installed, tmp_path):
    shutil.copytree(installed, tmp_path / "site")
    (tmp_path / "site/team_legroom.py").write_text("raise ImportError('half of it')\n")
    told = legroom(tmp_path / "site", "check", "run.yaml", "--ram", "16GiB")
    assert "legroom.rules 'team' is skipped: ImportError: half of it" in told.stderr
    assert "64 envs" in told.stdout
