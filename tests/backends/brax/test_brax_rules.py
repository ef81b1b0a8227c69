"""What brax and jax refuse is a sentence with a way out, before anything is compiled."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from tests.cli import in_process

from legroom.backends.brax.constraints import least_mend
from legroom.backends.brax.facts import env_steps_per_training_step, episode_length_of, prefill_env_steps
from legroom.model.run import Run
from legroom.predicting.constraints import broken_rules


def brax(algo: str = "PPO", n_envs: int = 8, total: int | None = None, **hyperparams: Any) -> Run:
    spaces = {name: {"type": "box", "shape": [2], "dtype": "float32"} for name in ("observation", "action")}
    return Run.model_validate({
        "backend": "brax", "algo": algo, "env": {"n_envs": n_envs, "spaces": spaces}, "hyperparams": hyperparams,
        "total_timesteps": total,
    })  # fmt: skip


@pytest.mark.parametrize(
    ("run", "text", "hint"),
    [
        (
            brax(n_envs=2**31, batch_size=2**31, num_minibatches=1, unroll_length=1),
            "num_envs is 2,147,483,648",
            "2,147",
        ),
        (
            brax(batch_size=2**20, num_minibatches=64, unroll_length=64),
            "4,294,967,296",
            "batch_size of at most 524,287",
        ),
        (brax("SAC", max_replay_size=2**32), "the replay buffer is 4,294,967,296", "max_replay_size of at most"),
        (brax("SAC", total=2**33), "the replay buffer is 8,589,934,592", "max_replay_size of at most"),
        (brax(episode_length=4, action_repeat=5, unroll_length=1), "action_repeat 5 is over", "at most 4"),
        (brax("SAC", n_envs=64, max_replay_size=32), "cannot take 64 at once", "at least 64"),
        (brax("SAC", total=100, min_replay_size=100), "not reached in 100 steps", "below 100"),
    ],
)
def test_what_is_refused_and_the_way_out(run: Run, text: str, hint: str) -> None:
    finding = broken_rules(run)[0]
    assert finding.severity == "error"
    assert text in finding.message
    assert hint in finding.hint


def test_an_unroll_longer_than_an_episode_is_allowed_and_said() -> None:
    (finding,) = broken_rules(brax(episode_length=5, unroll_length=10))
    assert (finding.severity, finding.hint) == ("warning", "unroll_length 5")


@pytest.mark.parametrize(
    ("envs", "batch", "minibatches", "mend"),
    [
        (512, 128, 2, ("num_minibatches", 4)), (1536, 384, 6, ("num_minibatches", 8)),
        (1024, 128, 4, ("num_minibatches", 8)),
        (2048, 100, 2, ("batch_size", 1024)),  # not 512 minibatches of 100: twenty-five times the data
    ],
)  # fmt: skip
def test_the_mend_changes_the_data_of_an_update_least(
    envs: int, batch: int, minibatches: int, mend: tuple[str, int]
) -> None:
    assert least_mend(batch, minibatches, envs) == mend


def test_brax_own_numbers() -> None:
    run = brax(batch_size=256, num_minibatches=4, unroll_length=10, action_repeat=2)
    assert env_steps_per_training_step(run) == 20_480
    sac = brax("SAC", n_envs=100, min_replay_size=250, action_repeat=2)
    assert (env_steps_per_training_step(sac), prefill_env_steps(sac)) == (200, 600)  # three steps of 100, twice each
    assert episode_length_of(run) == 1000


def test_the_trainings_of_a_script_are_checked_as_runs() -> None:
    script = Path(__file__).parents[2] / "checking/scripts/brax_ppo.py"
    done = in_process.legroom("check", script, "--ram", "16GiB", "--cpu-only", "--json")
    found = {(each["code"], each["line"]): each for each in json.loads(done.stdout)["findings"]}
    assert {at for at in found if at[0] in ("LR002", "LR027")} == {("LR002", 27), ("LR002", 32), ("LR027", 34)}
    assert found["LR002", 27]["fix"]["text"] == "4"  # the number of minibatches
