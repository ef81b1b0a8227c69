"""The two knobs that make brax's training step slower and leaner leave its mathematics alone."""

from __future__ import annotations

import functools
from typing import Any

import pytest

jax = pytest.importorskip("jax")
pytest.importorskip("brax")

import jax.numpy as jnp  # noqa: E402
from brax import envs  # noqa: E402
from brax.envs.wrappers.training import wrap  # noqa: E402
from brax.training.agents.ppo import networks  # noqa: E402

from legroom.backends.brax.capture import capture, with_remat  # noqa: E402
from legroom.backends.brax.envs import (  # noqa: E402
    TrainingEnv,
    mapped_in_chunks,
    stepped_in_chunks,
)
from legroom.model.run import Run  # noqa: E402

SIZES = {"policy_hidden_layer_sizes": (8,), "value_hidden_layer_sizes": (8,)}


@pytest.mark.parametrize("chunk", [2, 3, 7])  # of 7 environments: with a rest, with a smaller rest, all at once
def test_environments_in_chunks_are_stepped_as_all_at_once(chunk: int) -> None:
    keys = jax.random.split(jax.random.PRNGKey(3), 7)
    actions = jnp.linspace(-1, 1, 7)[:, None]
    results = []
    for wrapped in (
        wrap(envs.get_environment("fast"), 5),
        stepped_in_chunks(envs.get_environment("fast"), 5, 1, chunk=chunk),
    ):
        state = wrapped.reset(keys)
        for _ in range(6):  # beyond the end of an episode
            state = wrapped.step(state, actions)
        results.append(jax.tree_util.tree_leaves(state))
    assert all(bool((a == b).all()) for a, b in zip(*results, strict=True))


def test_parts_of_a_state_that_are_empty_are_no_obstacle() -> None:
    tree = {"position": jnp.arange(10.0).reshape(5, 2), "nothing": jnp.zeros((5, 0)), "count": jnp.arange(5)}
    found = mapped_in_chunks(lambda one: jax.tree.map(lambda leaf: leaf + 1, one), tree, 2)
    assert all(bool((found[name] == leaf + 1).all()) and found[name].shape == leaf.shape for name, leaf in tree.items())


def test_networks_that_keep_no_activations_have_the_same_values_and_gradients() -> None:
    observation = jax.random.normal(jax.random.PRNGKey(1), (5, 4, 3))  # unroll, batch, size
    results = []
    for factory in (networks.make_ppo_networks, with_remat(networks.make_ppo_networks)):
        policy = factory((3,), 2, **SIZES).policy_network
        params = policy.init(jax.random.PRNGKey(2))

        def loss(params: Any, policy: Any = policy) -> Any:
            return jnp.square(policy.apply(None, params, observation)).sum()

        results.append(jax.tree_util.tree_leaves(jax.value_and_grad(loss)(params)))
        assert policy.apply(None, params, observation[0]).shape == (4, 4)  # acting sees no unroll
    for plain, leaner in zip(*results, strict=True):
        assert jnp.allclose(plain, leaner, rtol=1e-5, atol=1e-6)


def test_both_go_into_the_training_step_that_brax_builds() -> None:
    run = Run.model_validate({
        "algo": "PPO", "backend": "brax", "env": {"id": "fast", "n_envs": 4}, "total_timesteps": 12,
        "hyperparams": {"batch_size": 2, "num_minibatches": 2, "unroll_length": 3, "episode_length": 6},
        "policy": {"kwargs": {name: list(sizes) for name, sizes in SIZES.items()}},
        "memory": {"activation_checkpointing": True},
    })  # fmt: skip
    made = TrainingEnv(envs.get_environment("fast"), functools.partial(stepped_in_chunks, chunk=2))
    captured = capture(run, made=made, training_steps_per_epoch=1)
    text = captured.epoch.lower(*captured.arguments).as_text()
    plain = capture(run.replace(memory=run.memory.model_copy(update={"activation_checkpointing": None})))
    assert len(text) > len(plain.epoch.lower(*plain.arguments).as_text())  # loops where there were none
