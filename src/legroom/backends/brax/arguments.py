"""A Run as the arguments of brax's `train()`: every name a run file may have, and nothing brax does not take."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from brax.training.agents.ppo import networks as ppo_networks
from brax.training.agents.sac import networks as sac_networks
from flax import linen

from legroom.backends.brax.envs import TrainingEnv
from legroom.backends.brax.facts import (
    env_steps_per_training_step,
    episode_length_of,
    eval_envs_of,
    is_ppo,
    prefill_env_steps,
)
from legroom.backends.brax.leaner import stepped_in_chunks, with_remat
from legroom.errors import BadInput
from legroom.model.algorithms import NEUTRAL
from legroom.model.run import Run

MAKERS: dict[bool, Callable[..., Any]] = {True: ppo_networks.make_ppo_networks, False: sac_networks.make_sac_networks}


def train_arguments(run: Run, made: TrainingEnv, training_steps_per_epoch: int | None) -> dict[str, Any]:
    """Return the keyword arguments for brax's `train()`.

    Args:
        training_steps_per_epoch: as many training steps in one epoch; None: as the run's `num_evals` divides it.
    """
    each = env_steps_per_training_step(run)
    timesteps, hyperparams = run.total_timesteps or each, dict(run.hyperparams)
    if training_steps_per_epoch is not None:
        # brax divides num_timesteps by the evaluations; one evaluation makes the epoch as long as is asked for
        if not is_ppo(run):
            hyperparams["max_replay_size"] = hyperparams.get("max_replay_size") or timesteps
        hyperparams.update(num_evals=1, num_resets_per_eval=0)
        timesteps = prefill_env_steps(run) + training_steps_per_epoch * each
        if not is_ppo(run):
            del hyperparams["num_resets_per_eval"]
    arguments = {key: value for key, value in hyperparams.items() if key not in NEUTRAL}
    wrap = made.wrap
    chunk = run.memory.env_chunk
    if chunk is not None:
        if wrap is not None:
            raise BadInput("memory.env_chunk needs an environment that brax itself wraps", path=run.source)
        wrap = functools.partial(stepped_in_chunks, chunk=chunk)
    return arguments | {
        "environment": made.env,
        "num_timesteps": timesteps,
        "num_envs": run.env.n_envs,
        "num_eval_envs": eval_envs_of(run),
        "episode_length": episode_length_of(run),
        "seed": run.seed or 0,
        "wrap_env_fn": wrap,
        "network_factory": _network_factory(run),
    }


def _network_factory(run: Run) -> Callable[..., Any]:
    kwargs = dict(run.policy.kwargs)
    activation = kwargs.get("activation")
    if isinstance(activation, str):
        kwargs["activation"] = getattr(linen, activation, None)
        if not callable(kwargs["activation"]):
            raise BadInput(f"flax has no activation {activation!r}", path=run.source, hint="swish, relu, tanh, elu …")
    factory = functools.partial(MAKERS[is_ppo(run)], **kwargs)
    return with_remat(factory) if run.memory.activation_checkpointing and is_ppo(run) else factory
