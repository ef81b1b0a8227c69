"""Several environments, callbacks counted rightly, evaluation on an environment of its own."""

from stable_baselines3 import PPO
from stable_baselines3.common.callbacks import BaseCallback, CallbackList, CheckpointCallback, EvalCallback
from stable_baselines3.common.callbacks import StopTrainingOnRewardThreshold as Stop
from stable_baselines3.common.env_util import make_vec_env
from stable_baselines3.common.vec_env import SubprocVecEnv, VecNormalize

N_ENVS = 8
EVAL_EVERY = 20_000


class Throughput(BaseCallback):
    def _on_step(self) -> bool:
        self.logger.record("time/calls", self.n_calls)
        return True


def main() -> None:
    env = make_vec_env("HalfCheetah-v5", n_envs=N_ENVS, vec_env_cls=SubprocVecEnv)
    env = VecNormalize(env)
    eval_env = VecNormalize(make_vec_env("HalfCheetah-v5", n_envs=1), training=False, norm_reward=False)
    stop = Stop(reward_threshold=4000)
    evaluation = EvalCallback(eval_env, callback_on_new_best=stop, eval_freq=max(EVAL_EVERY // N_ENVS, 1))
    saving = CheckpointCallback(save_freq=max(100_000 // env.num_envs, 1), save_path="out")
    callbacks = [evaluation, saving]
    callbacks.append(Throughput())
    model = PPO("MlpPolicy", env, n_steps=512, batch_size=256)
    model.learn(2_000_000, callback=CallbackList(callbacks))
    env.save("out/stats.pkl")


if __name__ == "__main__":
    main()
