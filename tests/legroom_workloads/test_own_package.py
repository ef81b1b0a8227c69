"""If these fail, a package of the user's own with environments and run files does not work as those of legroom do.

`examples/own_workload` is installed by pip into a folder of its own, as `docs/howto/own_workload.md` says.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

EXAMPLE = Path(__file__).parents[2] / "examples/own_workload"
OURS = ["mine", "fire", "ninja", "gameboy", "robot"]
LAYERS = (8 * 9 + 8) + (16 * 8 * 9 + 16) + (16 * 5 * 15 * 64 + 64)  # two convolutions and a linear layer on 24×64 cells
HEADS = 2 * 2 * (64 * 64 + 64) + (64 * 3 + 3) + (64 + 1)  # two towers of two layers, three actions, one value
PAGE = """
from legroom.serving.answers import ANSWERS, Question
from legroom.serving.asked import LocalMachine
own = {"started": {}, "folders": [], "roots": []}
answer = ANSWERS["/api/start"](Question(b"", {}, LocalMachine(), own))
print(answer["workloads"][-1])
"""


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """The environment of processes that have the example installed, beside a package that cannot be imported."""
    folder = tmp_path_factory.mktemp("own")
    source, target = folder / "source", folder / "site"
    shutil.copytree(EXAMPLE, source, ignore=shutil.ignore_patterns("build", "*.egg-info", "__pycache__"))
    offline = ("--no-index", "--no-build-isolation", "--no-deps", "--disable-pip-version-check")
    subprocess.run(
        [sys.executable, "-m", "pip", "install", "--quiet", *offline, "--target", target, source],
        check=True,
        timeout=300,
    )
    information = target / "broken-1.0.dist-info"
    information.mkdir()
    (information / "METADATA").write_text("Metadata-Version: 2.1\nName: broken\nVersion: 1.0\n")
    (information / "entry_points.txt").write_text("[legroom.workloads]\nbroken = no_such_module:WORKLOAD\n")
    return {**os.environ, "PYTHONPATH": str(target)}


def legroom(installed: dict[str, str], *arguments: object) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "legroom.cli.main", *map(str, arguments)]
    return subprocess.run(command, env=installed, capture_output=True, text=True, check=False, timeout=300)


def test_it_is_listed_after_ours_and_a_broken_package_keeps_nobody_from_working(installed: dict[str, str]) -> None:
    done = legroom(installed, "workloads", "--json")
    names = [run["name"] for run in json.loads(done.stdout)["runs"]]
    assert list(dict.fromkeys(name.partition(":")[0] for name in names)) == [*OURS, "tunnel"]
    assert names[-2:] == ["tunnel:long", "tunnel:short"]
    assert done.stderr.count("\n") == 1 and "workload 'broken' of broken cannot be used" in done.stderr


def test_it_is_completed_and_on_the_page(installed: dict[str, str]) -> None:
    done = legroom(installed, "--complete-words", "predict", "tun")
    assert [line.partition("\t")[0] for line in done.stdout.splitlines()] == ["tunnel:long", "tunnel:short", "tunnel"]
    assert "--hill" in legroom(installed, "--complete-words", "predict", "tunnel", "--hi").stdout
    page = subprocess.run([sys.executable, "-c", PAGE], env=installed, capture_output=True, text=True, check=True)
    assert page.stdout.strip() == str({"name": "tunnel", "runs": ["tunnel:long", "tunnel:short"]})


def test_its_network_is_known_without_importing_it(installed: dict[str, str]) -> None:
    done = legroom(installed, "predict", "tunnel:long", "--mode", "arithmetic", "--cpu-only", "--json")
    (run,) = json.loads(done.stdout)["runs"]
    weights = next(item for item in run["items"] if item["name"] == "network.weights")
    assert weights["nbytes"] == 4 * (LAYERS + HEADS)
    fitted = legroom(installed, "fit", "tunnel:long", "--mode", "arithmetic", "--ram", "1MiB", "--cpu-only", "--json")
    assert fitted.returncode == 1 and '"features": 16' in fitted.stdout  # every knob turned, its sizes too


def test_its_option_holds_for_its_runs_alone(installed: dict[str, str], tmp_path: Path) -> None:
    hill = tmp_path / "hill.txt"
    hill.write_text(("#" * 40 + "\n") * 9)
    done = legroom(installed, "predict", "tunnel:long", "--hill", hill, "--mode", "arithmetic", "--json")
    (run,) = json.loads(done.stdout)["runs"]
    rollout = next(item for item in run["items"] if item["name"] == "rollout.observations")
    assert rollout["nbytes"] == 64 * 4 * (9 * 40)
    assert "--hill FILE" in legroom(installed, "train", "tunnel", "--help").stdout
    refused = legroom(installed, "predict", "mine:full", "--hill", hill, "--mode", "arithmetic")
    assert refused.returncode == 2
    assert "--hill is an option of tunnel, which mine:full does not belong to" in refused.stderr


@pytest.mark.slow
def test_it_trains(installed: dict[str, str], tmp_path: Path) -> None:
    arguments = ("--plain", "--device", "cpu", "--timesteps", 256, "--out", tmp_path / "out", "--json")
    done = legroom(installed, "train", "tunnel:short", *arguments)
    assert done.returncode == 0, done.stderr
    assert json.loads((tmp_path / "out/outcome.json").read_text())["status"] == "finished"
