"""How many steps brax would train, with which random keys, and when it would evaluate: the loop around its epoch.

brax compiles an epoch of many training steps and is deaf until it ends. Here an epoch is one training step, and the
keys are those that the steps of brax's own epoch would have had: every step splits its key in three (SAC: in two) and
hands the last on. So a training may stop, write and evaluate after every step, and still draws the numbers that
`train()` draws. A step of SAC is a moment of one step of every environment: there an epoch is as many as divide brax's
own.

Mirrors the end of `train()` in brax 0.14.2, training/agents/ppo/train.py and sac/train.py.
"""

from dataclasses import dataclass

import jax

from legroom.backends.base import hyper
from legroom.backends.brax.facts import (
    env_steps_per_training_step,
    episode_length_of,
    eval_envs_of,
    is_ppo,
    prefill_env_steps,
)
from legroom.backends.brax.state import RESETS
from legroom.model.run import Run

STEP, EPOCHS = "step", "epochs"
MOST_EVALUATIONS = 10
MOST_STEPS_AT_ONCE = 100  # of SAC: about a second of small networks on a CPU
EVALUATION_SHARE = 0.25  # of the environment steps of training, where the run does not say how often

Keys = dict[str, jax.Array]


@dataclass(frozen=True)
class Schedule:
    """The loop of one training."""

    env_steps_each: int  # environment steps of one training step
    steps_at_once: int  # training steps of one iteration, which is one call of the compiled program
    steps_per_epoch: int  # training steps that share the keys of one of brax's epochs
    epochs: int  # how many of those
    resets: bool  # environments begin anew after every epoch
    # iterations between two evaluations, the first before anything is learned; None: there are none before the end
    evaluate_every: int | None
    evaluate_last: bool  # evaluate what has been learned in the end
    prefill: int  # environment steps before the first training step

    @property
    def training_steps(self) -> int:
        return self.epochs * self.steps_per_epoch

    @property
    def env_steps(self) -> int:
        """Where it ends: brax rounds up, for every epoch on its own."""
        return self.prefill + self.training_steps * self.env_steps_each


def schedule_of(run: Run, total_timesteps: int) -> Schedule:
    """Return the loop that brax makes of the run's `num_evals` and `num_resets_per_eval`, up to that many steps."""
    each, prefill = env_steps_per_training_step(run), prefill_env_steps(run)
    evals, resets = int(hyper(run, "num_evals")), _resets(run)
    epochs = max(evals - 1, 1) * max(resets, 1)
    per_epoch = max(-(-(total_timesteps - prefill) // (epochs * each)), 1)
    at_once = 1 if is_ppo(run) else _largest_divisor(per_epoch)
    evaluates = bool(hyper(run, "run_evals")) if is_ppo(run) else True
    every: int | None = None
    if evals > 1 and evaluates:
        every = per_epoch * max(resets, 1) // at_once
    elif run.eval is not None and evaluates:
        every = _evaluate_every(run, total_timesteps, each * at_once)
    return Schedule(each, at_once, per_epoch, epochs, resets > 0, every, evaluates, prefill)


def _resets(run: Run) -> int:
    """Return how often environments begin anew between two evaluations; SAC's never do."""
    return int(hyper(run, "num_resets_per_eval")) if is_ppo(run) else 0


def _largest_divisor(steps: int) -> int:
    """Return as many training steps as are well made at once, so that whole calls make an epoch."""
    return next(each for each in range(min(steps, MOST_STEPS_AT_ONCE), 0, -1) if steps % each == 0)


def _evaluate_every(run: Run, total_timesteps: int, env_steps_each: int) -> int:
    """Return the iterations between evaluations where brax was not told: as often as is not too dear."""
    assert run.eval is not None
    if run.eval.every is not None:
        return max(run.eval.every // env_steps_each, 1)
    steps = -(-total_timesteps // env_steps_each)
    price = max(eval_envs_of(run) * (episode_length_of(run) or 1000), 1)
    often = min(max(int(EVALUATION_SHARE * total_timesteps / price), 1), MOST_EVALUATIONS)
    return -(-steps // often)


def evaluation_key(run: Run) -> jax.Array:
    """Return the key of brax's evaluator before its first evaluation."""
    return _local_keys(run)[-1]


def first_keys(run: Run, devices: int) -> Keys:
    """Return the keys before the first training step, drawn from the seed as brax draws them."""
    local, *_, of_envs, _ = _local_keys(run)
    if not is_ppo(run):  # the first are for filling the replay buffer
        local = jax.random.split(local)[1]
    keys = _next_epoch(local, devices)
    if _resets(run) > 0:
        each = jax.random.split(of_envs, run.env.n_envs)
        keys[RESETS] = each.reshape((devices, -1, *each.shape[1:]))
    return keys


def next_keys(run: Run, keys: Keys, *, steps: int = 1, epoch_ends: bool) -> Keys:
    """Return the keys after so many training steps."""
    if epoch_ends:
        following = keys | _next_epoch(keys[EPOCHS], keys[STEP].shape[0])
        if RESETS in keys:
            envs = keys[RESETS].shape[1]
            following[RESETS] = jax.vmap(lambda key: jax.random.split(key[0], envs))(keys[RESETS])
        return following
    parts = 3 if is_ppo(run) else 2
    handed_on = jax.vmap(lambda key: jax.random.split(key, parts)[-1])
    return keys | {STEP: jax.lax.fori_loop(0, steps, lambda _, key: handed_on(key), keys[STEP])}


def _local_keys(run: Run) -> jax.Array:
    """Return the keys of epochs, (SAC) of the replay buffer, of environments and of evaluations."""
    key = jax.random.PRNGKey(run.seed or 0)
    if not is_ppo(run):  # the other half randomises environments, which PPO draws elsewhere
        key = jax.random.split(key)[0]
    _, local = jax.random.split(key)
    return jax.random.split(jax.random.fold_in(local, jax.process_index()), 3 if is_ppo(run) else 4)


def _next_epoch(local: jax.Array, devices: int) -> Keys:
    of_epoch, local = jax.random.split(local)
    return {STEP: jax.random.split(of_epoch, devices), EPOCHS: local}
