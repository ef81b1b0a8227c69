"""Environments for brax that compile in a moment: a point on a line, without physics."""

from __future__ import annotations

import resource
from pathlib import Path

import jax
import jax.numpy as jnp
from brax.envs.base import Env, State

MIB = 1 << 20


class Point(Env):
    """A point that drifts away unless it is held; an episode ends when it is lost.

    Args:
        scratch: every step needs so many float32 per environment for a moment.
        limit_mib: data that the process may still allocate (RLIMIT_DATA) when the environment has been made.
        nan_at: the reward is NaN from this step of an environment on, over all its episodes.
    """

    def __init__(self, scratch: int = 0, limit_mib: int | None = None, nan_at: int | None = None) -> None:
        self.scratch, self.nan_at = scratch, nan_at
        if limit_mib is not None:
            status = Path("/proc/self/status").read_text()
            data = next(int(line.split()[1]) * 1024 for line in status.splitlines() if line.startswith("VmData"))
            resource.setrlimit(resource.RLIMIT_DATA, (data + limit_mib * MIB, resource.RLIM_INFINITY))

    def reset(self, rng: jax.Array) -> State:
        at = jax.random.uniform(rng, (2,), minval=-1.0, maxval=1.0)
        zero = jnp.zeros(())
        physics = {"at": at, "rng": rng} | ({} if self.nan_at is None else {"steps": zero})
        return State(physics, at, zero, zero, {"distance": zero}, {})

    def step(self, state: State, action: jax.Array) -> State:
        physics = dict(state.pipeline_state)
        rng, noise = jax.random.split(physics["rng"])
        at = 1.05 * physics["at"] + 0.1 * jnp.tanh(action) + 0.02 * jax.random.normal(noise, (2,))
        if self.scratch:  # a sum that depends on every one of them, and is nothing
            wide = jnp.cumsum(jnp.full((self.scratch,), at[0]))
            at = at + 0.0 * jnp.min(jnp.sin(wide[::-1]) + wide)
        distance = jnp.linalg.norm(at)
        physics |= {"at": at, "rng": rng}
        reward = 1.0 - distance / 2
        if self.nan_at is not None:
            physics["steps"] += 1
            reward = jnp.where(physics["steps"] >= self.nan_at, jnp.nan, reward)
        return state.replace(
            pipeline_state=physics,
            obs=at,
            reward=reward,
            done=(distance > 2).astype(jnp.float32),
            metrics=dict(state.metrics, distance=distance),
        )

    @property
    def observation_size(self) -> int:
        return 2

    @property
    def action_size(self) -> int:
        return 2

    @property
    def backend(self) -> str:
        return "none"


class NamedPoint(Point):
    """The same with its observation under a name, as Playground's environments have it."""

    @property
    def observation_size(self) -> dict[str, tuple[int]]:
        return {"state": (2,)}
