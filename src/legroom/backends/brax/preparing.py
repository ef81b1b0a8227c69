"""A brax run made ready to train: captured from brax's `train()`, compiled ahead of its first step, and timed.

A program that has been compiled on this machine before is taken from jax's persistent cache: compiling the robot takes
most of a minute, and a resumed training would pay it again. Small programs are kept too: brax runs dozens of them, one
by one, before it begins, and they take several seconds together.

brax draws new episodes for every evaluation, so that a resumed training would have to know how many there were. Here
every evaluation begins with the key of brax's first: nothing is kept, and two evaluations of one training are
comparable. The evaluator, its figures and their names are brax's.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import jax
from brax.training import acting

from legroom.backends.brax.capture import Captured, capture, policy_params, unreplicated
from legroom.backends.brax.envs import TrainingEnv, counting_episodes, make_training_env
from legroom.backends.brax.schedule import evaluation_key, first_keys
from legroom.backends.brax.state import Carry, networks, optimizers, without_weak_types
from legroom.machine.cache import cache_folder
from legroom.model.run import Run
from legroom.units import format_size

CACHE_VARIABLE = "JAX_COMPILATION_CACHE_DIR"


@dataclass(frozen=True)
class Prepared:
    """All that a training needs."""

    captured: Captured
    step: Callable[..., Any]  # the training steps of one iteration, compiled; donates all its arguments but the last
    first: Carry  # what it begins with; shapes only where a checkpoint says what it begins with
    trace_s: float  # how long it took to get there
    compile_s: float
    temporary_nbytes: int | None  # what the compiler says a step needs beside its arguments; None where it does not say

    def policy_params(self, training_state: Any) -> Any:
        """Return what brax's policies take, without the device axis."""
        return unreplicated(policy_params(training_state))

    def evaluate(self, training_state: Any) -> dict[str, float]:
        """Return brax's `eval/…` figures: mean and spread of every sum over an episode, and of their lengths."""
        evaluator = self.evaluator
        evaluator._key = evaluation_key(self.captured.run)
        figures = evaluator.run_evaluation(self.policy_params(training_state), training_metrics={})
        return {name: float(figure) for name, figure in figures.items()}

    @cached_property
    def evaluator(self) -> acting.Evaluator:
        return self.captured.make_evaluator(evaluation_key(self.captured.run))

    def reset(self, env_state: Any, keys: jax.Array) -> Any:
        """Return all environments at the beginning of an episode."""
        assert self.captured.reset is not None
        return without_weak_types(self.captured.reset(env_state, keys))

    def measured_items(self, carry: Carry) -> dict[str, int]:
        """Return bytes by the names that items of a bill have."""
        trees = {
            "network.weights": networks(carry.training_state),
            "optimizer.state": optimizers(carry.training_state),
            "envs.states": carry.env_state,
        }
        if carry.replay is not None:
            trees["replay"] = carry.replay
        return {name: sum(leaf.nbytes for leaf in jax.tree.leaves(tree)) for name, tree in trees.items()}

    def told(self) -> str:
        """Return in one line what it took to get ready."""
        text = f"begun and traced in {self.trace_s:.0f} s, compiled in {self.compile_s:.0f} s"
        if self.temporary_nbytes is None:
            return text
        return f"{text}; a step needs {format_size(self.temporary_nbytes)} beside its state"


def begin_envs(captured: Captured, salt: int) -> Any:
    """Return all environments at the beginning of an episode that depends on `salt`; there was no state before."""
    run, devices = captured.run, captured.devices
    key = jax.random.fold_in(jax.random.PRNGKey(run.seed or 0), salt % 2**31)
    keys = jax.random.split(key, run.env.n_envs)
    return without_weak_types(jax.pmap(captured.env.reset)(keys.reshape((devices, -1, *keys.shape[1:]))))


def use_compilation_cache() -> None:
    """Keep compiled programs beside what legroom measured on this machine, unless the user has a place for them."""
    if os.environ.get(CACHE_VARIABLE) is None:
        update: Callable[[str, Any], None] = jax.config.update
        update("jax_compilation_cache_dir", str(cache_folder() / "xla"))
        update("jax_persistent_cache_min_compile_time_secs", 0)


def make_ready(run: Run, *, begin: bool, steps: int = 1) -> Prepared:
    """Return the run, compiled.

    Args:
        steps: training steps of one call.
        begin: make the arrays it begins with; otherwise only their shapes, and no environment is reset.

    Raises:
        BadInput: brax would refuse it, or its environment cannot be made.
    """
    began = time.monotonic()
    made = make_training_env(run)
    counted = TrainingEnv(made.env, counting_episodes(made.wrap))
    captured = capture(run, real=begin, steps=steps, made=counted)
    carried = captured.arguments[:-1]
    if begin:
        carried = without_weak_types(carried)
    training_state, env_state, *replay = carried
    keys = first_keys(run, captured.devices)
    lowered = captured.epoch.lower(*carried, keys["step"])  # type: ignore[attr-defined]
    traced = time.monotonic()
    step = lowered.compile()
    compiled = time.monotonic()
    return Prepared(
        captured=captured,
        step=step,
        first=Carry(training_state, env_state, keys, *replay),
        trace_s=traced - began,
        compile_s=compiled - traced,
        temporary_nbytes=_temporary_nbytes(step),
    )


def _temporary_nbytes(step: Any) -> int | None:
    try:
        return int(step.memory_analysis().temp_size_in_bytes)
    except (AttributeError, NotImplementedError, jax.errors.JaxRuntimeError):  # not every backend analyses
        return None
