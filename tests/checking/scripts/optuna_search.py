"""A search over hyperparameters: a trial's callback derives from EvalCallback and is used."""

import optuna
from stable_baselines3 import A2C
from stable_baselines3.common.callbacks import EvalCallback
from stable_baselines3.common.env_util import make_vec_env


class TrialEvalCallback(EvalCallback):
    def __init__(self, eval_env, trial, **kwargs):
        super().__init__(eval_env=eval_env, **kwargs)
        self.trial = trial
        self.is_pruned = False

    def _on_step(self) -> bool:
        if not super()._on_step():
            return False
        self.trial.report(self.last_mean_reward, self.n_calls)
        self.is_pruned = self.trial.should_prune()
        return not self.is_pruned


def objective(trial: optuna.Trial) -> float:
    n_envs = trial.suggest_categorical("n_envs", [1, 4, 16])
    env = make_vec_env("CartPole-v1", n_envs=n_envs)
    model = A2C("MlpPolicy", env, learning_rate=trial.suggest_float("lr", 1e-5, 1e-2, log=True))
    eval_callback = TrialEvalCallback(make_vec_env("CartPole-v1"), trial, eval_freq=10_000, deterministic=True)
    try:
        model.learn(100_000, callback=eval_callback)
    except (AssertionError, ValueError):
        raise optuna.exceptions.TrialPruned() from None
    finally:
        model.env.close()
    return eval_callback.last_mean_reward


if __name__ == "__main__":
    study = optuna.create_study(pruner=optuna.pruners.MedianPruner())
    study.optimize(objective, n_trials=100)
