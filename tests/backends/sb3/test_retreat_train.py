"""Running out of memory in an update for real, and in `legroom train`: it goes on, and says what a run file repeats."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
RUN = """
legroom: 1
algo: %(algo)s
env: {id: "bench.envs:Drift", n_envs: 2, workers: dummy}
policy:
  kwargs: {features_extractor_class: "tests.backends.sb3.retreat_nets:Failing", features_extractor_kwargs: %(failing)s}
hyperparams: %(hyperparams)s
memory: %(memory)s
total_timesteps: 192
seed: 7
"""
PPO = dict(algo="PPO", hyperparams="{n_steps: 32, batch_size: 16, n_epochs: 2}")


def python(*arguments):
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": str(ROOT)}
    command = [sys.executable, *map(str, arguments)]
    return subprocess.run(command, cwd=ROOT, env=environment, text=True, capture_output=True, check=False, timeout=300)


def train(folder, name, failing="{}", memory="{}", **run):
    path = folder / f"{name}.yaml"
    path.write_text(RUN % {**run, "failing": failing, "memory": memory})
    done = python("-m", "legroom.cli.main", "train", path, "--out", folder / name, "--plain")
    assert done.returncode == 0, done.stderr
    return json.loads((folder / name / "outcome.json").read_text()), done.stderr


@pytest.mark.slow
def test_a_training_goes_on_and_its_outcome_says_how_to_repeat_it(tmp_path):
    outcome, said = train(tmp_path, "disturbed", failing="{every: 18, times: 2}", **PPO)
    assert outcome["micro_batch"][:2] == [[0, 16], [17, 8]]
    assert [(each["update"], each["what"]) for each in outcome["retreats"][:2]] == [
        (17, "redone with the same micro-batch of 16, after emptying the cache"),
        (17, "redone with micro-batches of 8 instead of 16"),
    ]
    assert "DefaultCPUAllocator" in outcome["retreats"][0]["why"]
    assert "update 17 redone with micro-batches of 8 instead of 16" in said
    repeated, _ = train(tmp_path, "repeated", memory=f"{{micro_batch: {outcome['micro_batch']}}}", **PPO)
    assert repeated["retreats"] == []
    assert repeated["parameters_sha256"] == outcome["parameters_sha256"]


@pytest.mark.slow
def test_real_failures_on_the_host():
    limited = python("-m", "tests.backends.sb3.retreat_child", '{"over": 150000000, "micro_batch": null}')
    assert limited.returncode == 0, limited.stderr
    found = json.loads(limited.stdout)
    # where exactly it begins to fit depends on what malloc has kept by then
    sizes = [each[1:3] for each in found["retreats"]]
    assert sizes[:2] == [[256, 256], [256, 128]]
    assert all(after in (before, before // 2) for before, after in sizes)
    assert 8 <= found["micro_batch"][-1][1] <= 128
    assert all("DefaultCPUAllocator" in each[3] for each in found["retreats"])
    task = {"over": None, "micro_batch": found["micro_batch"]}
    unlimited = json.loads(python("-m", "tests.backends.sb3.retreat_child", json.dumps(task)).stdout)
    assert unlimited["retreats"] == []
    assert unlimited["sha256"] == found["sha256"]
