"""The knob that makes brax's training step slower and leaner leaves its mathematics alone."""

from __future__ import annotations

from typing import Any

import pytest

jax = pytest.importorskip("jax")
pytest.importorskip("brax")

import jax.numpy as jnp  # noqa: E402
from brax.training.agents.ppo import networks  # noqa: E402

from legroom.backends.brax.capture import capture, with_remat  # noqa: E402
from legroom.model.run import Run  # noqa: E402

SIZES = {"policy_hidden_layer_sizes": (8,), "value_hidden_layer_sizes": (8,)}


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


def test_it_goes_into_the_training_step_that_brax_builds() -> None:
    run = Run.model_validate({
        "algo": "PPO", "backend": "brax", "env": {"id": "fast", "n_envs": 4}, "total_timesteps": 12,
        "hyperparams": {"batch_size": 2, "num_minibatches": 2, "unroll_length": 3, "episode_length": 6},
        "policy": {"kwargs": {name: list(sizes) for name, sizes in SIZES.items()}},
    })  # fmt: skip
    leaner = run.replace(memory=run.memory.model_copy(update={"activation_checkpointing": True}))
    captured, plain = capture(leaner), capture(run)
    text = captured.epoch.lower(*captured.arguments).as_text()
    assert len(text) > len(plain.epoch.lower(*plain.arguments).as_text())  # loops where there were none
