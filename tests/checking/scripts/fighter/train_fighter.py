"""Train the fighter from its screen."""

from pathlib import Path

from arena import Arena
from settings import BATCH_SIZE, EP_LENGTH, FRAME_STACK_SIZE, N_EPOCHS, NUM_ENVS, SAVE_FREQ, TOTAL_TIMESTEPS
from settings import SAVE_REPLAY_BUFFER
from stable_baselines3 import PPO
from stable_baselines3.common.callbacks import CallbackList, CheckpointCallback, EvalCallback
from stable_baselines3.common.monitor import Monitor
from stable_baselines3.common.vec_env import SubprocVecEnv, VecFrameStack

OUT = Path("sessions")


def make_env(rank):
    def _init():
        return Monitor(Arena(seed=rank))

    return _init


def main():
    env = SubprocVecEnv([make_env(i) for i in range(NUM_ENVS)])
    env = VecFrameStack(env, n_stack=FRAME_STACK_SIZE)

    checkpoint_callback = CheckpointCallback(
        save_freq=SAVE_FREQ,
        save_path=str(OUT),
        save_replay_buffer=SAVE_REPLAY_BUFFER,
    )
    eval_callback = EvalCallback(env, best_model_save_path=str(OUT / "best"), eval_freq=SAVE_FREQ)
    callback_list = CallbackList([checkpoint_callback])

    model = PPO("CnnPolicy", env, n_steps=EP_LENGTH, batch_size=BATCH_SIZE, n_epochs=N_EPOCHS, verbose=1)
    model.learn(total_timesteps=TOTAL_TIMESTEPS, callback=callback_list)


if __name__ == "__main__":
    main()
