"""The fighter, put right: every callback is handed on, and evaluation has its own environment."""

import settings as s
from arena import Arena
from stable_baselines3 import PPO
from stable_baselines3.common.callbacks import CallbackList, CheckpointCallback, EvalCallback
from stable_baselines3.common.vec_env import DummyVecEnv, SubprocVecEnv, VecFrameStack


def build(rank):
    return lambda: Arena(seed=rank)


def stacked(cls, count):
    return VecFrameStack(cls([build(i) for i in range(count)]), n_stack=4)


def main():
    env = stacked(SubprocVecEnv, s.NUM_ENVS)
    eval_env = stacked(DummyVecEnv, 1)
    freq = max(s.SAVE_EVERY // s.NUM_ENVS, 1)
    callbacks = CallbackList(
        [
            CheckpointCallback(save_freq=freq, save_path="sessions"),
            EvalCallback(eval_env, eval_freq=freq),
        ]
    )
    model = PPO("CnnPolicy", env, n_steps=s.EP_LENGTH, batch_size=2048)
    model.learn(s.TOTAL, callback=callbacks)


if __name__ == "__main__":
    main()
