"""`legroom train` of a brax run, in its own process: killed, out of memory, exported, refused; and the same bits."""

import json
import os
import re
import signal
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from tests.cli import in_process

from legroom.errors import EXIT_BAD_INPUT, EXIT_GOOD, EXIT_MISSING_EXTRA
from legroom.installing import install_command
from legroom.model.learner import TrainTask
from legroom.reading import read
from legroom.training.request import Training
from legroom.training.supervise import child_environment
from legroom.training.train import train

TESTS = Path(__file__).parent
EACH = 8 * 5 * 4
SCRATCH = 4_000_000  # floats per environment and step: 256 MB for 16 of them at once, twice
RUN = """
legroom: 1
backend: brax
algo: PPO
env:
  id: brax_toys:Point
  n_envs: 16
  spaces: {observation: {type: box, shape: [2], dtype: float32}, action: {type: box, shape: [2], dtype: float32}}
policy: {kwargs: {policy_hidden_layer_sizes: [8], value_hidden_layer_sizes: [8]}}
hyperparams:
  {batch_size: 8, unroll_length: 5, num_minibatches: 4, num_updates_per_batch: 2, episode_length: 20, run_evals: false}
checkpoint: {every: 1}
total_timesteps: 1280
seed: 3
"""


@pytest.fixture(scope="module", autouse=True)
def surroundings(xla_cache):
    """Processes find the environment, and share what is compiled."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONPATH", str(TESTS))
        patch.syspath_prepend(TESTS)
        patch.setenv("OMP_NUM_THREADS", "1")
        patch.setenv("JAX_COMPILATION_CACHE_DIR", str(xla_cache))
        patch.setenv("JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS", "0")
        patch.setenv("JAX_DISABLE_MOST_OPTIMIZATIONS", "1")  # compiling is what takes the time here
        yield


def legroom(*arguments):
    command = [sys.executable, "-m", "legroom.cli.main", *map(str, arguments)]
    return subprocess.run(command, text=True, capture_output=True, check=False, timeout=600)


class Silent:
    """A display that shows nothing, and does something once when so many steps are made."""

    def __init__(self, at=None, then=lambda: None):
        self.at, self.then, self.lines = at, then, []

    def progress(self, progress):
        if self.at is not None and progress.timesteps >= self.at:
            self.at = None
            self.then()

    def memory(self, sample):
        pass

    def say(self, line):
        self.lines.append(line)


def child():
    search = ["pgrep", "-P", str(os.getpid()), "-f", "legroom.training.child"]
    found = subprocess.run(search, capture_output=True, text=True, check=False)
    return int(found.stdout.split()[0])


@pytest.fixture(scope="module")
def file(tmp_path_factory):
    path = tmp_path_factory.mktemp("run") / "point.yaml"
    path.write_text(RUN)
    return path


@pytest.fixture(scope="module")
def undisturbed(file):
    """A training from the command line, to its end."""
    out = file.parent / "undisturbed"
    done = legroom("train", file, "--out", out, "--set", "env.timeout=5")
    assert done.returncode == EXIT_GOOD, done.stderr
    return out, done


@pytest.mark.slow
def test_it_trains_from_the_command_line(undisturbed):
    out, done = undisturbed
    outcome = json.loads((out / "outcome.json").read_text())
    assert (outcome["status"], outcome["timesteps"], outcome["resume"]) == ("finished", 8 * EACH, "exact")
    assert f"legroom export {out} policy.safetensors" in " ".join(done.stdout.split())
    assert "compiled in" in done.stderr
    assert "env.timeout is not watched" in done.stderr
    assert {"progress.csv", "tensorboard"} <= {path.name for path in out.iterdir()}


@pytest.mark.slow
def test_out_of_memory_and_killed_it_ends_with_the_same_bits(undisturbed, file, tmp_path):
    whole = read(str(file))
    hungry = whole.replace(env=whole.env.model_copy(update={"kwargs": {"scratch": SCRATCH, "limit_mib": 500}}))
    failures = []

    def turn(run, failure):
        failures.append(failure)
        return whole, None

    killing = Silent(3 * EACH, lambda: os.kill(child(), signal.SIGKILL))
    outcome, _ = train(Training(hungry, str(tmp_path / "run"), asked=hungry), killing, next_knob=turn)
    assert outcome.exit_code == EXIT_GOOD
    ((why, place),) = [(each.why, each.place) for each in failures]
    assert "ut of memory" in why or "RESOURCE_EXHAUSTED" in why
    assert place == "host"
    assert [each.what for each in outcome.retreats][1:] == ["resumed unchanged"]
    assert any(re.fullmatch(r"resuming from step [1-9]\d* \(exact\)", line) for line in killing.lines)
    expected = json.loads((undisturbed[0] / "outcome.json").read_text())
    assert outcome.parameters_sha256 == expected["parameters_sha256"]


@pytest.mark.parametrize(
    ("arguments", "code", "text"),
    [
        (["--batch-size", "6"], EXIT_BAD_INPUT, "6 × 4 = 24 is not a multiple of 16"),
        (["--set", "hyperparams.batch_sise=8"], EXIT_BAD_INPUT, "did you mean"),
        (["--num_minibatch", "4"], EXIT_BAD_INPUT, "did you mean --num-minibatches"),
        (["--set", "env.id=brax_toys:Pint"], EXIT_BAD_INPUT, "did you mean 'Point'"),
    ],
)
def test_what_cannot_be_trained_is_one_line(file, tmp_path, arguments, code, text):
    done = in_process.legroom("train", file, "--out", tmp_path / "run", *arguments)
    assert (done.returncode, text in done.stderr) == (code, True), done.stderr
    assert "Traceback" not in done.stderr
    assert not (tmp_path / "run" / "checkpoints").exists()


def test_without_jax_the_extra_is_named(file, tmp_path):
    program = (
        "import sys; sys.modules['jax'] = None\n"
        "import importlib.util as u; found = u.find_spec\n"
        "u.find_spec = lambda name, *more: None if name == 'jax' else found(name, *more)\n"
        "from legroom.cli.main import main; main()"
    )
    command = [sys.executable, "-c", program, "train", str(file), "--out", str(tmp_path / "run")]
    done = subprocess.run(command, text=True, capture_output=True, check=False, timeout=120)
    assert done.returncode == EXIT_MISSING_EXTRA, done.stderr
    assert install_command("jax", "jax") in done.stderr


@pytest.mark.parametrize(("knob", "expected"), [(False, "false"), (True, "true"), (None, None)])
def test_preallocation_is_told_before_jax_loads(file, monkeypatch, knob, expected):
    monkeypatch.delenv("XLA_PYTHON_CLIENT_PREALLOCATE", raising=False)
    run = read(str(file))
    run = run.replace(memory=run.memory.model_copy(update={"xla_preallocate": knob}))
    task = TrainTask(run, "", "cuda", 1, -1)
    assert child_environment(task).get("XLA_PYTHON_CLIENT_PREALLOCATE") == expected
    assert child_environment(replace(task, device="cpu"))["JAX_PLATFORMS"] == "cpu"
    monkeypatch.setenv("XLA_PYTHON_CLIENT_PREALLOCATE", "0")  # the user's own word counts
    assert child_environment(task)["XLA_PYTHON_CLIENT_PREALLOCATE"] == "0"
