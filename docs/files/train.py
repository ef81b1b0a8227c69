"""A training script with mistakes that cost days, for `legroom check` to find."""

from my_envs import Pixels
from stable_baselines3 import PPO
from stable_baselines3.common.callbacks import CallbackList, CheckpointCallback, EvalCallback
from stable_baselines3.common.vec_env import SubprocVecEnv, VecFrameStack

N_ENVS, N_STEPS = 8, 2048


def main():
    env = VecFrameStack(SubprocVecEnv([Pixels for _ in range(N_ENVS)]), n_stack=4)
    checkpoints = CheckpointCallback(save_freq=N_STEPS * 10, save_path="saved")
    evaluation = EvalCallback(env, eval_freq=N_STEPS * 10)
    callbacks = CallbackList([checkpoints])
    model = PPO("CnnPolicy", env, n_steps=N_STEPS, batch_size=1000)
    model.learn(total_timesteps=1_000_000, callback=callbacks)


if __name__ == "__main__":
    main()
