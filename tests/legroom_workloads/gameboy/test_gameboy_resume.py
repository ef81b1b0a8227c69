"""If these fail, a training of the Game Boy that was stopped goes on with other fights than it would have had."""

import json
import multiprocessing
import os
import signal
import sys
import time
from multiprocessing.connection import Connection
from pathlib import Path

import pytest

from legroom.model.learner import TrainTask
from legroom.reading import read

SMALL = {
    "env.n_envs": "2",
    "env.kwargs": "{grey: true, downsample: 4, action_repeat: 60}",
    "env.spaces": "{observation: {type: box, shape: [36, 40, 1], dtype: uint8}, action: {type: discrete, n: 6}}",
    "policy.features_extractor_kwargs": "{features_dim: 16}",
    "hyperparams.n_steps": "16",
    "hyperparams.batch_size": "16",
    "hyperparams.n_epochs": "1",
    "memory.rollout": "lean",
    "seed": "3",
}
ITERATION, STEPS = 32, 32 * 4  # rounds of some ten steps: in every iteration some end and some are cut through
PROCESSES = multiprocessing.get_context("forkserver")
PROCESSES.set_forkserver_preload(["legroom.backends.sb3.training", "pyboy"])  # once for all three


def train_in_child(folder: Path, pipe: Connection, resume: bool) -> None:
    """Train as the process does that `legroom train` starts; what it has to say goes through the pipe."""
    from legroom.training.child import main
    from legroom_workloads.gameboy.env import GameBoyEnv

    GameBoyEnv.score = None  # a hundred rounds of a policy that has learned nothing would be most of the time
    run = read("gameboy:learn", overrides=list(SMALL.items()))
    folder.mkdir(exist_ok=True)
    events = os.dup(pipe.fileno())
    TrainTask(run, str(folder), "cpu", STEPS, events, resume=resume, checkpoint_every=1).write(folder / "task.json")
    sys.argv[1:] = [str(folder / "task.json")]
    main()


def train(folder: Path, *, resume: bool = False, stop_at: int | None = None) -> tuple[int | None, list[dict]]:
    """Train to the end, or until it is told to stop in the iteration after a step; return exit code and events."""
    reading, writing = PROCESSES.Pipe(duplex=False)
    child = PROCESSES.Process(target=train_in_child, args=(folder, writing, resume))
    child.start()
    writing.close()
    said = []
    with os.fdopen(os.dup(reading.fileno())) as lines:
        for line in lines:
            said.append(json.loads(line))
            if stop_at is not None and said[-1]["event"] == "checkpoint" and said[-1]["step"] >= stop_at:
                time.sleep(0.02)
                os.kill(child.pid, signal.SIGTERM)
                stop_at = None
    child.join(60)
    return child.exitcode, said


@pytest.mark.slow
def test_a_training_that_was_stopped_and_resumed_has_the_weights_of_one_that_was_not(tmp_path):
    code, whole = train(tmp_path / "whole")
    assert code == 0
    code, stopped = train(tmp_path / "stopped", stop_at=2 * ITERATION)
    assert code == 130 and 2 * ITERATION <= stopped[-1]["step"] < STEPS
    code, resumed = train(tmp_path / "stopped", resume=True)
    assert code == 0 and whole[-1]["step"] == resumed[-1]["step"] == STEPS
    assert any("resuming from step" in event.get("text", "") and "(exact)" in event["text"] for event in resumed)
    assert whole[-1]["parameters_sha256"] == resumed[-1]["parameters_sha256"]
