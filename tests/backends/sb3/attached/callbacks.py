"""PPO in worker processes that count episodes to files, evaluated and saved by callbacks on the way."""

import sys

from parts import scale, tell
from pictures import Pictures
from stable_baselines3 import PPO
from stable_baselines3.common.callbacks import BaseCallback, CheckpointCallback, EvalCallback
from stable_baselines3.common.env_util import make_vec_env
from stable_baselines3.common.monitor import Monitor
from stable_baselines3.common.vec_env import SubprocVecEnv


class Own(Pictures):
    """Defined in the script, as are the things it uses."""

    def has_torch(self):
        return "torch" in sys.modules


class Looking(BaseCallback):
    """Prints what a callback can see of the model."""

    seen = 0

    def _on_step(self):
        return True

    def _on_rollout_end(self):
        if not self.seen:
            names = sorted(vars(self.model))
            print("model", type(self.model).__name__, len(names), self.model.rollout_buffer_class.__name__)  # noqa: T201
        self.seen += 1


if __name__ == "__main__":
    env = make_vec_env(Own, 3, seed=1, monitor_dir="monitors", vec_env_cls=SubprocVecEnv)
    print("env", isinstance(env, SubprocVecEnv), env.env_is_wrapped(Monitor), env.get_attr("length"))  # noqa: T201
    env.set_attr("length", 17)
    evaluated = make_vec_env(Own, 1, seed=2)
    model = PPO("CnnPolicy", env, n_steps=32, batch_size=32, n_epochs=2, seed=3, device="cpu")
    callbacks = [
        EvalCallback(evaluated, eval_freq=40, n_eval_episodes=2, best_model_save_path="best", verbose=0),
        CheckpointCallback(32, "checkpoints"),
        Looking(),
    ]
    model.learn(scale(384, 6144), callback=callbacks)
    print("episodes", len(model.ep_info_buffer), [each["r"] for each in model.ep_info_buffer][:3])  # noqa: T201
    print("attributes", env.get_attr("length"))  # noqa: T201
    print("workers", *env.env_method("has_torch"), file=sys.stderr)  # noqa: T201
    model.save("model.zip")
    tell(model)
    env.close()
