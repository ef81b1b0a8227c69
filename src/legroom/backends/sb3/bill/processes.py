"""Predict the processes of a run: interpreter and libraries, workers, environments, observations on their way.

What processes need before they do anything was measured on this machine (`base_figures`), because it depends on
versions and builds only. A worker costs what it adds to the tree: its own copies of everything it imports, while the
libraries' mapped pages are shared.

An observation exists several times between an environment and the buffer: in the environment, in the vector
environment's own array, in the copy handed out, as the last and the new one, and in wrappers that stack or normalise.
For vectors that is nothing; for a mine of 14 MB per observation it is hundreds of megabytes.

A gymnasium Box holds its bounds as arrays of its own shape: two of its dtype and two of bool.

Mirrors DummyVecEnv, SubprocVecEnv, VecFrameStack, VecTransposeImage and VecNormalize of stable-baselines3 2.9.2 and
`Box` of gymnasium 1.2.
"""

from collections.abc import Iterator
from dataclasses import replace

from legroom.backends.base import algorithm_of
from legroom.backends.sb3.base_figures import BaseFigures
from legroom.backends.sb3.stored import (
    COPIES_IN_TRAINER,
    bounds_nbytes,
    normalizes_observations,
    observation_elements,
    observation_nbytes,
    wrapper_bounds_nbytes,
)
from legroom.model.evidence import EnvMemory, Evidence
from legroom.model.facts import n_workers, spaces_of, trained_by_legroom
from legroom.model.footprint import Item, Known, Phase, Place
from legroom.model.run import Run

# What `legroom train` has in the process that trains, beside SB3: its modules, its threads, and what writes
# checkpoints; torch's compiler, which it does without, is not counted. PPO on CartPole 17.2 and 17.3 MB, on Hopper 12.9
# and 16.2, DQN 16.5 and 16.5, SAC on HalfCheetah 12.5 and 20.8 (2026-11-17, each against the same script without
# legroom, both with the compiler; `bench.accuracy_own` of eca25f63).
OWN, OWN_ERROR = 16_500_000, 4_000_000
FLOAT64 = 8
SLOTS = 2  # sharing.vec_env: SB3 stores the last observation after the next step
COPIES_OF_WRAPPED = 2  # the last and the new one
STEPPING = (Phase.COLLECT, Phase.UPDATE, Phase.CHECKPOINT)
# The environment's observation, the pickled bytes and the buffer they were written to.
COPIES_IN_WORKER = 3
IMPORTS_ERROR = 0.15  # of imported modules: malloc's and Python's arenas fill differently in another process
TYPICAL_ERROR = 0.5  # of what packages import that was not measured here
NOT_SEEN_ERROR = 60_000_000  # modules of MuJoCo, ALE or pandas with their libraries; data may be more, and no one knows
NORMALIZE_TEMPORARIES = 3  # difference, quotient and clipped array, all float64


def runtime_items(run: Run, evidence: Evidence) -> Iterator[Item]:
    """Yield the training process's base and, with worker processes, theirs."""
    base: BaseFigures = evidence.base
    versions = ", ".join(f"{name} {version}" for name, version in base.versions.items() if name != "numpy")
    why = f"interpreter, imported libraries and torch's own state after a first update ({versions})"
    nbytes, error = base.trainer, base.errors["trainer"]
    if algorithm_of(run).family == "evolution" and base.without_updates:
        why, nbytes = f"interpreter and imported libraries, without an optimizer ({versions})", base.without_updates
        error = base.errors.get("without_updates", error)
    elif trained_by_legroom(run) and base.without_compiler and not (evidence.net and evidence.net.compiles):
        why = f"{why}, without torch's compiler"
        nbytes, error = base.without_compiler, base.errors.get("without_compiler", error)
    yield Item(
        "runtime.base", nbytes, Place.HOST, why, known=base.known, error=error, mapped=min(base.libraries, nbytes)
    )
    if trained_by_legroom(run):
        yield Item("runtime.legroom", OWN, Place.HOST, "of legroom train itself", known=Known.DEFAULT, error=OWN_ERROR)
    yield from worker_items("runtime", run.env.workers, n_workers(run), run.env.start_method, base)
    if run.env.workers == "subproc":
        yield from helper_items("runtime", run.env.start_method, base)


def worker_items(prefix: str, workers: str, count: int, method: str | None, base: BaseFigures) -> Iterator[Item]:
    """Yield what `count` environment processes add by existing."""
    if workers == "dummy" or not count:
        return
    if workers == "light" and count > 1 and base.light_forked:
        why, error = "numpy and gymnasium, imported once for all workers", base.errors.get("light_worker", 0)
        yield Item(f"{prefix}.worker template", base.light_worker, Place.WORKER, why, known=base.known, error=error)
        figure, why = "light_forked", "forked from a process with numpy and gymnasium: the pages it writes to"
    elif workers == "light":
        figure, why = "light_worker", "a process with numpy and gymnasium, without torch"
    elif method == "fork":
        figure, why = "fork_worker", "forked: shares the trainer's pages until it writes to them"
    else:
        figure, why = "worker", "an SB3 worker imports torch again to unpickle its environment"
    nbytes, error = getattr(base, figure), base.errors.get(figure, 0)
    yield Item(f"{prefix}.worker imports", nbytes, Place.WORKER, why, count=count, known=base.known, error=error)


def helper_items(prefix: str, method: str | None, base: BaseFigures) -> Iterator[Item]:
    """Yield what workers need together: the processes multiprocessing starts for itself, or the pages of a fork."""
    if method == "fork":
        why = "pages the trainer has replaced since it forked its workers, which still use the old ones"
        error = base.errors.get("fork_shared", 0)
        yield Item(f"{prefix}.shared by workers", base.fork_shared, Place.WORKER, why, known=base.known, error=error)
        return
    why = "multiprocessing's forkserver and resource tracker"
    nbytes = base.helpers
    if method == "spawn":  # no forkserver then; the two are alike
        nbytes, why = base.helpers // 2, "multiprocessing's resource tracker"
    error = base.errors.get("helpers", 0)
    yield Item(f"{prefix}.multiprocessing", nbytes, Place.HOST, why, known=base.known, error=error)


def envs_items(run: Run, evidence: Evidence) -> Iterator[Item]:
    """Yield environment instances, bounds of spaces, and observations between environment and buffer."""
    observation, _ = spaces_of(run)
    in_worker = run.env.workers != "dummy"
    place = Place.WORKER if in_worker else Place.HOST
    envs = run.env.n_envs
    yield from instance_items("env", run, evidence, run.env.workers, envs)
    yield from script_items(run, evidence)

    bounds = bounds_nbytes(observation)
    measured = evidence.env is not None and evidence.env.known is Known.MEASURED
    if not measured or run.env.nbytes is not None:  # else they were measured with the instance
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


def instance_items(prefix: str, run: Run, evidence: Evidence, workers: str, envs: int) -> Iterator[Item]:
    """Yield the environment objects themselves and what they import, as far as anyone knows."""
    place = Place.HOST if workers == "dummy" else Place.WORKER
    processes = 1 if workers == "dummy" else -(-envs // run.env.envs_per_worker) if prefix == "env" else envs
    if run.env.nbytes is not None:
        nbytes, error = run.env.nbytes, run.env.nbytes // 10
        yield Item(f"{prefix}.instance", nbytes, place, "from the run file", count=envs, error=error)
    elif evidence.env is not None:
        env = evidence.env
        if prefix == "eval":
            env = _beside(env, same_process=workers == run.env.workers == "dummy")
        yield from _instances(prefix, env, workers, envs, processes)
    if evidence.env_not_built:
        why = "what it imports and holds: unknown, it was not built"
        yield Item(f"{prefix}.not seen", 0, place, why, count=processes, known=Known.DEFAULT, error=NOT_SEEN_ERROR)


def _beside(env: EnvMemory, same_process: bool) -> EnvMemory:
    """Return what further environments take: files are mapped already, in one process modules are loaded, too."""
    if same_process:
        return replace(env, imports=0, mapped=0, first=env.more)
    return replace(env, mapped=0)


def _instances(prefix: str, env: EnvMemory, workers: str, envs: int, processes: int) -> Iterator[Item]:
    """Yield what was measured, or is typical: modules once per process, libraries once in all, instances."""
    measured = env.known is Known.MEASURED
    share = IMPORTS_ERROR if measured else TYPICAL_ERROR
    place = Place.HOST if workers == "dummy" else Place.WORKER
    together = -(-envs // processes)
    count, why = processes, "modules that the environment imports"
    if workers == "light" and processes > 1:
        count, why = 1, "modules that the environment imports, once in the process that workers are forked from"
    error = int(share * env.imports)
    yield Item(f"{prefix}.imports", env.imports, place, why, count=count, known=env.known, error=error)
    why = "pages of libraries and data files that the environment maps"
    error = env.mapped // 10 if measured else int(share * env.mapped)
    yield Item(f"{prefix}.mapped files", env.mapped, Place.HOST, why, known=env.known, error=error)
    nbytes = (env.first + (together - 1) * env.more) // together
    why = "measured by building and stepping it" if measured else "typical of its kind; its data are not known"
    error = nbytes // 10 + env.growth + env.doubt
    yield Item(f"{prefix}.instance", nbytes, place, why, count=envs, known=env.known, error=error)


def script_items(run: Run, evidence: Evidence) -> Iterator[Item]:
    """Yield what the script itself imports, in every process that imports it: fresh workers import it again."""
    env = evidence.env
    if env is None or not env.script + env.script_mapped + env.script_doubt:
        return
    why, error = "what the script defines, and imports besides SB3", int(IMPORTS_ERROR * env.script) + env.script_doubt
    nbytes = env.script + env.script_mapped
    yield Item("runtime.script", nbytes, Place.HOST, why, known=env.known, error=error)
    workers = n_workers(run) if run.env.workers == "subproc" and run.env.start_method != "fork" else 0
    if run.eval is not None and run.eval.workers == "subproc" and not run.eval.on_training_envs:
        workers += run.eval.n_envs if run.env.start_method != "fork" else 0
    if workers:
        why = "the same in every worker, which imports the script again"
        yield Item(
            "runtime.script in a worker", env.script, Place.WORKER, why, count=workers,
            known=env.known, error=error,
        )  # fmt: skip


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
    yield from instance_items("eval", run, evidence, workers, envs)
    bounds = bounds_nbytes(observation)
    yield Item("eval.space bounds", bounds, place, "low, high and two masks per Box, in every instance", count=envs)
    yield from in_flight_items("eval", run, workers, envs, envs)
