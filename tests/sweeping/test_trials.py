"""Trials: who shares a prediction, which one is best, and that a sweep's folder gives back what was put in."""

from __future__ import annotations

from pathlib import Path

import pytest

from legroom.errors import BadInput
from legroom.machine import probe
from legroom.model.footprint import Peak
from legroom.model.outcome import MeasuredPeak, MeasuredPeaks, Outcome
from legroom.model.run import Run
from legroom.reading import run_from_dict
from legroom.sweeping.grid import Point, parse_parameters
from legroom.sweeping.sweep_folder import Live, SweepFolder
from legroom.sweeping.sweep_grid import make_trials
from legroom.sweeping.trial import WORKER_NBYTES, Sweep, Trial, TrialResult
from legroom.training.run_folder import Predicted

MIB = 1 << 20
CART = {
    "algo": "PPO",
    "env": {"id": "CartPole-v1"},
    "hyperparams": {"n_steps": 64, "batch_size": 32},
    "total_timesteps": 100,
    "device": "cpu",
}


def _read(point: Point) -> Run:
    return run_from_dict(CART, overrides=point)


def test_only_what_changes_memory_has_a_prediction_of_its_own() -> None:
    grid = parse_parameters(["learning_rate=1e-4,3e-4", "n_steps=64,65536", "seed=0..1"])
    trials = make_trials(grid, _read, probe())
    # 000, 001: 64 steps; 002, 003: 65536 steps; 004 and on: the same with the other learning rate
    assert [trial.shares for trial in trials] == [0, 0, 2, 2, 0, 0, 2, 2]
    assert trials[2].requested > trials[0].requested == trials[5].requested
    for trial in trials:  # the libraries' pages are there once for all of them
        assert trial.requested + trial.mapped == trial.predicted.host.high + WORKER_NBYTES
        assert 50_000_000 < trial.mapped < 300_000_000
    assert trials[4].params == {"learning_rate": 3e-4, "n_steps": 64, "seed": 0}
    assert [trial.run.seed for trial in trials] == [0, 1] * 4
    assert trials[7].run.hyperparams["learning_rate"] == 3e-4


def test_on_a_cluster_each_trial_requests_its_libraries() -> None:
    """Ray may place each on a node of its own, where nobody else has them in memory."""
    (trial,) = make_trials(parse_parameters(["seed=0"]), _read, probe(), on_one=False)
    assert (trial.mapped, trial.requested) == (0, trial.predicted.host.high + WORKER_NBYTES)


@pytest.mark.slow
def test_without_seeds_all_trials_have_the_same() -> None:
    trials = make_trials(parse_parameters(["learning_rate=1e-4,3e-4"]), _read, probe())
    assert trials[0].run.seed == trials[1].run.seed is not None


def test_unknown_keys_are_guessed() -> None:
    with pytest.raises(BadInput, match="did you mean"):
        make_trials(parse_parameters(["learning_rat=1e-4"]), _read, probe())


def test_the_folder_gives_back_the_plan(tmp_path: Path) -> None:
    trials = [_trial(0), _trial(1)]
    folder = SweepFolder(tmp_path)
    assert folder.identity() is None
    folder.keep({"run": "x"}, trials)
    assert folder.trials() == trials
    assert folder.identity() == {"run": "x"}


def test_a_damaged_plan_is_refused(tmp_path: Path) -> None:
    """A resume would train something else, or nothing, with one flipped bit."""
    folder = SweepFolder(tmp_path)
    folder.keep({"run": "x"}, [_trial(0)])
    plan = tmp_path / "sweep.json"
    good = plan.read_bytes()
    plan.write_bytes(good.replace(b'"seed": ', b'"seed": 1', 1))
    with pytest.raises(BadInput, match="does not match its checksum"):
        folder.trials()


def test_what_a_trial_says_of_itself(tmp_path: Path) -> None:
    folder = SweepFolder(tmp_path).trial(7)
    assert Live.read(folder) == Live()
    folder.path.mkdir(parents=True)
    said = Live(nbytes=3, peak=5, requested=9, timesteps=64, runs=2, reason="stopped")
    said.write(folder)
    assert Live.read(folder) == said
    (folder.path / "live.json").write_text("{")
    assert Live.read(folder) == Live()


def test_the_best_is_by_metric_and_mode() -> None:
    results = [_result(0, 10.0, 3.0), _result(1, 30.0, 2.0), _result(2, None, 1.0), _result(3, 30.0, 9.0)]
    assert Sweep("x", "reward_mean", "max", 1, results).best == 1  # the first of two that are as good
    assert Sweep("x", "reward_mean", "min", 1, results).best == 0
    assert Sweep("x", "seconds", "min", 1, results).best == 1  # the quickest one did not finish
    assert Sweep("x", "nothing", "max", 1, results).best is None
    data = Sweep("x", "reward_mean", "max", 1, results).to_json()
    assert [trial["metric"] for trial in data["trials"]] == [10.0, 30.0, None, 30.0]
    assert data["trials"][2]["status"] == "failed"


def _trial(number: int) -> Trial:
    run = _read((("seed", str(number)),))
    peak = Peak(200 * MIB, 180 * MIB, 220 * MIB, "update")
    return Trial(number, {"seed": number}, run, run, "cpu", Predicted(peak, None, (("base", 5),), ()), 380 * MIB)


def _result(number: int, reward: float | None, seconds: float) -> TrialResult:
    outcome = Outcome(
        status="finished" if reward is not None else "failed",
        timesteps=100,
        peaks=MeasuredPeaks(MeasuredPeak(None, 100 * MIB)),
        score={} if reward is None else {"reward_mean": reward},
        seconds=seconds,
    )
    return TrialResult(_trial(number), outcome.status, outcome, 100 * MIB, 380 * MIB)  # type: ignore[arg-type]
