"""kill -9 at random moments: no checkpoint is unreadable, and every resume ends with the same parameters.

The training child and its workers die together, as in a power cut; `python -m bench.kills` kills the parts of a whole
`legroom train` one by one.
"""

from __future__ import annotations

import os
import random
import select
import signal
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from legroom.machine.tree import descendants
from legroom.model.learner import TrainTask
from legroom.model.run import Run
from legroom.training.checkpoint import Checkpoints, checkpoint_paths
from legroom.training.events import EventLines

# Within iterations a checkpoint is written every 40 s; nobody waits so long here.
WITHIN = (
    "import legroom.training.checkpoint_pace as pace; pace.OLDEST_S, pace.OLDEST_SHARE = 0.02, 1.0;"
    "from legroom.training.child import main; main()"
)
RUNS: dict[str, dict[str, Any]] = {
    "within iterations, lean rollout": {
        "algo": "PPO", "seed": 3, "total_timesteps": 3000,
        "env": {"id": "bench.envs:Drift", "n_envs": 2, "frame_stack": 40, "workers": "dummy"},
        "hyperparams": {"n_steps": 500, "batch_size": 50, "n_epochs": 4}, "memory": {"rollout": "lean"},
    },
    "after iterations, VecNormalize, workers": {
        "algo": "PPO", "seed": 3, "total_timesteps": 1500,
        "env": {"id": "bench.envs:Drift", "n_envs": 2, "workers": "light", "normalize": True},
        "hyperparams": {"n_steps": 50, "batch_size": 25, "n_epochs": 2, "learning_rate": "lin_3e-4"},
    },
}  # fmt: skip


def attempt(run: Run, out: Path, *, resume: bool, within: bool, kill_after_s: float | None) -> dict[str, Any]:
    """Train to the end and return its event, or kill the tree some time after training began and return nothing."""
    reading, writing = os.pipe()
    out.mkdir(parents=True, exist_ok=True)
    every = None if within else 1
    total = run.total_timesteps or 0
    TrainTask(run, str(out), "cpu", total, writing, resume=resume, checkpoint_every=every).write(out / "task.json")
    child = subprocess.Popen(
        [sys.executable, *(["-c", WITHIN] if within else ["-m", "legroom.training.child"]), str(out / "task.json")],
        pass_fds=(writing,), stdout=subprocess.DEVNULL, stderr=(out / "log").open("ab"), start_new_session=True,
        env={**os.environ, "OMP_NUM_THREADS": "1"}, cwd=Path(__file__).parents[2],
    )  # fmt: skip
    os.close(writing)
    lines, end, deadline, until = EventLines(), {}, None, time.monotonic() + 300
    try:
        while time.monotonic() < until:
            wait = 1.0 if deadline is None else max(deadline - time.monotonic(), 0.0)
            ready, _, _ = select.select([reading], [], [], wait)
            if deadline is not None and time.monotonic() >= deadline:
                for pid in descendants(child.pid):
                    with suppress(ProcessLookupError):
                        os.kill(pid, signal.SIGKILL)
                break
            data = os.read(reading, 1 << 16) if ready else None
            for event in lines.feed(data or b""):
                if event["event"] == "started" and kill_after_s is not None:
                    deadline = time.monotonic() + kill_after_s
                if event["event"] in ("ended", "failed", "refused"):
                    end = event
            if data == b"":
                break
    finally:
        os.close(reading)
        child.wait(30)
    return end


@pytest.mark.parametrize(
    ("name", "kills", "seed"),
    [
        ("within iterations, lean rollout", 3, 4),
        pytest.param("after iterations, VecNormalize, workers", 5, 2, marks=pytest.mark.slow),
    ],
)
def test_no_kill_costs_a_checkpoint_or_another_result(name: str, kills: int, seed: int, tmp_path: Path) -> None:
    run, within, moments = Run.model_validate(RUNS[name]), "within" in name, random.Random(seed)
    whole = attempt(run, tmp_path / "reference", resume=False, within=within, kill_after_s=None)
    assert "parameters_sha256" in whole, (tmp_path / "reference/log").read_text()
    killed = passing = trainings = 0
    while killed < kills:
        out, end = tmp_path / f"killed-{trainings}", {}
        trainings += 1
        while not end:
            # a part of the whole, so that a training is killed several times on its way, early and late in it
            wish = moments.uniform(0, whole["seconds"] / 4) if killed < kills else None
            end = attempt(run, out, resume=out.exists(), within=within, kill_after_s=wish)
            if not end:
                killed += 1
                good = Checkpoints(out).all()
                assert len(checkpoint_paths(out)) == len(good)
                passing += bool(good) and good[-1].passing
        assert end.get("parameters_sha256") == whole["parameters_sha256"], (out / "log").read_text()[-2000:]
    assert bool(passing) == within
