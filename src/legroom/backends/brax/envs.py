"""The environment of a brax run by its id: `module:Class`, one of brax's own ("ant"), or one of MuJoCo Playground's.

brax wraps an environment itself before it trains on it (batching, episode length, automatic reset). Playground's are
no brax environments and bring a wrapper of their own for the purpose; `TrainingEnv.wrap` is what is handed to brax.
"""

import difflib
import functools
from collections.abc import Callable
from dataclasses import dataclass
from importlib import import_module
from importlib.util import find_spec
from typing import Any

from brax import envs as brax_envs

from legroom.backends.brax.leaner import stepped_in_chunks
from legroom.environments.objects import makes_env, package_of, resolve_object
from legroom.environments.own_code import registered_packages
from legroom.errors import BadInput, MissingExtra
from legroom.model.run import Run

PLAYGROUND = "mujoco_playground"
MODELS = "Playground downloads models of robots when one is first made: make it once where there is a network"
LONGEST_MESSAGE = 300  # characters; MuJoCo quotes whole elements of a model


@dataclass(frozen=True)
class TrainingEnv:
    """One environment as its class makes it, and brax's `wrap_env_fn` for it; None is brax's own wrapper."""

    env: Any
    wrap: Callable[..., Any] | None = None


def make_training_env(run: Run) -> TrainingEnv:
    """Return the environment that the run names, stepped in chunks where the run has them.

    Raises:
        BadInput: there is none of that name, or it cannot be made, in its own words.
        MissingExtra: the package that has it is not installed.
    """
    made, chunk = _whole(run), run.memory.env_chunk
    if chunk is None:
        return made
    if made.wrap is not None:
        raise BadInput("memory.env_chunk needs an environment that brax itself wraps", path=run.source)
    return TrainingEnv(made.env, functools.partial(stepped_in_chunks, chunk=chunk))


def _whole(run: Run) -> TrainingEnv:
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
