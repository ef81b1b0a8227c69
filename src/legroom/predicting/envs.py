"""Predict the environments: the instances, the arrays of their spaces, and the observations on their way.

An observation exists several times between an environment and the buffer: in the environment, in the vector
environment's own array, in the copy handed out, as the last and the new one, and in wrappers that stack or normalise.
For vectors that is nothing; for a mine of 14 MB per observation it is hundreds of megabytes.

A gymnasium Box holds its bounds as arrays of its own shape: two of its dtype and two of bool.

Mirrors DummyVecEnv, SubprocVecEnv, VecFrameStack, VecTransposeImage and VecNormalize of stable-baselines3 2.9.2 and
`Box` of gymnasium 1.2.
"""

from __future__ import annotations

from collections.abc import Iterator

from legroom.model.evidence import Evidence
from legroom.model.facts import n_workers, spaces_of
from legroom.model.footprint import Item, Known, Phase, Place
from legroom.model.run import Run
from legroom.model.stored import (
    COPIES_IN_TRAINER,
    bounds_nbytes,
    is_sb3,
    normalizes_observations,
    observation_elements,
    observation_nbytes,
    wrapper_bounds_nbytes,
)

FLOAT64 = 8
STEPPING = (Phase.COLLECT, Phase.UPDATE, Phase.CHECKPOINT)
# The environment's observation, the pickled bytes and the buffer they were written to.
COPIES_IN_WORKER = 3
NORMALIZE_TEMPORARIES = 3  # difference, quotient and clipped array, all float64


def envs_items(run: Run, evidence: Evidence) -> Iterator[Item]:
    """Yield environment instances, bounds of spaces, and observations between environment and buffer."""
    if not is_sb3(run):
        return
    observation, _ = spaces_of(run)
    in_worker = run.env.workers != "dummy"
    place = Place.WORKER if in_worker else Place.HOST
    envs = run.env.n_envs
    yield from instance_items("env", run, evidence, envs, place)

    each = observation.nbytes
    bounds = bounds_nbytes(observation)
    yield Item("env.space bounds", bounds, place, "low, high and two masks per Box, in every instance", count=envs)
    in_trainer = wrapper_bounds_nbytes(run) + (bounds if in_worker else 0)
    yield Item("env.space bounds in the trainer", in_trainer, Place.HOST, "those of wrappers and of the vector env")
    why = f"{COPIES_IN_TRAINER} copies on the way from {envs:,} envs to the buffer"
    yield Item(
        "env.observations in flight", COPIES_IN_TRAINER * envs * observation_nbytes(run), Place.HOST, why, STEPPING
    )
    if in_worker:
        why = "the observation, its pickle, and the pickle's buffer"
        per_worker = COPIES_IN_WORKER * each * -(-envs // n_workers(run))
        yield Item("env.observations in a worker", per_worker, place, why, STEPPING, n_workers(run))
    if (run.env.frame_stack or 1) > 1:
        stacked = 2 * envs * each * run.env.frame_stack  # type: ignore[operator]
        yield Item("env.frame stack", stacked, Place.HOST, "VecFrameStack's array, and np.roll's new one")
    if normalizes_observations(run):
        numbers = observation_elements(run)
        moments = 2 * FLOAT64 * numbers
        temporaries = NORMALIZE_TEMPORARIES * FLOAT64 * envs * numbers + envs * observation_nbytes(run)
        why = "VecNormalize: mean and variance in float64, the original observations, temporaries in float64"
        yield Item("env.normalize", moments + temporaries, Place.HOST, why, STEPPING)


def instance_items(prefix: str, run: Run, evidence: Evidence, envs: int, place: Place) -> Iterator[Item]:
    """Yield the environment objects themselves, as far as anyone knows their size."""
    if run.env.nbytes is not None:
        why, known, nbytes = "said by the run file", Known.DEFAULT, run.env.nbytes
    elif evidence.env_nbytes is not None:
        why, known, nbytes = "measured by building one", Known.MEASURED, evidence.env_nbytes
    else:
        return
    yield Item(f"{prefix}.instance", nbytes, place, why, count=envs, known=known, error=nbytes // 10)
