"""The GitHub Action: its script is run on a repository, as a workflow would; its files name what exists."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

ROOT = Path(__file__).parents[2]
RUN = """\
algo: PPO
env:
  id: none
  n_envs: 8
  spaces: {{observation: {{type: box, shape: [84, 84, 4], dtype: uint8}}, action: {{type: discrete, n: 6}}}}
policy: {{name: CnnPolicy}}
hyperparams: {{n_steps: {steps}, batch_size: 256}}
"""


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    """A repository whose last commit makes rollouts four times as long."""
    for number, steps in enumerate((512, 2048)):
        (tmp_path / "run.yaml").write_text(RUN.format(steps=steps))
        (tmp_path / "notes.py").write_text(f"x = {number}\n")
        for words in (
            ["init", "-q"],
            ["add", "-A"],
            ["-c", "user.name=a", "-c", "user.email=a@b", "commit", "-qm", "a"],
        ):
            subprocess.run(["git", *words], cwd=tmp_path, check=True)
    return tmp_path


def act(folder: Path, **variables: str) -> subprocess.CompletedProcess[str]:
    outputs = {"GITHUB_OUTPUT": folder / "out", "GITHUB_STEP_SUMMARY": folder / "summary", "RUNNER_TEMP": folder}
    environ = {**os.environ, **{name: str(value) for name, value in outputs.items()}, **variables}
    script = [sys.executable, str(ROOT / "ci/action.py")]
    return subprocess.run(script, cwd=folder, env=environ, capture_output=True, text=True, check=False)


def test_a_pull_request_is_told_what_it_does_to_memory_and_why(repository):
    told = act(repository, LEGROOM_BASE="HEAD~1", LEGROOM_PATHS="run.yaml", LEGROOM_RAM="16GiB")
    assert told.returncode == 0, told.stderr
    comment = (repository / "legroom-comment.md").read_text()
    assert comment.startswith("### legroom: what this change does to memory\n\n- `run.yaml` before ")
    assert "because n_steps 512 → 2,048" in comment
    assert (repository / "out").read_text() == f"comment={repository / 'legroom-comment.md'}\n"
    assert (repository / "summary").read_text() == comment


def test_a_run_over_the_budget_fails_the_job(repository):
    told = act(repository, LEGROOM_BASE="HEAD~1", LEGROOM_PATHS="notes.py", LEGROOM_RAM="600MiB")
    assert told.returncode == 1
    assert "**over the budget**" in (repository / "legroom-comment.md").read_text()


def test_without_a_base_it_only_checks(repository):
    assert act(repository, LEGROOM_PATHS="run.yaml", LEGROOM_RAM="16GiB").returncode == 0
    assert not (repository / "legroom-comment.md").exists()


def test_the_files_of_the_action_and_of_pre_commit_name_what_exists():
    action = yaml.safe_load((ROOT / "action.yml").read_text())
    assert action["runs"]["using"] == "composite"
    given = {name for step in action["runs"]["steps"] for name in step["env"] if name.startswith("LEGROOM_")}
    used = (ROOT / "ci/action.py").read_text()
    assert {name for name in given if name != "LEGROOM_VERSION"} == {
        f"LEGROOM_{name}" for name in ("PATHS", "RAM", "VRAM", "BASE")
    }
    assert "ci/action.py" in action["runs"]["steps"][1]["run"]
    assert 'environ.get(f"LEGROOM_{name.upper()}"' in used
    (hook,) = yaml.safe_load((ROOT / ".pre-commit-hooks.yaml").read_text())
    assert (hook["entry"], hook["language"]) == ("legroom check", "python")
