"""Running out of memory, and being killed, as events: the training goes on, to the same end, and says what happened."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from legroom.machine.tree import descendants

ROOT = Path(__file__).parent.parent.parent
RUN = """
legroom: 1
algo: PPO
env: {id: "%s", n_envs: 2, workers: light}
hyperparams: {n_steps: 32, batch_size: 16, n_epochs: 2}
total_timesteps: 1280
seed: 7
"""
GREEDY = '''
from contextlib import suppress
from pathlib import Path

from bench.envs import Drift


class Greedy(Drift):
    """Asks for more than there is, once: in the first worker of a training, at its hundredth step."""

    steps = 0

    def step(self, action):
        Greedy.steps += 1
        mark = Path(__file__).with_name("asked")
        is_worker = b"worker" in Path("/proc/self/cmdline").read_bytes()  # and not where legroom looks at it before
        if Greedy.steps == 100 and is_worker and not mark.exists():
            mark.touch()
            raise MemoryError("Unable to allocate 105. GiB for an array")
        return super().step(action)
'''

PICTURES = '''
from pathlib import Path

import gymnasium
import numpy as np
from gymnasium import spaces


class Pictures(gymnasium.Env):
    """Shows noise; where a mark lies beside it, memory runs out once, at its 300th step."""

    observation_space = spaces.Box(0, 255, (1, 48, 48), np.uint8)
    action_space = spaces.Discrete(3)
    steps = 0

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        return self.np_random.integers(0, 255, (1, 48, 48), np.uint8), {}

    def step(self, action):
        self.steps += 1
        mark = Path(__file__).with_name("greedy")
        if self.steps == 300 and mark.exists() and b"training.child" in Path("/proc/self/cmdline").read_bytes():
            mark.unlink()
            raise MemoryError("Unable to allocate 105. GiB for an array")
        seen = self.np_random.integers(0, 255, (1, 48, 48), np.uint8)
        return seen, float(action), False, self.steps % 40 == 0, {}

    def get_state(self):
        return {"steps": self.steps}

    def set_state(self, state):
        self.steps = state["steps"]
'''
REPLAYED = """
legroom: 1
algo: DQN
env: {id: "%s", n_envs: 1, workers: dummy}
policy: {name: MlpPolicy, kwargs: {net_arch: [8]}}
hyperparams: {buffer_size: 40000, learning_starts: 50, batch_size: 8, train_freq: 8}
total_timesteps: 640
seed: 7
"""


class Training:
    """One `legroom train` in the background."""

    def __init__(self, folder: Path, env: str = "bench.envs:Drift", *options: object, text: str = RUN) -> None:
        self.out = folder / "out"
        run = folder / "run.yaml"
        run.write_text(text % env)
        command = [sys.executable, "-m", "legroom.cli.main", "train", run, "--out", self.out, "--checkpoint-every", 64]
        environment = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": f"{ROOT}:{folder}"}
        self.process = subprocess.Popen(
            [*map(str, command), *map(str, options)], cwd=ROOT, env=environment, text=True,
            stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        )  # fmt: skip

    def wait_for_step(self, step: int, timeout_s: float = 240) -> None:
        rows, deadline = self.out / "progress.csv", time.monotonic() + timeout_s
        while time.monotonic() < deadline:
            if rows.exists() and any(row.startswith(f"{step},") for row in rows.read_text().splitlines()):
                return
            assert self.process.poll() is None, self.process.communicate()
            time.sleep(0.01)
        raise TimeoutError

    def child(self) -> int:
        return next(pid for pid in descendants(self.process.pid) if b"legroom.training.child" in _command(pid))

    def worker(self) -> int:
        return next(pid for pid in descendants(self.child()) if pid != self.child() and b"worker" in _command(pid))

    def end(self, timeout_s: float = 240) -> tuple[int, dict, str]:
        _, said = self.process.communicate(timeout=timeout_s)
        outcome = self.out / "outcome.json"
        return self.process.returncode, json.loads(outcome.read_text()) if outcome.exists() else {}, said


def _command(pid: int) -> bytes:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return b""


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> str:
    code, outcome, said = Training(tmp_path_factory.mktemp("undisturbed")).end()
    assert code == 0, said
    assert outcome["retreats"] == []
    return outcome["parameters_sha256"]


@pytest.mark.slow  # that of a killed child is in test_train.py
def test_a_killed_worker_costs_an_iteration_and_nothing_else(undisturbed: str, tmp_path: Path) -> None:
    training = Training(tmp_path)
    training.wait_for_step(192)
    family = descendants(training.process.pid)
    os.kill(training.worker(), signal.SIGKILL)
    code, outcome, said = training.end()
    assert code == 0, said
    assert outcome["parameters_sha256"] == undisturbed
    assert len(outcome["attempts"]) == 2 and len(outcome["retreats"]) == 1
    assert "SIGKILL" in outcome["retreats"][0]["why"] and "resumed unchanged" in outcome["retreats"][0]["what"]
    assert not any(Path(f"/proc/{pid}").exists() for pid in family)


@pytest.mark.slow
def test_memory_that_runs_out_while_collecting_is_answered_with_a_knob(tmp_path: Path) -> None:
    (tmp_path / "greedy.py").write_text(GREEDY)
    code, outcome, said = Training(tmp_path, "greedy:Greedy").end()
    assert code == 0, said
    assert outcome["status"] == "finished" and outcome["timesteps"] == 1280
    (retreat,) = outcome["retreats"]
    assert "105. GiB" in retreat["why"] and "resumed with" in retreat["what"]
    assert len(outcome["attempts"][1]["knobs"]) > len(outcome["attempts"][0]["knobs"])
    assert "105. GiB" in said


@pytest.mark.slow
def test_a_retreat_that_changes_the_storage_goes_on_and_is_resumed_after_a_kill(tmp_path: Path) -> None:
    def train(name: str, *options: str) -> Training:
        folder = tmp_path / name
        folder.mkdir(exist_ok=True)
        (folder / "pictures.py").write_text(PICTURES)
        return Training(folder, "pictures:Pictures", "--plain", *options, text=REPLAYED)

    code, outcome, said = train("undisturbed").end()
    assert code == 0, said
    for name in ("through", "killed"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "greedy").touch()
    code, through, said = train("through").end()
    assert code == 0, said
    assert "memory.replay=lean" in through["retreats"][0]["what"]
    assert through["parameters_sha256"] == outcome["parameters_sha256"]
    killed = train("killed")
    deadline, document = time.monotonic() + 240, killed.out / "run.json"
    while not document.exists() or '"replay": "lean"' not in document.read_text():
        assert time.monotonic() < deadline and killed.process.poll() is None
        time.sleep(0.001)
    killed.process.kill()  # run.json is of the turned run, the checkpoint of the other
    killed.process.communicate()
    code, resumed, said = train("killed", "--resume").end()
    assert code == 0, said
    assert resumed["parameters_sha256"] == outcome["parameters_sha256"]


@pytest.mark.slow
def test_it_gives_up_after_so_many_times_and_tells_the_story(tmp_path: Path) -> None:
    (tmp_path / "greedy.py").write_text(GREEDY.replace("and not mark.exists()", "").replace("100", "40"))
    code, outcome, said = Training(tmp_path, "greedy:Greedy", "--retries", 2).end()
    assert code == 4
    assert outcome["status"] == "failed" and "given up" in outcome["retreats"][-1]["what"]
    assert "Traceback" in said and "105. GiB" in said


def test_a_stop_before_the_first_step_is_a_stop(tmp_path: Path) -> None:
    training = Training(tmp_path)
    deadline = time.monotonic() + 120
    while time.monotonic() < deadline and not (tmp_path / "out" / "train.log").exists():
        time.sleep(0.01)
    training.process.send_signal(signal.SIGTERM)  # the child is importing torch; under nohup SIGINT would be ignored
    code, _, said = training.end()
    assert code == 130, said
    assert "Traceback" not in said


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of 8 MB, where one may be mounted."""
    disk = tmp_path / "disk"
    disk.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=8m", "tmpfs", str(disk)]
    if subprocess.run(mount, check=False, capture_output=True).returncode:
        pytest.skip("nothing may be mounted here")
    yield disk
    subprocess.run(["umount", "-l", str(disk)], check=False)


@pytest.mark.slow
def test_a_disk_that_is_full_at_the_end_is_waited_for(small_disk: Path, undisturbed: str) -> None:
    training = Training(small_disk)
    training.wait_for_step(64)
    with suppress(OSError), (small_disk / "ballast").open("wb") as file:
        while True:
            file.write(b"\0" * 512)
            file.flush()
    said = ""
    for line in training.process.stderr:
        said += line
        if "waiting for disk space" in line:
            break
    (small_disk / "ballast").unlink()
    rest = training.process.communicate(timeout=240)[1]
    assert training.process.returncode == 0, said + rest
    assert "No space left" in said and "Traceback" not in said + rest
    outcome = json.loads((training.out / "outcome.json").read_text())
    assert (outcome["status"], outcome["timesteps"]) == ("finished", 1280)
    assert outcome["parameters_sha256"] == undisturbed
