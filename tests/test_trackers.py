"""Memory beside the user's own curves in W&B and MLflow: only where a run of theirs is active, and never in its way."""

import sys
import warnings
from types import SimpleNamespace

import pytest

from legroom.trackers import Trackers

FIGURES = {"memory/host_mb": 400.5, "memory/predicted_host_mb": 410.0}


def test_a_tracker_that_fails_is_told_of_once_and_left_alone(monkeypatch):
    calls = []

    def log(*arguments, **more):
        calls.append(arguments)
        raise OSError("no disk")

    monkeypatch.setitem(sys.modules, "wandb", SimpleNamespace(run=SimpleNamespace(step=0, log=log)))
    monkeypatch.setitem(sys.modules, "mlflow", SimpleNamespace(active_run=lambda: None))
    trackers = Trackers()
    with pytest.warns(UserWarning, match="nothing more goes to wandb: OSError: no disk"):
        trackers.log(FIGURES, 1)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        trackers.log(FIGURES, 2)
    assert len(calls) == 1


def test_figures_go_along_with_the_programs_own_steps(monkeypatch):
    run = SimpleNamespace(step=5, logged=[])
    run.log = lambda data, commit: run.logged.append(commit)
    monkeypatch.setitem(sys.modules, "wandb", SimpleNamespace(run=run))
    trackers = Trackers()
    trackers.log(FIGURES, 1)
    run.step = 6  # the program has logged
    trackers.log(FIGURES, 2)
    trackers.log(FIGURES, 3)  # and then no more
    assert run.logged == [False, False, True]


@pytest.fixture
def mlflow(tmp_path, monkeypatch):
    """MLflow with a store of files."""
    monkeypatch.setenv("MLFLOW_ALLOW_FILE_STORE", "true")
    mlflow = pytest.importorskip("mlflow")
    mlflow.set_tracking_uri((tmp_path / "mlruns").as_uri())
    mlflow.set_experiment("legroom")
    return mlflow


@pytest.mark.extras
def test_mlflow_has_them_in_its_local_store(mlflow):
    Trackers().log(FIGURES, 1)  # no run: nothing is started
    assert mlflow.active_run() is None
    with mlflow.start_run() as run:
        Trackers().log(FIGURES, 2048)
    history = mlflow.MlflowClient().get_metric_history(run.info.run_id, "memory/host_mb")
    assert [(metric.value, metric.step) for metric in history] == [(400.5, 2048)]


@pytest.mark.extras
def test_wandb_has_them_offline(tmp_path, monkeypatch):
    wandb = pytest.importorskip("wandb")
    monkeypatch.setenv("WANDB_MODE", "offline")
    monkeypatch.setenv("WANDB_SILENT", "true")
    run = wandb.init(dir=str(tmp_path), project="legroom")
    Trackers().log(FIGURES, 4096)
    run.log({"reward": 1.0})
    kept = dict(run.summary)
    run.finish()
    assert {name: kept[name] for name in (*FIGURES, "memory/timesteps")} == {**FIGURES, "memory/timesteps": 4096}


@pytest.mark.extras
def test_a_training_with_the_callback_logs_what_it_measured(mlflow):
    sb3 = pytest.importorskip("stable_baselines3")
    import legroom

    with mlflow.start_run() as run:
        model = sb3.PPO("MlpPolicy", "CartPole-v1", n_steps=64, batch_size=64, n_epochs=1, device="cpu")
        model.learn(128, callback=legroom.MemoryCallback(every_s=0, predict=lambda model: None))
    history = mlflow.MlflowClient().get_metric_history(run.info.run_id, "memory/host_mb")
    assert [metric.step for metric in history][:2] == [64, 128]
    assert all(50 < metric.value < 5_000 for metric in history)
