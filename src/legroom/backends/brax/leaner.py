"""Two ways to make brax's training step need less memory, at the price of time; the mathematics stay.

*Chunks of environments*: brax steps all environments by one `vmap`, and XLA keeps the temporaries of the physics for
all of them at once. `lax.map` over chunks steps so many at a time, one chunk after the other; the states stay.

*Remat of the loss*: brax applies its networks to a whole minibatch `[unroll, batch, ...]` and keeps every layer's
output for the backward pass. Here they go over the unroll one step at a time, and each step's layers are computed
again for its backward pass. A checkpoint around the whole loss would save nothing: it would recompute all at once.
"""

import dataclasses
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from brax.envs.base import Env, State, Wrapper
from brax.envs.wrappers.training import AutoResetWrapper, EpisodeWrapper


class ChunkedVmapWrapper(Wrapper):
    """brax's VmapWrapper, `chunk` environments at a time."""

    def __init__(self, env: Env, chunk: int) -> None:
        super().__init__(env)
        self.chunk = chunk

    def reset(self, rng: jax.Array) -> State:
        return mapped_in_chunks(self.env.reset, rng, self.chunk)

    def step(self, state: State, action: jax.Array) -> State:
        return mapped_in_chunks(lambda each: self.env.step(*each), (state, action), self.chunk)


def mapped_in_chunks(function: Callable[[Any], Any], tree: Any, chunk: int) -> Any:
    """Return `jax.vmap(function)(tree)`, computed for `chunk` rows at a time.

    `lax.map` has a `batch_size` that does the same, but divides by zero where an array of the tree is empty, as parts
    of an environment's state may be (jax 0.9.2).
    """
    rows = jax.tree.leaves(tree)[0].shape[0]
    whole = rows // chunk
    if rows <= chunk:
        return jax.vmap(function)(tree)
    at_once = jax.vmap(function)
    parts = [
        jax.tree.map(
            lambda leaf: leaf.reshape((whole * chunk, *leaf.shape[2:])),
            jax.lax.map(
                at_once, jax.tree.map(lambda leaf: leaf[: whole * chunk].reshape((whole, chunk, *leaf.shape[1:])), tree)
            ),
        )
    ]
    if rows % chunk:
        parts.append(at_once(jax.tree.map(lambda leaf: leaf[whole * chunk :], tree)))
    return parts[0] if len(parts) == 1 else jax.tree.map(lambda *each: jnp.concatenate(each), *parts)


def stepped_in_chunks(
    env: Env, episode_length: int, action_repeat: int, randomization_fn: object = None, *, chunk: int
) -> Wrapper:
    """Return the environment wrapped as `brax.envs.training.wrap` does it, stepped in chunks; brax's `wrap_env_fn`."""
    assert randomization_fn is None  # no run file can name one
    return AutoResetWrapper(EpisodeWrapper(ChunkedVmapWrapper(env, chunk), episode_length, action_repeat))


def with_remat(factory: Callable[..., Any]) -> Callable[..., Any]:
    """Return a network factory whose networks go over an unroll step by step and keep no activations of it."""

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
