"""brax's own training epoch, taken out of `train()` before it runs.

`train()` is one function of 500 lines that builds everything and then trains; what it compiles exists only inside it.
Here it is called as a user would call it, with `jax.pmap` replaced: the first call of the epoch that it has built ends
it, by an exception that carries the epoch and its arguments. Nothing of brax is written again.

*Abstractly* (`real=False`) all of this happens while jax traces: every array is a shape, no environment is reset and
no weight is drawn, so that a run of any size is captured in the same few seconds. *Really* it does what brax does up to
that point, and the arguments are the arrays training begins with. Either way the epoch is still under `jax.pmap` over
brax's devices, so arguments have a leading axis of that length, and it donates all of them but the key.

Mirrors brax 0.14.2 under jax 0.9. jax's own names are replaced for the time of the call and only in this process.
"""

import dataclasses
import functools
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from traceback import walk_tb
from types import ModuleType, SimpleNamespace
from typing import Any
from unittest.mock import patch

import jax
import jax.numpy as jnp
from brax.training import acting
from brax.training.agents.ppo import networks as ppo_networks
from brax.training.agents.ppo import train as ppo
from brax.training.agents.sac import networks as sac_networks
from brax.training.agents.sac import train as sac
from flax import linen

from legroom.backends.base import hyper
from legroom.backends.brax.envs import TrainingEnv, make_training_env
from legroom.backends.brax.facts import (
    env_steps_per_training_step,
    episode_length_of,
    eval_envs_of,
    is_ppo,
    prefill_env_steps,
)
from legroom.errors import BadInput
from legroom.model.facts import NEUTRAL
from legroom.model.run import Run
from legroom.predicting.constraints import broken_rules

EPOCH, PREFILL, RESET_AGAIN = "training_epoch", "prefill_replay_buffer", "reset_fn_donated_env_state"
Tree = Any  # of arrays, or of their shapes


@dataclass(frozen=True)
class Captured:
    """One training epoch of brax, its first arguments, and how it evaluates."""

    run: Run
    # `(training_state, env_state, keys) -> (training_state, env_state, metrics)` for PPO; SAC has `buffer_state` before
    # the keys and before the metrics. All but the keys are donated.
    epoch: Callable[..., Any]
    arguments: tuple[Tree, ...]  # of its first call; arrays, or `jax.ShapeDtypeStruct` where captured abstractly
    reset: Callable[..., Any] | None  # `(env_state, keys) -> env_state`, PPO with `num_resets_per_eval` only
    evaluator: acting.Evaluator | None  # brax's own, abstract, which evaluates nothing; None where captured really
    make_evaluator: Callable[..., acting.Evaluator]  # makes it for real, with a key
    env: Any  # with brax's wrappers around it; `reset` and `step` are batched
    make_policy: Callable[..., Any]  # `(policy_params, deterministic=False) -> policy`
    devices: int  # the leading axis of all arguments

    @property
    def evaluation(self) -> Callable[..., Any]:
        """brax's jitted unroll of all evaluation environments; its first argument is donated."""
        assert self.evaluator is not None
        unroll: Callable[..., Any] = self.evaluator._generate_eval_unroll
        return unroll

    @property
    def evaluation_arguments(self) -> tuple[Tree, Tree, Tree]:
        """Its arguments as shapes: the states to donate, the policy's parameters, a key."""
        assert self.evaluator is not None
        state = self.evaluator._eval_state_to_donate
        one = jax.tree_util.tree_map(without_device, policy_params(self.arguments[0]))
        return state, one, without_device(self.arguments[-1])


def policy_params(training_state: Any) -> tuple[Tree, ...]:
    """Return what brax's policies take, out of a PPO or SAC training state (device axis and all)."""
    if hasattr(training_state, "policy_params"):
        return training_state.normalizer_params, training_state.policy_params
    params = training_state.params
    return training_state.normalizer_params, params.policy, params.value


def unreplicated(tree: Tree) -> Tree:
    """Return arrays without their leading device axis: those of the first device."""
    return jax.tree_util.tree_map(lambda leaf: leaf[0], tree)


def capture(run: Run, *, real: bool = False, steps: int = 1, made: TrainingEnv | None = None) -> Captured:
    """Return the training epoch that brax builds for the run.

    Args:
        real: do what brax does up to the epoch: reset environments, draw weights (SAC: fill the replay buffer).
        steps: training steps in one epoch.
        made: the run's environment, where it has been made already.

    Raises:
        BadInput: brax would refuse the run, or the environment cannot be made.
    """
    for finding in broken_rules(run):
        if finding.severity == "error":
            raise BadInput(finding.message, path=run.source, hint=finding.hint)
    library: ModuleType = ppo if is_ppo(run) else sac
    arguments = train_arguments(run, made or make_training_env(run))
    # brax divides num_timesteps by the evaluations; one evaluation makes the epoch as long as is asked for
    whole, asked = arguments["num_timesteps"], prefill_env_steps(run) + steps * env_steps_per_training_step(run)
    arguments |= {"num_evals": 1, "num_timesteps": asked}
    arguments |= (
        {"num_resets_per_eval": 0} if is_ppo(run) else {"max_replay_size": hyper(run, "max_replay_size") or whole}
    )
    recorder = _Recorder(real)
    with _replaced(library, recorder):
        try:
            # under eval_shape every array that train() makes is a tracer: nothing is allocated or executed
            library.train(**arguments) if real else jax.eval_shape(lambda: _drop(library.train(**arguments)))
        except _Reached as reached:
            first, env = reached.arguments, _env_of_train(reached)
        except NotImplementedError as error:  # SAC: observations that are dicts
            raise BadInput(f"brax cannot train this: {error}", path=run.source) from error
        else:
            raise BadInput("brax trains nothing in such a run", path=run.source, hint="total_timesteps above 0")
    return Captured(
        run=run,
        epoch=recorder.pmapped[EPOCH],
        arguments=first,
        reset=recorder.pmapped.get(RESET_AGAIN),
        evaluator=recorder.evaluator,
        make_evaluator=lambda key: acting.Evaluator(**recorder.evaluator_arguments | {"key": key}),
        env=env,
        make_policy=recorder.evaluator_arguments["eval_policy_fn"].func,
        devices=jax.tree_util.tree_leaves(first)[0].shape[0],
    )


class _Reached(Exception):
    """The epoch is called for the first time."""

    def __init__(self, arguments: tuple[Tree, ...]) -> None:
        super().__init__("reached the training epoch")
        self.arguments = arguments


@dataclass
class _Recorder:
    """What train() has made so far."""

    real: bool
    pmapped: dict[str, Callable[..., Any]] = field(default_factory=dict)
    evaluator: acting.Evaluator | None = None
    evaluator_arguments: dict[str, Any] = field(default_factory=dict)

    def pmap(self, jax_pmap: Callable[..., Any]) -> Callable[..., Any]:
        """Return a stand-in for `jax.pmap` that keeps what it is given and knows the epoch when it is called."""

        def pmap(function: Callable[..., Any], axis_name: str | None = None, **options: Any) -> Callable[..., Any]:
            name = getattr(function, "__name__", "")
            self.pmapped[name] = pmapped = jax_pmap(function, axis_name=axis_name, **options)

            def call(*arguments: Any) -> Any:
                if name == EPOCH or (name == PREFILL and not self.real):  # as many and the same arguments
                    raise _Reached(arguments if self.real else jax.tree_util.tree_map(_shape, arguments))
                return pmapped(*arguments) if self.real else jax.vmap(function, axis_name=axis_name)(*arguments)

            return call

        return pmap

    def make_evaluator(self, make: Callable[..., acting.Evaluator]) -> Callable[..., acting.Evaluator]:
        """Return a stand-in for brax's Evaluator that evaluates nothing, as `train()` would before its first epoch."""

        def evaluator(eval_env: Any, eval_policy_fn: Any, **keywords: Any) -> Any:
            self.evaluator_arguments = {"eval_env": eval_env, "eval_policy_fn": eval_policy_fn, **keywords}
            if not self.real:
                self.evaluator = made = make(**self.evaluator_arguments)
                for name in ("_eval_state_to_donate", "_key"):  # tracers must not outlive the tracing
                    setattr(made, name, jax.tree_util.tree_map(_shape, getattr(made, name)))
            return SimpleNamespace(run_evaluation=lambda *_, **__: {})

        return evaluator


@contextmanager
def _replaced(library: ModuleType, recorder: _Recorder) -> Iterator[None]:
    """Replace what train() must not really do, for as long as it runs."""
    pmap, evaluator = recorder.pmap(jax.pmap), recorder.make_evaluator(acting.Evaluator)
    with patch.object(jax, "pmap", pmap), patch.object(acting, "Evaluator", evaluator):
        if recorder.real:
            yield
            return
        # tracers have no shards, and can only be copied to devices when the trace is over
        with patch.object(jax, "device_put_replicated", _replicated), patch.object(library, "_unpmap", unreplicated):
            yield


def _env_of_train(reached: _Reached) -> Any:
    """Return the environment that train() has wrapped, a local variable of it: it is nowhere else."""
    frames = (frame for frame, _ in walk_tb(reached.__traceback__) if frame.f_code.co_name == "train")
    return next(frames).f_locals["env"]


def _replicated(tree: Tree, devices: list[Any]) -> Tree:
    return jax.tree_util.tree_map(lambda leaf: jnp.stack([jnp.asarray(leaf)] * len(devices)), tree)


def _drop(_: Any) -> None:
    """Return nothing that eval_shape would have to understand: train() returns functions."""


_struct: Callable[..., jax.ShapeDtypeStruct] = jax.ShapeDtypeStruct  # which has no annotations


def _shape(leaf: Any) -> jax.ShapeDtypeStruct:
    return _struct(jnp.shape(leaf), jnp.result_type(leaf))


def without_device(leaf: Any) -> jax.ShapeDtypeStruct:
    """Return the shape of what one device has of a leaf."""
    return _struct(leaf.shape[1:], leaf.dtype)


MAKERS: dict[bool, Callable[..., Any]] = {True: ppo_networks.make_ppo_networks, False: sac_networks.make_sac_networks}


def train_arguments(run: Run, made: TrainingEnv) -> dict[str, Any]:
    """Return the keyword arguments for brax's `train()`."""
    arguments = {key: value for key, value in run.hyperparams.items() if key not in NEUTRAL}
    return arguments | {
        "environment": made.env,
        "num_timesteps": run.total_timesteps or env_steps_per_training_step(run),
        "num_envs": run.env.n_envs,
        "num_eval_envs": eval_envs_of(run),
        "episode_length": episode_length_of(run),
        "seed": run.seed or 0,
        "wrap_env_fn": made.wrap,
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


def with_remat(factory: Callable[..., Any]) -> Callable[..., Any]:
    """Return a network factory whose networks go over an unroll step by step and keep no activations of it.

    brax applies its networks to a whole minibatch `[unroll, batch, ...]` and keeps every layer's output for the
    backward pass; here each step's layers are computed again. A checkpoint around the whole loss would save nothing:
    it would recompute all at once.
    """

    def make(observation_size: Any, *args: Any, **kwargs: Any) -> Any:
        networks = factory(observation_size, *args, **kwargs)
        axes = _axes(observation_size)
        leaner = {
            name: dataclasses.replace(getattr(networks, name), apply=_stepwise(getattr(networks, name).apply, axes))
            for name in ("policy_network", "value_network")
        }
        return dataclasses.replace(networks, **leaner)

    return make


def _axes(observation_size: Any) -> int:
    """Return the axes of the first part of one observation; brax gives sizes as numbers or shapes."""
    sizes = list(observation_size.values()) if hasattr(observation_size, "values") else [observation_size]
    return len(sizes[0]) if isinstance(sizes[0], tuple | list) else 1


def _stepwise(apply: Callable[..., Any], axes: int) -> Callable[..., Any]:
    def stepwise(normalizer_params: Any, params: Any, observation: Any) -> Any:
        # acting sees [envs, ...] and the last step's value [batch, ...]; only the loss has an unroll in front
        parts = list(observation.values()) if hasattr(observation, "values") else [observation]
        if parts[0].ndim - axes < 2:
            return apply(normalizer_params, params, observation)
        again = jax.checkpoint(lambda step: apply(normalizer_params, params, step))
        return jax.lax.map(again, observation)

    return stepwise
