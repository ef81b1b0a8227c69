"""`legroom profile` as people and scripts call it."""

import json
import os
import pstats
import subprocess
import sys
from pathlib import Path

import pytest

from legroom.installing import install_command

LEGROOM = str(Path(sys.executable).parent / "legroom")
LEAKY = """
import gymnasium
import numpy as np


class Leaky(gymnasium.Env):
    observation_space = gymnasium.spaces.Dict({
        "screen": gymnasium.spaces.Box(0, 255, (8, 8), np.float32),
        "speed": gymnasium.spaces.Box(-1, 1, (2,), np.float32),
    })
    action_space = gymnasium.spaces.Discrete(2)

    def __init__(self):
        self.screen = np.zeros((8, 8), np.float32)
        self.age, self.history = 0, []

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        return self._look(), {}

    def step(self, action):
        self.age += 1
        self.screen[0] = self.age % 256
        self.history.append(bytes(200))  # the leak
        return self._look(), 0.0, self.age % 50 == 0, False, {}

    def _look(self):
        return {"screen": self.screen, "speed": np.full(2, 0.1 * (self.age % 9), np.float32)}


class Good(Leaky):
    def step(self, action):
        self.history = []
        return super().step(action)

    def _look(self):
        return {"screen": self.screen.copy(), "speed": np.full(2, 0.1 * (self.age % 9), np.float32)}


class Crashes(Leaky):
    def __init__(self):
        raise RuntimeError("there is no display\\nhere")
"""


def legroom(*arguments: str, cwd: Path | None = None, **variables: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [LEGROOM, "profile", *arguments], capture_output=True, text=True, cwd=cwd, check=False, timeout=180,
        env={**os.environ, "OMP_NUM_THREADS": "1", **variables},
    )  # fmt: skip


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "mine_own.py").write_text(LEAKY)
    return tmp_path


def test_a_leak_is_found_with_its_line_and_fails_where_it_is_asked_to(folder: Path) -> None:
    done = legroom("mine_own:Leaky", "--frames", "2000", "--envs", "2", "--json", "--fail-on-leak", cwd=folder)
    assert done.returncode == 1, done.stderr
    found = json.loads(done.stdout)
    assert (found["legroom"], found["env"]) == (1, "mine_own:Leaky")
    assert found["steps"] >= 2_000 and found["steps_per_s"] > 0
    leak = found["leak"]
    assert leak["verdict"] == "leak" and 230 < leak["bytes_per_step"] < 280
    low, high = leak["interval"]
    assert low <= leak["bytes_per_step"] <= high
    expected = LEAKY.split("\n").index("        self.history.append(bytes(200))  # the leak") + 1
    assert (leak["lines"][0]["file"], leak["lines"][0]["line"]) == (str(folder / "mine_own.py"), expected)
    rates = [line["bytes_per_step"] for line in leak["lines"]]
    assert rates == sorted(rates, reverse=True) and rates[0] > 200
    assert found["observation"]["nbytes"] == 264
    assert found["observation"]["by_key"] == {"screen": 256, "speed": 8}
    assert found["observation"]["aliases_env_memory"] is True
    (row,) = found["parallel"]
    assert row["envs"] == 2 and row["pss"] > row["uss_per_env"] > 0
    assert found["fits_envs"] > 2


def test_the_report_says_it_on_one_screen(folder: Path) -> None:
    files = ("--report", "report.txt", "--html", "page.html", "--cprofile", "functions.prof")
    done = legroom("mine_own:Leaky", "--frames", "2000", "--envs", "2,3", *files, cwd=folder)
    assert done.returncode == 0, done.stderr
    text = done.stdout
    assert "Leak: 2" in text and "out of memory in about" in text and "mine_own.py:" in text
    assert "screen is a view of the environment's memory and has changed" in text
    assert "one more env takes" in text and text.count("\n") < 35
    told, report = (" ".join(each.split()) for each in (text, (folder / "report.txt").read_text()))
    assert report in told  # which says besides what was written; lines may be broken elsewhere
    page = (folder / "page.html").read_text()
    assert page.count('class="chart"') == 1 and 'class="bars"' in page
    assert "mine_own.py:" in page and "<script" not in page and "http:" not in page
    functions = pstats.Stats(str(folder / "functions.prof")).stats  # type: ignore[attr-defined]
    assert any(name == "step" and file.endswith("mine_own.py") for file, _, name in functions)


@pytest.mark.slow
def test_before_and_after(folder: Path) -> None:
    first = legroom("mine_own:Good", "--envs", "0", "--save", "before.json", cwd=folder)
    assert first.returncode == 0 and "No leak: memory does not grow" in first.stdout, first.stderr
    again = legroom("mine_own:Good", "--envs", "0", "--baseline", "before.json", cwd=folder)
    assert again.returncode == 0 and "growth per step" in again.stdout
    assert "worse" not in again.stdout.partition("steps per second")[0] and "note:" not in again.stdout
    worse = legroom("mine_own:Leaky", "--envs", "0", "--baseline", "before.json", "--json", cwd=folder)
    assert worse.returncode == 0  # finding a change is what was asked for
    baseline = json.loads(worse.stdout)["baseline"]
    verdicts = {change["what"]: change["verdict"] for change in baseline["changes"]}
    assert verdicts["bytes_per_step"] == "worse" and verdicts["marginal"] == "unknown"
    assert baseline["notes"] == ["the baseline is of another environment, mine_own:Good"]


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["mine_own:Crashes"], "env 'mine_own:Crashes' raised: RuntimeError: there is no display here"),
        (["mine_own:Lekay"], "did you mean 'Leaky'"),
        (["no_such_module:Env"], "No module named 'no_such_module'"),
        (["CartPol-v1"], "CartPole"),
        (["CartPole-v1", "--frames", "0"], "frames: 0 must be a whole number"),
        (["CartPole-v1", "--snapshot-interval", "-1"], "snapshot_interval: -1 must be a whole number"),
        (["CartPole-v1", "--envs", "1,two"], "--envs '1,two' is not a list of numbers"),
        (["CartPole-v1", "--seed", "-1"], "--seed -1 is out of range"),
        (["CartPole-v1", "--baseline", "mine_own.py"], "mine_own.py: is not JSON"),
        (["CartPole-v1", "--baseline", "missing.json"], "missing.json: No such file"),
        (["CartPole-v1", "--html", "nowhere/page.html"], "there is no directory nowhere"),
        (["CartPole-v1", "--save", "."], "is a directory"),
        (["CartPole-v1", "--frames", "many"], "--frames"),
    ],
)
def test_bad_input_is_one_line(folder: Path, arguments: list[str], words: str) -> None:
    done = legroom(*arguments, cwd=folder)
    assert done.returncode == 2 and done.stdout == ""
    assert words in done.stderr and done.stderr.count("\n") == 1 and "Traceback" not in done.stderr


def test_a_missing_gymnasium_is_exit_code_3(folder: Path) -> None:
    (folder / "gymnasium.py").write_text(
        "raise ModuleNotFoundError(\"No module named 'gymnasium'\", name='gymnasium')\n"
    )
    done = legroom("CartPole-v1", PYTHONPATH=str(folder))
    assert done.returncode == 3
    way = install_command("profile", "gymnasium").partition(" -m ")[2]  # python or python3, as it was started
    assert "needs gymnasium, which is not installed (" in done.stderr and f"-m {way})" in done.stderr
