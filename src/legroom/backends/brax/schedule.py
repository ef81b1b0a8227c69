"""How many steps brax would train, with which random keys, and when it would evaluate: the loop around its epoch.

brax compiles an epoch of many training steps and is deaf until it ends. Here an epoch is one training step, and the
keys are those that the steps of brax's own epoch would have had: every step splits its key in three and hands the third
on. So a training may stop, write and evaluate after every step, and still draws the numbers that `train()` draws.

Mirrors the end of `train()` in brax 0.14.2, training/agents/ppo/train.py.
"""

from dataclasses import dataclass

import jax

from legroom.backends.base import hyper
from legroom.backends.brax.facts import env_steps_per_training_step, episode_length_of, eval_envs_of
from legroom.backends.brax.state import RESETS
from legroom.model.run import Run

STEP, EPOCHS = "step", "epochs"
MOST_EVALUATIONS = 10
EVALUATION_SHARE = 0.25  # of the environment steps of training, where the run does not say how often

Keys = dict[str, jax.Array]


@dataclass(frozen=True)
class Schedule:
    """The loop of one training.

    Args:
        env_steps_each: environment steps of one training step.
        steps_per_epoch: training steps that share the keys of one of brax's epochs.
        epochs: how many of those.
        resets: environments begin anew after every epoch.
        evaluate_every: training steps between two evaluations, the first before anything is learned; None: there are
            none before the end.
        evaluate_last: evaluate what has been learned in the end.
    """

    env_steps_each: int
    steps_per_epoch: int
    epochs: int
    resets: bool
    evaluate_every: int | None
    evaluate_last: bool

    @property
    def training_steps(self) -> int:
        return self.epochs * self.steps_per_epoch

    @property
    def env_steps(self) -> int:
        """Where it ends: brax rounds up, for every epoch on its own."""
        return self.training_steps * self.env_steps_each


def schedule_of(run: Run, total_timesteps: int) -> Schedule:
    """Return the loop that brax makes of the run's `num_evals` and `num_resets_per_eval`, up to that many steps."""
    each = env_steps_per_training_step(run)
    evals, resets = int(hyper(run, "num_evals")), int(hyper(run, "num_resets_per_eval"))
    epochs = max(evals - 1, 1) * max(resets, 1)
    per_epoch = -(-total_timesteps // (epochs * each))
    every: int | None = None
    if evals > 1:
        every = per_epoch * max(resets, 1)
    elif run.eval is not None:
        every = _evaluate_every(run, total_timesteps, each)
    if not hyper(run, "run_evals"):
        every = None
    return Schedule(each, per_epoch, epochs, resets > 0, every, evaluate_last=bool(hyper(run, "run_evals")))


def _evaluate_every(run: Run, total_timesteps: int, env_steps_each: int) -> int:
    """Return the training steps between evaluations where brax was not told: as often as is not too dear."""
    assert run.eval is not None
    if run.eval.every is not None:
        return max(run.eval.every // env_steps_each, 1)
    steps = -(-total_timesteps // env_steps_each)
    price = max(eval_envs_of(run) * (episode_length_of(run) or 1000), 1)
    often = min(max(int(EVALUATION_SHARE * total_timesteps / price), 1), MOST_EVALUATIONS)
    return -(-steps // often)


def evaluation_key(run: Run) -> jax.Array:
    """Return the key of brax's first evaluation."""
    return jax.random.split(_local_keys(run)[2])[1]


def first_keys(run: Run, devices: int) -> Keys:
    """Return the keys before the first training step, drawn from the seed as brax draws them."""
    local, of_envs, _ = _local_keys(run)
    keys = _next_epoch(local, devices)
    if int(hyper(run, "num_resets_per_eval")) > 0:
        each = jax.random.split(of_envs, run.env.n_envs)
        keys[RESETS] = each.reshape((devices, -1, *each.shape[1:]))
    return keys


def next_keys(keys: Keys, *, epoch_ends: bool) -> Keys:
    """Return the keys after a training step."""
    if epoch_ends:
        following = keys | _next_epoch(keys[EPOCHS], keys[STEP].shape[0])
        if RESETS in keys:
            envs = keys[RESETS].shape[1]
            following[RESETS] = jax.vmap(lambda key: jax.random.split(key[0], envs))(keys[RESETS])
        return following
    return keys | {STEP: jax.vmap(lambda key: jax.random.split(key, 3)[2])(keys[STEP])}


def _local_keys(run: Run) -> jax.Array:
    """Return the keys of epochs, of environments and of evaluations."""
    _, local = jax.random.split(jax.random.PRNGKey(run.seed or 0))
    return jax.random.split(jax.random.fold_in(local, jax.process_index()), 3)


def _next_epoch(local: jax.Array, devices: int) -> Keys:
    of_epoch, local = jax.random.split(local)
    return {STEP: jax.random.split(of_epoch, devices), EPOCHS: local}
