"""A brax environment that compiles in seconds: a point that drifts away unless it is held."""

import jax
import jax.numpy as jnp
from brax.envs.base import Env, State


class Point(Env):
    """Each step moves it 5 % further from the middle; an episode ends when it is lost, after 20 steps or so."""

    def reset(self, rng: jax.Array) -> State:
        at, zero = jax.random.uniform(rng, (2,), minval=-1.0, maxval=1.0), jnp.zeros(())
        return State({"at": at}, at, zero, zero, {}, {})

    def step(self, state: State, action: jax.Array) -> State:
        at = 1.05 * state.pipeline_state["at"] + 0.1 * jnp.tanh(action)
        distance = jnp.linalg.norm(at)
        lost = (distance > 2).astype(jnp.float32)
        return state.replace(pipeline_state={"at": at}, obs=at, reward=1 - distance / 2, done=lost)

    @property
    def observation_size(self) -> int:
        return 2

    @property
    def action_size(self) -> int:
        return 2

    @property
    def backend(self) -> str:
        return "none"
