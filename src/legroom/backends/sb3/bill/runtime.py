"""Predict what the processes of a run need before they do anything: interpreter and libraries.

Figures measured on this machine (`base_figures`), because they depend on versions and builds only. A worker costs what
it adds to the tree: its own copies of everything it imports, while the libraries' mapped pages are shared.
"""

from collections.abc import Iterator

from legroom.backends.base import algorithm_of
from legroom.backends.sb3.base_figures import BaseFigures
from legroom.model.evidence import Evidence
from legroom.model.facts import n_workers, trained_by_legroom
from legroom.model.footprint import Item, Known, Place
from legroom.model.run import Run

# What `legroom train` has in the process that trains, beside SB3: its modules, its threads, and what writes
# checkpoints; torch's compiler, which it does without, is not counted. PPO on CartPole 17.2 and 17.3 MB, on Hopper 12.9
# and 16.2, DQN 16.5 and 16.5, SAC on HalfCheetah 12.5 and 20.8 (2026-11-17, each against the same script without
# legroom, both with the compiler; `bench.accuracy_own` of eca25f63).
OWN, OWN_ERROR = 16_500_000, 4_000_000


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
