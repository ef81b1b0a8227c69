"""`check` in CI: annotations at their lines, SARIF that holds to its schema, baselines, the project's settings."""

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


def test_github_shows_a_finding_at_its_line(folder):
    told = legroom("check", "train.py", *RAM, "--format", "github", cwd=folder)
    assert told.returncode == 1
    line = next(line for line in told.stdout.splitlines() if "LR007" in line)
    assert line.startswith("::warning file=train.py,line=16,title=LR007 minibatch-does-not-divide::16,384 samples")


def test_what_github_reads_as_syntax_is_escaped(folder):
    (folder / "odd,name.py").write_text((folder / "train.py").read_text())
    told = legroom("check", "odd,name.py", *RAM, "--format", "github", cwd=folder)
    assert "file=odd%2Cname.py," in told.stdout


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


def test_a_baseline_leaves_out_what_was_there_and_tells_of_what_is_new(folder):
    assert legroom("check", "train.py", *RAM, "--write-baseline", "known.json", cwd=folder).returncode == 0
    told = legroom("check", "train.py", *RAM, "--baseline", "known.json", cwd=folder)
    assert (told.returncode, "findings are in the baseline known.json" in told.stdout) == (0, True)
    text = (folder / "train.py").read_text()
    (folder / "train.py").write_text(
        "# a line above moves all others\n" + text.replace("batch_size=1000", "batch_size=1001")
    )
    again = json.loads(legroom("check", "train.py", *RAM, "--baseline", "known.json", "--json", cwd=folder).stdout)
    assert [finding["code"] for finding in again["findings"]] == []  # the same finding with another figure
    (folder / "other.py").write_text(text)
    new = json.loads(legroom("check", "other.py", *RAM, "--baseline", "known.json", "--json", cwd=folder).stdout)
    assert "LR007" in {finding["code"] for finding in new["findings"]}


def test_a_file_that_is_no_baseline_is_refused_in_one_line(folder):
    told = legroom("check", "train.py", "--baseline", "train.py", cwd=folder)
    assert (told.returncode, told.stderr.count("\n")) == (2, 1)
    assert "--write-baseline" in legroom("check", "train.py", "--baseline", "none.json", cwd=folder).stderr


def test_pre_commit_runs_check():
    (hook,) = yaml.safe_load((SCRIPT.parents[2] / ".pre-commit-hooks.yaml").read_text())
    assert (hook["entry"], hook["language"]) == ("legroom check", "python")
