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


def test_the_project_says_what_is_ignored_and_the_budget(folder):
    (folder / "pyproject.toml").write_text('[tool.legroom]\nignore = ["LR007", "callback-not-used"]\nram = "64MiB"\n')
    (folder / "deep/er").mkdir(parents=True)
    (folder / "deep/er/pyproject.toml").write_text('[project]\nname = "no table here"\n')
    shutil.move(folder / "train.py", folder / "deep/er/train.py")
    found = json.loads(legroom("check", folder / "deep/er/train.py", "--json").stdout)["findings"]
    assert {"LR007", "LR050"}.isdisjoint(finding["code"] for finding in found)
    shutil.copy(SCRIPT.with_name("run.yaml"), folder / "deep/er")
    found = json.loads(legroom("check", folder / "deep/er/run.yaml", "--json").stdout)["findings"]
    assert any(finding["severity"] == "error" and "64.0 MiB" in finding["message"] for finding in found)


@pytest.mark.parametrize("table", ['rams = "1GiB"', "ram = 5", 'ignore = "LR007"', "ram ="])
def test_a_table_that_cannot_be_read_is_refused_in_one_line(folder, table):
    (folder / "pyproject.toml").write_text(f"[tool.legroom]\n{table}\n")
    told = legroom("check", "train.py", cwd=folder)
    assert (told.returncode, told.stderr.count("\n")) == (2, 1)
    assert "pyproject.toml" in told.stderr


def test_pre_commit_runs_check():
    (hook,) = yaml.safe_load((SCRIPT.parents[2] / ".pre-commit-hooks.yaml").read_text())
    assert (hook["entry"], hook["language"]) == ("legroom check", "python")
