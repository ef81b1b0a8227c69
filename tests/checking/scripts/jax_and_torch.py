"""A simulator in JAX that feeds a network in torch on the same GPU."""

import jax
import jax.numpy as jnp
import torch

net = torch.nn.Linear(8, 2).to("cuda")
key = jax.random.PRNGKey(0)
state = jnp.zeros((1024, 8))
for _ in range(100):
    state = state + jax.random.normal(key, state.shape)
    net(torch.utils.dlpack.from_dlpack(state))
