"""The same with the preallocation off."""

import os

os.environ["XLA_PYTHON_CLIENT_PREALLOCATE"] = "false"

import jax
import jax.numpy as jnp
import torch

net = torch.nn.Linear(8, 2).to("cuda")
key = jax.random.PRNGKey(0)
state = jnp.zeros((1024, 8))
net(torch.utils.dlpack.from_dlpack(state + jax.random.normal(key, state.shape)))
