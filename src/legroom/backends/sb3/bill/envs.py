"""Predict the environments: the instances, the arrays of their spaces, and the observations on their way.

An observation exists several times between an environment and the buffer: in the environment, in the vector
environment's own array, in the copy handed out, as the last and the new one, and in wrappers that stack or normalise.
For vectors that is nothing; for a mine of 14 MB per observation it is hundreds of megabytes.

A gymnasium Box holds its bounds as arrays of its own shape: two of its dtype and two of bool.

Mirrors DummyVecEnv, SubprocVecEnv, VecFrameStack, VecTransposeImage and VecNormalize of stable-baselines3 2.9.2 and
`Box` of gymnasium 1.2.
"""

from collections.abc import Iterator

from legroom.backends.sb3.bill.runtime import helper_items, worker_items
from legroom.backends.sb3.stored import (
    COPIES_IN_TRAINER,
    bounds_nbytes,
    normalizes_observations,
    observation_elements,
    observation_nbytes,
    wrapper_bounds_nbytes,
)
from legroom.model.evidence import Evidence
from legroom.model.facts import n_workers, spaces_of
from legroom.model.footprint import Item, Known, Phase, Place
from legroom.model.run import Run

FLOAT64 = 8
SLOTS = 2  # sharing.vec_env: SB3 stores the last observation after the next step
COPIES_OF_WRAPPED = 2  # the last and the new one
STEPPING = (Phase.COLLECT, Phase.UPDATE, Phase.CHECKPOINT)
# The environment's observation, the pickled bytes and the buffer they were written to.
COPIES_IN_WORKER = 3
NORMALIZE_TEMPORARIES = 3  # difference, quotient and clipped array, all float64


def envs_items(run: Run, evidence: Evidence) -> Iterator[Item]:
    """Yield environment instances, bounds of spaces, and observations between environment and buffer."""
    observation, _ = spaces_of(run)
    in_worker = run.env.workers != "dummy"
    place = Place.WORKER if in_worker else Place.HOST
    envs = run.env.n_envs
    yield from instance_items("env", run, evidence, envs, place)

    bounds = bounds_nbytes(observation)
    if evidence.env_nbytes is None or run.env.nbytes is not None:  # else they were measured with the instance
        yield Item("env.space bounds", bounds, place, "low, high and two masks per Box, in every instance", count=envs)
    in_trainer = wrapper_bounds_nbytes(run) + (bounds if in_worker else 0)
    yield Item("env.space bounds in the trainer", in_trainer, Place.HOST, "those of wrappers and of the vector env")
    yield from in_flight_items("env", run, run.env.workers, envs, n_workers(run))
    if (run.env.frame_stack or 1) > 1:
        stacked = 2 * envs * observation.nbytes * run.env.frame_stack  # type: ignore[operator]
        yield Item("env.frame stack", stacked, Place.HOST, "VecFrameStack's array, and np.roll's new one")
    if normalizes_observations(run):
        numbers = observation_elements(run)
        moments = 2 * FLOAT64 * numbers
        temporaries = NORMALIZE_TEMPORARIES * FLOAT64 * envs * numbers + envs * observation_nbytes(run)
        why = "VecNormalize: mean and variance in float64, the original observations, temporaries in float64"
        yield Item("env.normalize", moments + temporaries, Place.HOST, why, STEPPING)


def in_flight_items(prefix: str, run: Run, workers: str, envs: int, processes: int) -> Iterator[Item]:
    """Yield the observations between the environments and the buffer, which depend on who carries them."""
    observation, _ = spaces_of(run)
    if workers == "light":
        slots = SLOTS * envs * observation.nbytes
        why = f"{SLOTS} slots per env, written by the workers and read by the trainer in place"
        yield Item(f"{prefix}.observation slots", slots, Place.SHM, why, STEPPING)
        # what stacks, transposes or normalises makes arrays of its own
        copies = COPIES_OF_WRAPPED if observation_nbytes(run) != observation.nbytes or run.env.normalize else 0
    else:
        copies = COPIES_IN_TRAINER
    why = f"{copies} copies on the way from {envs:,} envs to the buffer"
    yield Item(f"{prefix}.observations in flight", copies * envs * observation_nbytes(run), Place.HOST, why, STEPPING)
    if workers == "dummy":
        return
    in_worker, why = COPIES_IN_WORKER, "the observation, its pickle, and the pickle's buffer"
    if workers == "light":
        in_worker, why = 1, "the observation the environment returns, before it is in its slot"
    per_worker = in_worker * observation.nbytes * -(-envs // max(processes, 1))
    yield Item(f"{prefix}.observations in a worker", per_worker, Place.WORKER, why, STEPPING, processes)


def instance_items(prefix: str, run: Run, evidence: Evidence, envs: int, place: Place) -> Iterator[Item]:
    """Yield the environment objects themselves, as far as anyone knows their size."""
    if run.env.nbytes is not None:
        why, known, nbytes = "said by the run file", Known.DEFAULT, run.env.nbytes
    elif evidence.env_nbytes is not None:
        why, known, nbytes = "measured by building one", Known.MEASURED, evidence.env_nbytes
    else:
        return
    yield Item(f"{prefix}.instance", nbytes, place, why, count=envs, known=known, error=nbytes // 10)


def evaluation_items(run: Run, evidence: Evidence) -> Iterator[Item]:
    """Yield the evaluation environments, none without `eval`: they stand beside the training ones, mostly idle."""
    if run.eval is None or run.eval.on_training_envs:
        return
    observation, _ = spaces_of(run)
    envs, workers = run.eval.n_envs, run.eval.workers
    place = Place.HOST if workers == "dummy" else Place.WORKER
    yield from worker_items("eval", workers, envs, run.env.start_method, evidence.base)
    if workers == "subproc" and run.env.workers != "subproc":  # otherwise the training workers' serve both
        yield from helper_items("eval", run.env.start_method, evidence.base)
    yield from instance_items("eval", run, evidence, envs, place)
    bounds = bounds_nbytes(observation)
    yield Item("eval.space bounds", bounds, place, "low, high and two masks per Box, in every instance", count=envs)
    yield from in_flight_items("eval", run, workers, envs, envs)
