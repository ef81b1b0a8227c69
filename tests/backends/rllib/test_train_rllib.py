"""`legroom train --backend rllib` for real: an SB3 run on Ray, stopped, gone on with, and nothing left running.

Starting Ray takes seconds, so that one training and its resume answer several questions.
"""

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from functools import partial
from pathlib import Path

import numpy as np
import psutil
import pytest
from stable_baselines3 import PPO
from tests.cli import in_process

from legroom.errors import EXIT_BAD_INPUT, EXIT_GOOD, EXIT_INTERRUPTED, EXIT_TRAINING_FAILED
from legroom.training.checkpoint import Checkpoints, newest_checkpoint
from legroom.training.progress_log import read_progress

RUN = """
legroom: 1
algo: PPO
env: {id: "spoiled_env:Spoiled", n_envs: 2, workers: subproc, envs_per_worker: 2, timeout: 9}
policy: {kwargs: {net_arch: [16]}}
hyperparams: {n_steps: 64, batch_size: 64, n_epochs: 2, clip_range: lin_0.2}
checkpoint: {every: 128}
total_timesteps: 100000
seed: 3
"""
MARK = "LEGROOM_TEST_RLLIB"


def command(*arguments):
    return [sys.executable, "-m", "legroom.cli.main", "train", *map(str, arguments)]


def legroom(*arguments):
    return subprocess.run(command(*arguments), text=True, capture_output=True, check=False, timeout=300)


def marked(mark):
    """Return the processes of one training: all that have its mark in their environment."""
    found = []
    for process in psutil.process_iter():
        try:
            if process.environ().get(MARK) == mark and process.status() != psutil.STATUS_ZOMBIE:
                found.append(process.pid)
        except psutil.Error:
            continue
    return found


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A folder with a run, whose environment all processes find."""
    made = tmp_path_factory.mktemp("rllib")
    (made / "run.yaml").write_text(RUN)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONPATH", str(Path(__file__).parent))
        patch.setenv("OMP_NUM_THREADS", "1")
        yield made


def heeds_interrupts():
    signal.signal(signal.SIGINT, signal.SIG_DFL)  # ignored, and inherited so, where the tests run with nohup


@pytest.fixture(scope="module")
def stopped(folder):
    """A training that was interrupted by Ctrl-C once it had written a checkpoint: what it said, and its mark."""
    out, mark = folder / "out", f"stopped-{os.getpid()}"
    process = subprocess.Popen(
        command(folder / "run.yaml", "--backend", "rllib", "--out", out),
        env=os.environ | {MARK: mark},
        text=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        start_new_session=True,
        preexec_fn=heeds_interrupts,
    )
    until = time.monotonic() + 200
    while newest_checkpoint(out) is None and process.poll() is None and time.monotonic() < until:
        time.sleep(0.3)
    process.send_signal(signal.SIGINT)
    try:
        said = "".join(process.communicate(timeout=200))
    except subprocess.TimeoutExpired:
        process.kill()  # its child and Ray end with it
        raise
    return out, mark, process.returncode, said


def test_ctrl_c_leaves_a_checkpoint_and_no_process(stopped):
    out, mark, code, said = stopped
    assert code == EXIT_INTERRUPTED, said
    outcome = json.loads((out / "outcome.json").read_text())
    assert outcome["status"] == "stopped" and outcome["resume"] == "approximate"
    assert outcome["timesteps"] == newest_checkpoint(out).step >= 128
    assert len(outcome["parameters_sha256"]) == 64
    until = time.monotonic() + 20
    while marked(mark) and time.monotonic() < until:
        time.sleep(0.3)
    assert marked(mark) == []


def test_what_means_something_else_is_said_at_the_start(stopped):
    assert "clip_range stays 0.2" in stopped[3]
    assert "env.timeout is not watched" in stopped[3]


def test_a_checkpoint_is_whole_and_has_sb3s_names(stopped):
    checkpoint = newest_checkpoint(stopped[0])
    checkpoint.verify()
    assert checkpoint.tensors("policy")["mlp_extractor.policy_net.0.weight"].shape == (16, 4)
    assert not any(path.suffix in (".pkl", ".pickle") for path in checkpoint.path.iterdir())


def test_a_resume_goes_on_to_the_end(stopped, folder):
    out, before = stopped[0], newest_checkpoint(stopped[0]).step
    total = before + 256
    done = legroom(folder / "run.yaml", "--backend", "rllib", "--out", out, "--resume", "--timesteps", total)
    assert done.returncode == EXIT_GOOD, done.stderr
    outcome = json.loads((out / "outcome.json").read_text())
    assert outcome["status"] == "finished" and outcome["timesteps"] >= total
    assert outcome["score"]["reward_mean"] > 5 and outcome["score"]["episodes"] > 0
    assert [attempt["reason"] for attempt in outcome["attempts"]] == ["start", "resume"]
    steps = [progress.timesteps for progress in read_progress(out / "progress.csv")]
    assert steps == sorted(set(steps)) and steps[0] <= 130 and steps[-1] >= total  # one line of steps, no gap
    assert before in steps


def test_what_was_learned_can_be_used_with_sb3(stopped, tmp_path):
    exported = subprocess.run(
        [sys.executable, "-m", "legroom.cli.main", "export", stopped[0], tmp_path / "model.zip"],
        text=True, capture_output=True, check=False, timeout=300,
    )  # fmt: skip
    assert exported.returncode == EXIT_GOOD, exported.stderr
    policy = PPO.load(tmp_path / "model.zip", device="cpu").policy.state_dict()
    for name, array in newest_checkpoint(stopped[0]).tensors("policy").items():
        np.testing.assert_array_equal(policy[name].numpy(), array)


@pytest.mark.slow
def test_a_reward_of_nan_ends_what_was_resumed_before_it_is_kept(stopped, folder, tmp_path):
    """An iteration has 64 steps of each environment: the 100th after the resume is in the second one."""
    out, before = tmp_path / "out", newest_checkpoint(stopped[0]).step
    shutil.copytree(stopped[0], out)
    spoiled = ("--set", "env.kwargs={nan_at: 100}", "--allow-changes")
    done = legroom(folder / "run.yaml", "--backend", "rllib", "--out", out, "--resume", *spoiled)
    assert done.returncode == EXIT_TRAINING_FAILED and "Traceback" not in done.stderr, done.stderr
    error = json.loads((out / "outcome.json").read_text())["error"]
    told = re.match(r"at step ([\d,]+): not finite: the reward of an episode was nan at step \1; train/", error)
    assert told, error
    ended = int(told[1].replace(",", ""))
    assert before + 256 <= ended < before + 256 + 16  # RLlib's workers may make some steps more
    good = Checkpoints(out).all()
    assert before + 128 <= good[-1].step < ended
    assert all(np.isfinite(array).all() for array in good[-1].tensors("policy").values())


def test_another_backend_cannot_go_on_with_it(stopped, folder):
    done = legroom(folder / "run.yaml", "--out", stopped[0], "--resume", "--timesteps", 10**7)
    assert done.returncode == EXIT_BAD_INPUT and "another backend: rllib" in done.stderr


@pytest.mark.parametrize(
    ("more", "words"),
    [
        (("--backend", "rllib", "--cluster", "127.0.0.1:1"), "no Ray cluster at 127.0.0.1:1"),
        pytest.param(
            ("--backend", "rllib", "--cluster", "no/where"),
            "is not an address of a Ray cluster",
            marks=pytest.mark.slow,
        ),
        (("--cluster", "auto"), "--cluster is for RLlib"),
        (("--backend", "sb3", "--cluster", "auto"), "--cluster is for RLlib"),
        (("--backend", "ray"), "--backend 'ray' is not known"),
        (("--backend", "rllib", "--num-env-runners", "none"), "num_env_runners must be a whole number"),
        (("--backend", "rllib", "--algo", "A2C"), "A2C cannot be trained with backend rllib"),
        (("--backend", "rllib", "--visualization"), "--visualization"),
    ],
)
def test_bad_input_is_one_line(folder, more, words):
    call = legroom if "127.0.0.1:1" in more else partial(in_process.legroom, "train")  # Ray is tried in its own process
    done = call(folder / "run.yaml", *more, "--out", folder / "refused")
    assert done.returncode == EXIT_BAD_INPUT, done.stderr
    (line,) = [line for line in done.stderr.splitlines() if line.startswith("legroom: ")]
    assert words in line and "Traceback" not in done.stderr
    assert not Path(folder / "refused" / "outcome.json").exists()
