"""Ways for an SB3 run to use free memory: more environments and longer rollouts, or a larger replay buffer."""

from __future__ import annotations

from legroom.backends.base import algorithm_of, hyper
from legroom.backends.sb3.stored import rollout_samples
from legroom.fitting.changes import with_settings
from legroom.fitting.rungs import larger_replay
from legroom.model.knob import Growth
from legroom.model.run import Run

# A run that is as short as a few rollouts learns nothing, however varied each of them is.
FEWEST_ITERATIONS = 10


def ways_to_grow(run: Run) -> tuple[Growth, ...]:
    """Return what can be made larger; an evolution strategy has nothing."""
    family, total = algorithm_of(run).family, run.total_timesteps
    if family == "off-policy":
        return (larger_replay(run, "buffer_size"),)
    if family == "on-policy":
        bound = f"at least {FEWEST_ITERATIONS} rollouts are left in the run's total" if total else ""
        more = "more environments: more, and more varied, samples per update"
        return (
            Growth(more, lambda factor: _more_envs(run, factor), bound),
            Growth("longer rollouts: more samples per update", lambda factor: _longer_rollout(run, factor)),
        )
    return ()


def _more_envs(run: Run, factor: float) -> Run | None:
    """Return the run with about so many times the environments; the minibatch still divides the rollout."""
    envs = int(run.env.n_envs * factor)
    size = hyper(run, "batch_size")
    while size and envs > run.env.n_envs and hyper(run, "n_steps") * envs % size:
        envs -= 1
    return _long_enough(with_settings(run, env={"n_envs": envs}))


def _longer_rollout(run: Run, factor: float) -> Run | None:
    """Return the run with about so many times the steps per rollout; the minibatch still divides it."""
    steps, size = int(hyper(run, "n_steps") * factor), hyper(run, "batch_size")
    while size and steps > hyper(run, "n_steps") and steps * run.env.n_envs % size:
        steps -= 1
    return _long_enough(with_settings(run, hyperparams={"n_steps": steps}))


def _long_enough(run: Run) -> Run | None:
    total = run.total_timesteps
    return run if total is None or rollout_samples(run) * FEWEST_ITERATIONS <= total else None
