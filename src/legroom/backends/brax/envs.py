"""The environment of a brax run by its id: `module:Class`, one of brax's own ("ant"), or one of MuJoCo Playground's.

brax wraps an environment itself before it trains on it (batching, episode length, automatic reset). Playground's are
no brax environments and bring a wrapper of their own for the purpose; `TrainingEnv.wrap` is what is handed to brax.

*Episodes*: brax reports losses; what the agent achieves shows in evaluations only, which are rare because they are
dear. Each environment therefore counts its finished episodes in its own state, three numbers that nothing else reads;
they are taken out, and set to zero, between two training steps.
"""

import difflib
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from importlib import import_module
from importlib.util import find_spec
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from brax import envs as brax_envs
from brax.envs.base import State, Wrapper
from brax.envs.wrappers import training as brax_training

from legroom.environments.objects import makes_env, package_of, resolve_object
from legroom.environments.own_code import registered_packages
from legroom.errors import BadInput, MissingExtra
from legroom.model.run import Run

PLAYGROUND = "mujoco_playground"
MODELS = "Playground downloads models of robots when one is first made: make it once where there is a network"
FINISHED = "legroom_finished"
WINDOW = 100  # episodes, as SB3 has it
LONGEST_MESSAGE = 300  # characters; MuJoCo quotes whole elements of a model


@dataclass(frozen=True)
class TrainingEnv:
    """One environment as its class makes it, and brax's `wrap_env_fn` for it; None is brax's own wrapper."""

    env: Any
    wrap: Callable[..., Any] | None = None


def make_training_env(run: Run) -> TrainingEnv:
    """Return the environment that the run names.

    Raises:
        BadInput: there is none of that name, or it cannot be made, in its own words.
        MissingExtra: the package that has it is not installed.
    """
    env_id = run.env.id
    if env_id is None:
        hint = "--like RUN, such as --like robot:default, or --set env.id=NAME: a brax name (ant), or module:Class"
        raise BadInput("a brax run needs env.id", path=run.source, hint=hint)
    if run.env.wrappers or run.env.frame_stack or run.env.normalize:
        raise BadInput(
            "env.wrappers, frame_stack and normalize are gymnasium's; brax wraps environments itself",
            path=run.source, hint="hyperparams.normalize_observations, and the rest inside the environment",
        )  # fmt: skip
    if ":" in env_id:
        # of a registered package, which needs no trust, only its environments
        base = _kinds() if package_of(env_id) in registered_packages(run) else None
        return _checked(run, _made(run, makes_env(env_id, resolve_object(env_id), base)))
    if env_id in brax_envs._envs:
        return TrainingEnv(_made(run, brax_envs._envs[env_id]))
    return _playground(run, env_id)


def _made(run: Run, factory: Callable[..., Any], hint: str = "") -> Any:
    try:
        return factory(**run.env.kwargs)
    except (BadInput, MissingExtra):
        raise
    except Exception as error:  # a model's XML, an unknown argument: whatever it is, it is the user's to see
        text = " ".join(f"{type(error).__name__}: {error}".split())
        raise BadInput(f"env {run.env.id!r} raised {text[:LONGEST_MESSAGE]}", path=run.source, hint=hint) from error


def _kinds() -> tuple[type, ...]:
    """Return the base classes of environments that can be trained on."""
    playground = (import_module(PLAYGROUND).MjxEnv,) if find_spec(PLAYGROUND) is not None else ()
    return (brax_envs.Env, *playground)


def _checked(run: Run, env: Any) -> TrainingEnv:
    if isinstance(env, brax_envs.Env):
        return TrainingEnv(env)
    if find_spec(PLAYGROUND) is not None:
        playground = import_module(PLAYGROUND)
        if isinstance(env, playground.MjxEnv):
            return TrainingEnv(env, playground.wrapper.wrap_for_brax_training)
    raise BadInput(
        f"env {run.env.id!r} made an object of type {type(env).__name__}, which is not a brax environment",
        path=run.source, hint="subclass brax.envs.Env",
    )  # fmt: skip


def _playground(run: Run, name: str) -> TrainingEnv:
    known = list(brax_envs._envs)
    if find_spec(PLAYGROUND) is not None:
        playground = import_module(PLAYGROUND)
        names = [*playground.registry.ALL_ENVS]
        if name in names:
            has_physics = "impl" in playground.registry.get_default_config(name)
            physics = {"config_overrides": {"impl": "jax"}} if has_physics else {}  # as its own training script has it
            load = playground.registry.load
            env = _made(run, lambda **kwargs: load(name, **{**physics, **kwargs}), hint=MODELS)
            return TrainingEnv(env, playground.wrapper.wrap_for_brax_training)
        known += names
    close = difflib.get_close_matches(name, known, n=1)
    where = "" if find_spec(PLAYGROUND) else "; MuJoCo Playground's are not installed"
    hint = f"did you mean {close[0]!r}?" if close else f"one of {', '.join(sorted(brax_envs._envs))}{where}"
    raise BadInput(f"brax has no environment {name!r}", path=run.source, hint=hint)


class CountsEpisodes(Wrapper):
    """Around brax's own wrappers: sums up what episodes had brought when they ended."""

    def reset(self, rng: jax.Array) -> State:
        state = self.env.reset(rng)
        zeros = jnp.zeros_like(state.done, dtype=jnp.float32)
        state.info[FINISHED] = {"episodes": zeros, "reward": zeros, "length": zeros}
        return state

    def step(self, state: State, action: jax.Array) -> State:
        before = state.info[FINISHED]
        state = self.env.step(state, action)
        ended, figures = state.info["episode_done"], state.info["episode_metrics"]
        state.info[FINISHED] = {
            "episodes": before["episodes"] + ended,
            "reward": before["reward"] + ended * figures["sum_reward"],
            "length": before["length"] + ended * figures["length"],
        }
        return state


def counting_episodes(wrap: Callable[..., Any] | None) -> Callable[..., Any]:
    """Return brax's `wrap_env_fn` that wraps as `wrap` does (None: as brax does), and counts episodes."""

    def wrapped(env: Any, **settings: Any) -> Any:
        return CountsEpisodes((wrap or brax_training.wrap)(env, **settings))

    return wrapped


class Episodes:
    """The last episodes of a training, as sums per training step."""

    def __init__(self, sums: list[list[float]] | None = None) -> None:
        self._sums: deque[list[float]] = deque(sums or [])

    def take(self, env_state: Any) -> Any:
        """Add what the environments have counted, and return their state with the counts at zero."""
        counts = env_state.info[FINISHED]
        sums = [float(np.sum(np.asarray(counts[name], np.float64))) for name in ("episodes", "reward", "length")]
        if sums[0] == 0:
            return env_state
        self._sums.append(sums)
        while len(self._sums) > 1 and sum(each[0] for each in self._sums) - self._sums[0][0] >= WINDOW:
            self._sums.popleft()
        return env_state.replace(info=env_state.info | {FINISHED: jax.tree.map(jnp.zeros_like, counts)})

    @property
    def count(self) -> int:
        return int(sum(each[0] for each in self._sums))

    @property
    def reward_mean(self) -> float | None:
        return self._mean(1)

    @property
    def length_mean(self) -> float | None:
        return self._mean(2)

    @property
    def sums(self) -> list[list[float]]:
        """Plain data that makes the same `Episodes` again."""
        return [list(each) for each in self._sums]

    def _mean(self, at: int) -> float | None:
        return sum(each[at] for each in self._sums) / self.count if self.count else None
