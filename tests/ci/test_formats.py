"""`check` in CI: SARIF that holds to its schema, the project's settings."""

import json
import shutil
from pathlib import Path

import pytest
import yaml
from tests.cli.in_process import legroom

SCRIPT = Path(__file__).parents[2] / "docs/files/train.py"
SCHEMA = json.loads(Path(__file__).with_name("sarif_subset.json").read_text())
RAM = ("--ram", "16GiB")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    shutil.copy(SCRIPT, tmp_path / "train.py")
    return tmp_path


def test_sarif_holds_to_its_schema_and_points_to_its_rules(folder):
    jsonschema = pytest.importorskip("jsonschema")
    log = json.loads(legroom("check", "train.py", *RAM, "--format", "sarif", cwd=folder).stdout)
    jsonschema.validate(log, SCHEMA)
    run = log["runs"][0]
    assert len(run["results"]) >= 5
    for result in run["results"]:
        assert run["tool"]["driver"]["rules"][result["ruleIndex"]]["id"] == result["ruleId"]
        assert result["locations"][0]["physicalLocation"]["artifactLocation"]["uri"] == "train.py"


def test_sarif_of_nothing_is_a_log_too(tmp_path):
    jsonschema = pytest.importorskip("jsonschema")
    (tmp_path / "empty.py").write_text("x = 1\n")
    told = legroom("check", "empty.py", "--format", "sarif", cwd=tmp_path)
    assert told.returncode == 0
    jsonschema.validate(json.loads(told.stdout), SCHEMA)


def test_pre_commit_runs_check():
    (hook,) = yaml.safe_load((SCRIPT.parents[2] / ".pre-commit-hooks.yaml").read_text())
    assert (hook["entry"], hook["language"]) == ("legroom check", "python")
