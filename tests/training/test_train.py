"""`legroom train` from the outside: what it writes, how it refuses, how it stops and goes on, what a crash says."""

import json
import os
import re
import shlex
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from tests.cli import in_process
from tests.cli.html_page import page_of

from legroom.machine.tree import descendants

ROOT = Path(__file__).parent.parent.parent
RUN = """
legroom: 1
algo: PPO
env: {{id: "{env}", n_envs: 2, workers: {workers}}}
hyperparams: {{n_steps: 32, batch_size: 16, n_epochs: 2}}
total_timesteps: 640
"""
GATED = '''
import os
import time
from pathlib import Path

from bench.envs import Drift


class Gated(Drift):
    """Where a folder is named, it waits at its hundredth step until it is killed; after that it is slow from there."""

    taken = 0
    # not where a prediction steps it
    folder = None if b"env_child" in Path("/proc/self/cmdline").read_bytes() else os.environ.get("GATE")

    def step(self, action):
        Gated.taken += 1
        if self.folder and Gated.taken >= 100:
            killed = Path(self.folder, "killed").exists()
            Path(self.folder, "slow" if killed else "waits").touch()
            time.sleep(0.5 if killed else 300)
        return super().step(action)
'''
CRASHING = '''
from bench.envs import Drift


class Crashing(Drift):
    """Raises in its hundredth step."""

    taken = 0

    def step(self, action):
        Crashing.taken += 1
        if Crashing.taken == 100:
            raise RuntimeError("the pump has run dry")
        return super().step(action)
'''


def surroundings(folder: Path) -> dict[str, str]:
    return {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": f"{ROOT}{os.pathsep}{folder}"}


def legroom(*arguments: object, cwd: Path = ROOT, **options) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "legroom.cli.main", *map(str, arguments)]
    return subprocess.run(
        command, cwd=cwd, env=surroundings(cwd), capture_output=True, text=True, timeout=240, check=False, **options
    )


@pytest.fixture(scope="module")
def trained(tmp_path_factory) -> tuple[Path, Path, subprocess.CompletedProcess[str]]:
    folder = tmp_path_factory.mktemp("train")
    run = folder / "run.yaml"
    run.write_text(RUN.format(env="gated:Gated", workers="subproc"))
    (folder / "gated.py").write_text(GATED)
    given = ("--out", folder / "out", "--seed", 7, "--checkpoint-every", 64, "--html", folder / "page.html")
    return run, folder / "out", legroom("train", run, *given, cwd=folder)


def test_a_training_leaves_what_the_contract_says(trained):
    _, out, done = trained
    assert done.returncode == 0, done.stderr
    outcome = json.loads((out / "outcome.json").read_text())
    assert outcome["legroom"] == 1 and outcome["status"] == "finished" and outcome["timesteps"] == 640
    assert len(outcome["parameters_sha256"]) == 64 and outcome["resume"] == "exact"
    # stepping these environments costs less than sending messages to workers
    assert outcome["attempts"] == [{"reason": "start", "knobs": {"env.workers": "dummy"}}]
    host = outcome["peaks"]["host"]
    assert 150e6 < host["measured"] < 600e6 and 150e6 < host["predicted"] < 600e6 and outcome["peaks"]["gpu"] is None
    assert "reward_mean" in outcome["score"]
    rows = (out / "progress.csv").read_text().splitlines()
    assert rows[0].startswith("time/total_timesteps") and len(rows) == 11  # 640 steps in iterations of 64
    assert [path.name for path in sorted((out / "checkpoints").iterdir())] == [
        f"step-{step:012d}" for step in (512, 576, 640)
    ]
    said = " ".join(done.stdout.split())  # wherever lines end
    assert "Finished after 640 steps" in said and "predicted" in said


def test_its_page_shows_memory_against_the_prediction_reward_and_outcome(trained):
    _, out, done = trained
    assert "written: " in done.stderr
    page, outcome = page_of(out.parent / "page.html"), json.loads((out / "outcome.json").read_text())
    assert "Finished after 640 steps" in page.text
    assert outcome["parameters_sha256"] and outcome["parameters_sha256"] not in page.text + done.stdout
    peak = outcome["peaks"]["host"]
    assert f"{peak['measured'] / 2**20:.1f} MiB" in page.text and f"{peak['predicted'] / 2**20:.1f} MiB" in page.text
    assert any("checkpoint at step 512" in title for title in page.titles)
    assert page.source.count('class="chart"') == 2  # memory and reward
    assert {"collect", "update"} & set(page.titles)


def test_resuming_a_finished_run_changes_nothing(trained):
    run, out, _ = trained
    before = {path: path.stat().st_mtime_ns for path in out.rglob("*")}
    done = legroom("train", run, "--out", out, "--resume")
    assert done.returncode == 0 and "is finished (640 steps)" in done.stdout
    assert {path: path.stat().st_mtime_ns for path in out.rglob("*")} == before


def test_what_is_there_is_not_overwritten(trained):
    run, out, _ = trained
    done = legroom("train", run, "--out", out)
    assert done.returncode == 2 and done.stderr.count("\n") == 1
    assert "is not empty" in done.stderr and "--resume" in done.stderr


def test_a_resume_with_another_network_is_refused(trained):
    run, out, _ = trained
    done = legroom("train", run, "--out", out, "--resume", "--timesteps", 700, "--set", "policy.kwargs.net_arch=[8]")
    assert done.returncode == 2 and "was started with another policy" in done.stderr


def test_killed_stopped_in_a_long_iteration_and_resumed_it_ends_with_the_same_parameters(trained, tmp_path):
    """An iteration has 32 steps of each environment: the hundredth is in the fourth one."""
    run, out, _ = trained
    command = [sys.executable, "-m", "legroom.cli.main", "train", run, "--out", tmp_path / "out"]
    command += ["--seed", "7", "--checkpoint-every", "64"]
    environment = surroundings(run.parent) | {"GATE": str(tmp_path)}
    process = subprocess.Popen(
        list(map(str, command)), env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    appears(tmp_path / "waits", process)
    family = descendants(process.pid)
    (tmp_path / "killed").touch()
    os.kill(next(pid for pid in family if b"legroom.training.child" in command_line(pid)), signal.SIGKILL)
    appears(tmp_path / "slow", process)  # it has gone on by itself, and is in the fourth iteration after that
    asked = time.monotonic()
    process.send_signal(signal.SIGTERM)  # does what Ctrl-C does; that is ignored where the tests run with nohup
    _, said = process.communicate(timeout=120)
    assert process.returncode == 130, said
    busy = os.getloadavg()[0] > 2 * (os.cpu_count() or 1)
    assert time.monotonic() - asked < (60 if busy else 12)  # ten, and what a busy machine adds
    assert not any(Path(f"/proc/{pid}").exists() for pid in family)
    outcome = json.loads((tmp_path / "out/outcome.json").read_text())
    assert "stopping after this step, with a checkpoint" in said
    assert outcome["status"] == "stopped" and outcome["timesteps"] < 640
    assert outcome["timesteps"] % 64  # within a rollout
    (retreat,) = outcome["retreats"]
    assert "SIGKILL" in retreat["why"] and "resumed unchanged" in retreat["what"]
    assert len(outcome["attempts"]) == 2
    resumed = legroom("train", run, "--out", tmp_path / "out", "--resume", cwd=run.parent)
    assert resumed.returncode == 0, resumed.stderr
    outcome, whole = (json.loads((folder / "outcome.json").read_text()) for folder in (tmp_path / "out", out))
    assert outcome["status"] == "finished" and outcome["attempts"][-1]["reason"] == "resume"
    assert outcome["parameters_sha256"] == whole["parameters_sha256"]
    steps = [int(row.partition(",")[0]) for row in (tmp_path / "out/progress.csv").read_text().splitlines()[1:]]
    assert steps == list(range(64, 641, 64))


OWN_NETWORK = """
import torch
from stable_baselines3.common.torch_layers import BaseFeaturesExtractor


class Own(BaseFeaturesExtractor):
    def __init__(self, space):
        super().__init__(space, 6)
        self.net = torch.nn.Linear(6, 6)

    def forward(self, seen):
        return self.net(seen)
"""


def test_the_commands_that_it_ends_with_run_as_printed(tmp_path):
    (tmp_path / "own.py").write_text(OWN_NETWORK)
    own = 'env: {id: "bench.envs:Drift"}\npolicy: {kwargs: {net_arch: [8]}, features_extractor: "own:Own"}\n'
    (tmp_path / "run.yaml").write_text(f"algo: PPO\n{own}hyperparams: {{n_steps: 32, batch_size: 16}}\n")
    (tmp_path / "model.zip").touch()  # where there is one already, another name is printed
    given = ("train", "run.yaml", "--timesteps", 64, "--set", "hyperparams.n_steps=16", "--ram", "8GiB", "--out", "out")
    done = legroom(*given, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "limit 8.0 GiB of host memory (--ram): watched by legroom, not enforced" in done.stderr
    (export,) = re.findall(r"^  legroom (export .*)$", done.stdout, re.MULTILINE)
    exported = legroom(*shlex.split(export), cwd=tmp_path)
    assert exported.returncode == 0 and (tmp_path / "out-model.zip").exists(), exported.stderr


@pytest.mark.slow
def test_what_a_script_is_predicted_to_take_is_what_legroom_takes_with_it(tmp_path):
    """Its process has legroom's modules and not torch's compiler: 15 % were missed by the difference."""
    (tmp_path / "cart.py").write_text(
        "from stable_baselines3 import PPO\nPPO('MlpPolicy', 'CartPole-v1', n_steps=32, batch_size=32).learn(64)\n"
    )
    done = legroom("train", "cart.py", "--out", "out", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    predicted = json.loads((tmp_path / "out/prediction.json").read_text())["host"]
    measured = json.loads((tmp_path / "out/outcome.json").read_text())["peaks"]["host"]["measured"]
    assert predicted["low"] < measured < predicted["high"]


def appears(mark: Path, process: subprocess.Popen[str], timeout_s: float = 240) -> None:
    deadline = time.monotonic() + timeout_s
    while not mark.exists():
        assert process.poll() is None, process.communicate()
        assert time.monotonic() < deadline
        time.sleep(0.02)


def command_line(pid: int) -> bytes:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return b""


def test_an_environment_that_raises_says_where_and_how_to_go_on(tmp_path):
    (tmp_path / "crashing.py").write_text(CRASHING)
    run = tmp_path / "run.yaml"
    run.write_text(RUN.format(env="crashing:Crashing", workers="dummy"))
    done = legroom("train", run, "--out", tmp_path / "out", "--plain", "--checkpoint-every", 1)
    assert done.returncode == 4
    assert "Traceback" in done.stderr and "RuntimeError: the pump has run dry" in done.stderr
    last = done.stderr.strip().splitlines()[-1]
    assert "at step 98" in last and "resume from step 64" in last  # the second env's hundredth: 49 whole steps before
    outcome = json.loads((tmp_path / "out/outcome.json").read_text())
    assert (outcome["status"], outcome["resume"]) == ("failed", "exact")
    told = " ".join(done.stdout.split())  # however it is wrapped
    assert f"--out {tmp_path / 'out'} --plain --checkpoint-every 1 --resume" in told  # what was given, and --resume


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--resume"], "--out DIR"),
        (["--device", "tpu", "--out", "x"], "cpu, cuda or auto"),
        (["--device", "cuda", "--out", "x"], "no GPU"),
        (["--data", "nothing.csv", "--out", "x"], "no such file"),
        (["--set", "memory.xla_preallocate=true", "--out", "x"], "xla_preallocate"),
        (["--set", "memory.micro_batch=4", "--set", "algo=TRPO", "--out", "x"], "micro"),
    ],
)
def test_bad_input_is_one_line_and_leaves_nothing(tmp_path, arguments, words):
    run = tmp_path / "run.yaml"
    run.write_text(RUN.format(env="bench.envs:Drift", workers="dummy"))
    done = in_process.legroom("train", run, "--plain", *arguments, cwd=tmp_path)
    assert done.returncode == 2, done.stderr
    assert words in done.stderr.strip().splitlines()[-1] and "Traceback" not in done.stderr
    assert [path.name for path in tmp_path.iterdir()] == ["run.yaml"]


@pytest.mark.slow  # the same is asked of a backend that imports nothing, in backends/test_own_backend.py
def test_a_run_that_does_not_fit_exits_1_with_the_command(tmp_path):
    run = tmp_path / "run.yaml"
    run.write_text(RUN.format(env="bench.envs:Drift", workers="dummy"))
    done = legroom("train", run, "--out", tmp_path / "out", "--ram", "200MB")
    assert done.returncode == 1 and "needs" in done.stderr and not (tmp_path / "out").exists()
