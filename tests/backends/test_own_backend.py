"""If these fail, somebody's own backend does not work as those of legroom do.

`examples/own_backend` is a distribution of its own: installed by pip into a folder, found through its entry point, and
taken through predict, fit, check, train, resume and the page.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from tests.serving.ui_server import serving

EXAMPLE = Path(__file__).parents[2] / "examples/own_backend"
RUN = """
legroom: 1
backend: cem
algo: CEM
env: {id: CartPole-v1}
hyperparams: {population: 24, elite: 6}
total_timesteps: 12000
seed: 3
"""


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    folder = tmp_path_factory.mktemp("own_backend")
    source, target = folder / "source", folder / "site"
    shutil.copytree(EXAMPLE, source, ignore=shutil.ignore_patterns("build", "*.egg-info", "__pycache__"))
    offline = ("--no-index", "--no-build-isolation", "--no-deps", "--disable-pip-version-check")
    command = [sys.executable, "-m", "pip", "install", "--quiet", *offline, "--target", target, source]
    subprocess.run(command, check=True, timeout=300)
    return {**os.environ, "PYTHONPATH": str(target), "OMP_NUM_THREADS": "1"}


@pytest.fixture
def run_file(tmp_path: Path) -> Path:
    path = tmp_path / "run.yaml"
    path.write_text(RUN)
    return path


def legroom(installed: dict[str, str], *arguments: object) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "legroom.cli.main", *map(str, arguments)]
    return subprocess.run(command, env=installed, capture_output=True, text=True, check=False, timeout=300)


def test_it_is_small() -> None:
    assert len((EXAMPLE / "cem_backend.py").read_text().splitlines()) <= 120


def test_predict_bills_what_it_declares(installed: dict[str, str], run_file: Path) -> None:
    done = legroom(installed, "predict", run_file, "--ram", "1GiB", "--json", "--cpu-only")
    assert done.returncode == 0, done.stderr
    (told,) = json.loads(done.stdout)["runs"]
    items = {item["name"]: item["nbytes"] for item in told["items"]}
    assert items["population"] == 24 * 4 * 2 * 8  # policies x observations x actions x float64
    assert items["episodes"] == 24 * 200 * 4 * 8


def test_fit_turns_its_knob_and_says_the_price(installed: dict[str, str], run_file: Path) -> None:
    done = legroom(installed, "fit", run_file, "--population", 20_000, "--ram", "100MiB", "--json")
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout)
    (knob,) = told["knobs"]
    assert (knob["name"], knob["price"], told["fits"]) == ("hyperparams.chunk", "slower", True)


def test_a_run_that_does_not_fit_is_not_trained(installed: dict[str, str], run_file: Path) -> None:
    done = legroom(installed, "train", run_file, "--out", run_file.parent / "out", "--ram", "20MiB")
    assert done.returncode == 1 and "needs" in done.stderr, done.stderr
    assert not (run_file.parent / "out").exists()


def test_check_reports_what_it_would_refuse(installed: dict[str, str], run_file: Path) -> None:
    assert legroom(installed, "check", run_file).returncode == 0
    wrong = run_file.with_name("wrong.yaml")
    wrong.write_text(RUN.replace("elite: 6", "elite: 60"))
    done = legroom(installed, "predict", wrong, "--ram", "1GiB")
    assert done.returncode == 1 and "elite is larger than the population" in done.stdout
    unknown = run_file.with_name("unknown.yaml")
    unknown.write_text(RUN.replace("elite: 6", "elites: 6"))
    done = legroom(installed, "check", unknown)
    assert done.returncode == 1 and "elites" in done.stdout


def test_it_learns_and_a_resume_in_chunks_ends_with_the_same_bits(installed: dict[str, str], run_file: Path) -> None:
    out = run_file.parent / "out"
    done = legroom(installed, "train", run_file, "--out", out)
    assert done.returncode == 0, done.stderr
    outcome = json.loads((out / "outcome.json").read_text())
    rewards = [float(row.split(",")[1]) for row in (out / "progress.csv").read_text().splitlines()[1:]]
    assert outcome["status"] == "finished" and rewards[-1] > 3 * rewards[0], rewards
    again = run_file.parent / "again"
    chunks = ("--set", "chunk=7")
    half = legroom(installed, "train", run_file, "--out", again, "--timesteps", 4000, *chunks)
    assert half.returncode == 0, half.stderr
    done = legroom(installed, "train", run_file, "--out", again, "--resume", *chunks)
    assert done.returncode == 0, done.stderr
    assert json.loads((again / "outcome.json").read_text())["parameters_sha256"] == outcome["parameters_sha256"]
    assert "resuming from step" in done.stderr


def test_the_page_shows_its_run_what_can_be_turned_and_predicts_it(installed: dict[str, str], run_file: Path) -> None:
    with serving(str(run_file), environment={"PYTHONPATH": installed["PYTHONPATH"]}) as server:
        start = json.loads(server.ask("GET", "/api/start").body)
        run = next(run for run in start["shown"] if run["run"]["backend"] == "cem")
        groups = run["controls"]
        spaces = {"observation": {"type": "box", "shape": [4]}, "action": {"type": "discrete", "n": 2}}
        wide = run["run"] | {"env": {"id": "CartPole-v1", "spaces": spaces}, "hyperparams": {"population": 20_000}}
        answer = server.ask("POST", "/api/predict?ram=1GiB", wide)
    keys = {control["key"]: control for group in groups for control in group["controls"]}
    assert keys["hyperparams.chunk"]["price"] == "slower"
    assert {"hyperparams.population", "hyperparams.elite", "env.n_envs"} <= set(keys)
    items = {item["name"]: item["nbytes"] for item in json.loads(answer.body)["runs"][0]["items"]}
    assert items["episodes"] == 20_000 * 200 * 4 * 8


def test_without_it_a_run_of_it_is_one_clear_line(run_file: Path) -> None:
    done = legroom(dict(os.environ), "predict", run_file)
    assert done.returncode == 2
    assert "cem" in done.stderr and done.stderr.count("\n") == 1
