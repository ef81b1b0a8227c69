"""What follows from a brax run alone: the numbers that brax's `train()` derives before it builds anything.

Mirrors the first lines of `train()` in brax 0.14.2, training/agents/ppo/train.py and sac/train.py.
"""

import math

from legroom.backends.base import hyper
from legroom.model.facts import Counts
from legroom.model.run import Run

LAYERS = ("policy_hidden_layer_sizes", "value_hidden_layer_sizes", "hidden_layer_sizes")  # of its networks
EVAL_ENVS = 128  # brax's own default
EPISODE_LENGTH = 1000  # of brax.envs.create and its wrapper; `train()` itself has no default and refuses


def is_ppo(run: Run) -> bool:
    """Return whether the run trains by PPO; brax's other algorithm is SAC."""
    return run.algo.upper() == "PPO"


def env_steps_per_training_step(run: Run) -> int:
    """Return the environment steps of one training step, all environments together: what one update learns from."""
    repeat = int(hyper(run, "action_repeat"))
    if not is_ppo(run):
        return repeat * run.env.n_envs
    return int(hyper(run, "batch_size") * hyper(run, "unroll_length") * hyper(run, "num_minibatches") * repeat)


def prefill_env_steps(run: Run) -> int:
    """Return the environment steps that SAC takes before its first update; none for PPO."""
    if is_ppo(run):
        return 0
    envs = run.env.n_envs
    return -(-int(hyper(run, "min_replay_size")) // envs) * envs * int(hyper(run, "action_repeat"))


def episode_length_of(run: Run) -> int:
    """Return after how many steps brax cuts an episode off."""
    return int(hyper(run, "episode_length") or run.env.episode_steps or EPISODE_LENGTH)


def eval_envs_of(run: Run) -> int:
    """Return how many environments evaluate."""
    return run.eval.n_envs if run.eval is not None else EVAL_ENVS


_DEPENDS_ON = ("batch_size", "unroll_length", "num_minibatches", "num_updates_per_batch")


def counts(run: Run) -> Counts | None:
    """Return how often things happen in PPO, whose epochs are all alike, rounded up; SAC has no such iterations."""
    if not is_ppo(run):
        return None
    samples, minibatches = env_steps_per_training_step(run), int(hyper(run, "num_minibatches"))
    iterations = None
    if run.total_timesteps is not None:
        epochs = max(int(hyper(run, "num_evals")) - 1, 1) * max(int(hyper(run, "num_resets_per_eval")), 1)
        iterations = math.ceil(run.total_timesteps / (epochs * samples)) * epochs
    updates = minibatches * int(hyper(run, "num_updates_per_batch"))
    return Counts(samples, minibatches, updates, iterations, _DEPENDS_ON)
