"""`legroom.fits` and `legroom.optuna`: a tuner learns in milliseconds that a trial will not fit."""

import time

import gymnasium
import numpy as np
import pytest

import legroom
from legroom.errors import BadInput, LegroomError
from legroom.model.verdict import Budget
from legroom.units import GIB

stable_baselines3 = pytest.importorskip("stable_baselines3")


class Vectors(gymnasium.Env):
    """Observations of 8,000 floats: 32,000 bytes each, 64,000 per transition of a replay buffer."""

    observation_space = gymnasium.spaces.Box(-1, 1, (8_000,), np.float32)
    action_space = gymnasium.spaces.Discrete(2)


def test_a_replay_buffer_of_6_GB_does_not_fit_4_GiB_and_one_of_600_MB_does():
    dqn = stable_baselines3.DQN
    assert legroom.fits(dqn, "MlpPolicy", Vectors(), ram="4GiB", device="cpu", buffer_size=100_000) is False
    assert legroom.fits(dqn, "MlpPolicy", Vectors(), budget=Budget(4 * GIB), device="cpu", buffer_size=10_000) is True


def test_a_second_question_takes_milliseconds():
    ppo, env = stable_baselines3.PPO, Vectors()
    legroom.fits(ppo, "MlpPolicy", env, ram="4GiB", device="cpu", n_steps=512)  # imports
    began = time.process_time()
    for steps in range(1024, 1024 + 20 * 64, 64):
        legroom.fits(ppo, "MlpPolicy", env, ram="4GiB", device="cpu", n_steps=steps)
    assert (time.process_time() - began) / 20 < 0.1  # 10 ms on an idle machine


def test_every_python_function_has_the_same_words_for_a_budget():
    dqn, env = stable_baselines3.DQN, Vectors()
    assert legroom.fits(dqn, "MlpPolicy", env, budget="4GiB", device="cpu", buffer_size=10_000) is True  # as in 0.2
    assert legroom.fits(dqn, "MlpPolicy", env, ram="4GiB", gpu="RTX 3060", buffer_size=10_000) is True
    assert legroom.fits(dqn, "MlpPolicy", env, ram="4GiB", vram="100MiB", buffer_size=10_000) is False
    with pytest.raises(BadInput, match="ram= and budget= are both given"):
        legroom.fits(dqn, "MlpPolicy", env, ram="4GiB", budget="4GiB")
    with pytest.raises(BadInput, match="use vram= for another size"):
        legroom.rehearse(gpu="RTX 3060 13GB")


def test_an_error_names_arguments_and_no_options(tmp_path):
    (tmp_path / "run.yaml").write_text("algo: PPO\nenv: {id: 'mine_env:Mine'}\n")
    with pytest.raises(LegroomError, match="imported only with trust=True"):
        legroom.predict(str(tmp_path / "run.yaml"))
    with pytest.raises(BadInput) as refused:
        legroom.fits(str(tmp_path / "run.yaml"), ram="4GiB")
    assert 'overrides=[("env.spaces", "{observation:' in str(refused.value) and 'mode="trace"' in str(refused.value)
    assert "--" not in str(refused.value)


def test_lean_takes_a_name_and_says_what_it_does_not_know():
    model = legroom.lean("PPO", "MlpPolicy", Vectors(), n_steps=8, batch_size=8)
    assert type(model.rollout_buffer).__name__ == "LeanRolloutBuffer"
    with pytest.raises(BadInput, match="did you mean 'PPO'"):
        legroom.lean("PP0", "MlpPolicy", Vectors())
    with pytest.raises(BadInput, match="lean makes a model"):
        legroom.lean(model)


def test_an_environment_by_its_id_alone_is_refused_in_one_line():
    with pytest.raises(BadInput, match="spaces of env 'Nowhere-v0' are not known"):
        legroom.fits(stable_baselines3.PPO, "MlpPolicy", "Nowhere-v0", ram="4GiB")


def test_optuna_prunes_what_does_not_fit_and_says_what_it_needs():
    optuna = pytest.importorskip("optuna")
    from legroom.optuna import HOST, PruneUnfit

    optuna.logging.set_verbosity(optuna.logging.ERROR)
    unfit, env = PruneUnfit("4GiB"), Vectors()

    def objective(trial):
        size = trial.suggest_categorical("buffer_size", [1_000, 10_000, 100_000, 1_000_000])
        values = unfit(trial, stable_baselines3.DQN, "MlpPolicy", env, buffer_size=size, device="cpu")
        return float(values["buffer_size"])

    study = optuna.create_study(sampler=optuna.samplers.GridSampler({"buffer_size": [1_000, 10_000, 100_000]}))
    study.optimize(objective)
    by_size = {trial.params["buffer_size"]: trial for trial in study.trials}
    assert {size: trial.state.name for size, trial in by_size.items()} == {
        1_000: "COMPLETE", 10_000: "COMPLETE", 100_000: "PRUNED",
    }  # fmt: skip
    assert by_size[100_000].user_attrs[HOST] > 6_400_000_000


def test_trials_side_by_side_share_the_budget():
    pytest.importorskip("optuna")
    from legroom.optuna import PruneUnfit

    assert PruneUnfit("4GiB", n_jobs=4).budget.ram == GIB


def test_a_run_gets_its_free_savings_where_it_needs_them(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))  # nobody has measured what a step costs
    optuna = pytest.importorskip("optuna")
    from legroom.optuna import PruneUnfit

    run = legroom.read("mine:small", overrides=[("env.workers", "subproc"), ("env.n_envs", "8")])
    trial = optuna.trial.FixedTrial({})
    assert PruneUnfit("16GiB")(trial, run).env.workers == "subproc"
    assert PruneUnfit("1GiB")(trial, run).env.workers == "light"
    with pytest.raises(optuna.TrialPruned, match="does not fit: needs up to"):
        PruneUnfit("300MiB")(trial, run)
