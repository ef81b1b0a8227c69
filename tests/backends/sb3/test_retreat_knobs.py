"""Every knob that a retreat can turn, in the middle of a run: what was written before goes on after.

Where a knob keeps the bits, the end is that of a run that was never interrupted. Killed before the next checkpoint, the
same files are resumed again; killed after it, those of the turned run are, with and without one more turn.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from legroom.backends.sb3.knobs import SB3_KNOBS
from legroom.backends.sb3.making import make_model, make_vec_env
from legroom.backends.sb3.state import capture, continue_learning, policy_arrays, restore
from legroom.fitting.changes import with_settings
from legroom.model.run import Run
from legroom.training.checkpoint import Checkpoints, parameters_sha256

STOP, TOTAL = 96, 192
OFF = {"buffer_size": 64, "learning_starts": 20, "batch_size": 8, "train_freq": 4}
RUNS: dict[str, dict[str, Any]] = {
    "PPO": {"algo": "PPO", "hyperparams": {"n_steps": 16, "batch_size": 8, "n_epochs": 2}},
    "PPO dict": {"algo": "PPO", "env": {"kwargs": {"part": True}}, "policy": {"name": "MultiInputPolicy"},
                 "hyperparams": {"n_steps": 16, "batch_size": 8, "n_epochs": 1}},
    "A2C": {"algo": "A2C", "hyperparams": {"n_steps": 4}},
    "DQN": {"algo": "DQN", "hyperparams": OFF},
    "DQN picture": {"algo": "DQN", "env": {"kwargs": {"picture": True}}, "hyperparams": OFF},
    "DQN dict": {"algo": "DQN", "env": {"kwargs": {"part": True, "picture": True}},
                 "policy": {"name": "MultiInputPolicy"}, "hyperparams": OFF},
    "DQN three steps": {"algo": "DQN", "hyperparams": OFF | {"n_steps": 3}},
    "DoubleDQN": {"algo": "DoubleDQN", "hyperparams": OFF | {"priority_alpha": 0.6}},
    "SAC": {"algo": "SAC", "env": {"kwargs": {"discrete": False}}, "hyperparams": OFF},
    "TD3 normalized": {"algo": "TD3", "env": {"kwargs": {"discrete": False}, "normalize": True},
                       "hyperparams": OFF | {"action_noise": {"normal": 0.1}}},
}  # fmt: skip
LEAN = {"rollout": "lean", "replay": "lean"}
TURNED: dict[str, dict[str, Any]] = {
    "memory.rollout": {"memory": LEAN},
    "env.workers": {"env": {"workers": "light"}},
    "eval.workers": {"eval": {"workers": "light"}},
    "memory.expandable_segments": {"memory": {"expandable_segments": True}},
    "memory.shared_data": {"memory": {"shared_data": True}},
    "memory.micro_batch": {"memory": {"micro_batch": 4}},
    "memory.activation_checkpointing": {"memory": {"activation_checkpointing": True}},
    "env.envs_per_worker": {"env": {"workers": "light", "envs_per_worker": 2}},
    "memory.max_bytes": {"memory": LEAN | {"max_bytes": 1 << 14}},
    "env.n_envs": {"env": {"n_envs": 1}},
    "hyperparams.batch_size": {"hyperparams": {"batch_size": 4}},
    "memory.bf16": {"memory": {"bf16": True}},
    "hyperparams.buffer_size": {"hyperparams": {"buffer_size": 32}},
    "hyperparams.n_steps": {"hyperparams": {"n_steps": 8}},
}
BITS = {knob.key for knob in SB3_KNOBS if knob.exact == "bits"}
# What the replay in a checkpoint depends on is asked in make test, the others in make test-slow.
STORED = ("memory.rollout", "env.n_envs", "hyperparams.buffer_size", "memory.max_bytes")
FAST = {
    ("PPO", "memory.rollout"), ("DQN three steps", "memory.rollout"), *(("DoubleDQN", key) for key in STORED[:3]),
    *(("DQN dict", key) for key in STORED),
}  # fmt: skip


def test_no_knob_is_left_out() -> None:
    assert set(TURNED) == {knob.key for knob in SB3_KNOBS if not knob.starts_over}
    assert {knob.key for knob in SB3_KNOBS if knob.starts_over} == {
        "policy.kwargs.net_arch", "policy.features_extractor_kwargs", "env.grid"
    }  # fmt: skip


def applies(name: str, key: str) -> bool:
    on_policy = RUNS[name]["algo"] in ("PPO", "A2C")
    match key:
        case "hyperparams.buffer_size" | "memory.max_bytes":
            return not on_policy
        case "hyperparams.n_steps":
            return on_policy
        case "hyperparams.batch_size":
            return name != "A2C"
        case "memory.micro_batch":
            return RUNS[name]["algo"] in ("PPO", "DQN", "DoubleDQN")
    return True


def run_of(name: str) -> Run:
    given = RUNS[name]
    env = {"id": "resume_envs:Remembered", "n_envs": 2, "workers": "dummy", **given.get("env", {})}
    policy = {"name": "MlpPolicy", "kwargs": {"net_arch": [16, 16]}, **given.get("policy", {})}
    return Run.model_validate(
        {
            "legroom": 1,
            "name": name,
            "seed": 3,
            "total_timesteps": TOTAL,
            "eval": {},
            **given,
            "env": env,
            "policy": policy,
        }
    )


class Stopped(Exception):
    """The kill."""


def trained(run: Run, checkpoints: Checkpoints, until: int | None = None) -> str:
    """Train on from the newest checkpoint, to the end or a kill right after a checkpoint; return what was learned."""
    env = make_vec_env(run)
    try:
        model: Any = make_model(run, env, "cpu")
        newest = checkpoints.latest()
        if newest is not None:
            restore(model, newest)
        collect = model.collect_rollouts

        def collect_rollouts(*arguments: Any, **more: Any) -> Any:
            if until is not None and model.num_timesteps >= until:
                state = capture(model, previous=checkpoints.newest)
                checkpoints.write(model.num_timesteps, state.tensors, state.data, link=state.link, files=state.files)
                raise Stopped
            return collect(*arguments, **more)

        model.collect_rollouts = collect_rollouts
        try:
            continue_learning(model, TOTAL)
        except Stopped:
            return ""
        assert model.num_timesteps >= TOTAL
        return parameters_sha256(policy_arrays(model))
    finally:
        env.close()


CASES = [
    pytest.param(name, key, marks=[] if (name, key) in FAST else pytest.mark.slow, id=f"{name}-{key}")
    for name in RUNS for key in TURNED if applies(name, key)
]  # fmt: skip


@pytest.mark.parametrize(("name", "key"), CASES)
def test_what_was_written_before_a_knob_was_turned_goes_on(name: str, key: str, tmp_path: Path) -> None:
    torch.set_num_threads(1)
    run = run_of(name)
    turned = with_settings(run, **TURNED[key])
    checkpoints = Checkpoints(tmp_path / "run")
    trained(run, checkpoints, until=STOP)
    first = trained(turned, checkpoints)
    assert first == trained(turned, checkpoints)  # killed before it wrote anything: the same files once more
    trained(turned, checkpoints, until=STOP + 32)
    after = trained(turned, checkpoints)
    if key in BITS:
        unbroken = trained(run, Checkpoints(tmp_path / "whole"))
        assert first == after == unbroken
        assert trained(run, checkpoints) == unbroken  # and back: run.json came from before the turn
