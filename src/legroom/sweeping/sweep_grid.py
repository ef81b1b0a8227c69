"""A sweep from its grid to its result: plan the trials, or find them in the folder, and have Ray train them.

A learning rate or a seed changes nothing about memory, so trials that differ only in such settings share one
prediction; those that do not are asked for together, since most of a prediction is the start of a process. Trials on
one machine have the pages of torch's libraries together: they are left out of what each requests and kept free once.
"""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable, Iterable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from legroom.backends.base import backend_of, require_packages
from legroom.environments.own_code import own_code
from legroom.errors import BadInput, LegroomError, Unseen
from legroom.extras import needs
from legroom.machine import probe
from legroom.model.evidence import Evidence
from legroom.model.footprint import Footprint
from legroom.model.machine import Machine
from legroom.model.run import Run
from legroom.predicting.predict import add_up, gather_all
from legroom.reading import read
from legroom.sweeping.grid import Parameter, Point, points
from legroom.sweeping.sweep_folder import SweepFolder
from legroom.sweeping.trial import SERVICES_NBYTES, WORKER_NBYTES, Mode, Sweep, SweepView, Trial
from legroom.training.run_folder import Predicted, RunFolder
from legroom.units import format_size

# Hyperparameters that are only numbers in a formula: no array's size and no kept tensor depends on them. What is None
# or not decides whether something is computed at all, so `clip_range_vf` and the like are not among them.
WITHOUT_MEMORY = frozenset({
    "learning_rate", "gamma", "gae_lambda", "ent_coef", "vf_coef", "max_grad_norm", "clip_range", "tau",
    "exploration_fraction", "exploration_initial_eps", "exploration_final_eps", "learning_starts",
    "target_update_interval", "rms_prop_eps", "discounting", "entropy_cost", "reward_scaling", "clipping_epsilon",
    "lr", "grad_clip",
})  # fmt: skip

Reader = Callable[[Point], Run]


@dataclass(frozen=True)
class SweepTask:
    """What is to be swept."""

    target: str  # the run, as the user names it; `settings` are laid over it, then a point of the grid
    parameters: tuple[Parameter, ...]
    settings: list[tuple[str, str]]
    like: str | None
    timesteps: int | None
    out: Path
    metric: str
    mode: Mode
    cluster: str = "local"  # local, auto or an address
    concurrent: int | None = None  # trials at once, at most; None: as many as fit
    budget: int | None = None  # bytes for all trials together; None: what is available
    resume: bool = False  # go on with the sweep in `out`
    trust: bool = False  # import the code that the run names

    @property
    def identity(self) -> dict[str, Any]:
        """What tells this sweep from another one in the same folder."""
        return {
            "run": self.target,
            "params": {parameter.key: list(parameter.values) for parameter in self.parameters},
            "settings": [list(pair) for pair in self.settings],
        }

    def read_point(self, point: Point) -> Run:
        """Return the run with a point's values laid over it."""
        run = read(self.target, overrides=[*self.settings, *point], like=self.like)
        return run if self.timesteps is None else run.replace(total_timesteps=self.timesteps)


def sweep_grid(
    task: SweepTask,
    *,
    working: Callable[[str], AbstractContextManager[object]],
    begin: Callable[[str], None],
    show: Callable[[SweepView], None],
    say: Callable[[str], None],
) -> tuple[Sweep, bool]:
    """Train the grid; return the sweep as it ended, and whether it was stopped before.

    Args:
        working: around what takes long, with its name.
        begin: told what is about to be trained; `show`: told once a second how far it is; `say`: anything else.

    Raises:
        BadInput: the folder holds another sweep, there is no such cluster, or the run cannot be trained.
        MissingExtra: without Ray, or without what the run's backend needs.
        LegroomError: a trial fits no node.
    """
    # said before anything is predicted, as is a missing cluster
    with working("loading Ray"), needs("ray", what="a sweep"):
        from legroom.cluster.session import find_cluster
        from legroom.sweeping.ray_sweep import run_sweep
    if task.cluster != "local":
        find_cluster(task.cluster)
    machine, folder, began = probe(), SweepFolder(task.out), time.monotonic()
    with RunFolder(task.out).locked():
        trials = _resumed(task, folder) if task.resume else None
        if trials is None:
            trials = _planned(task, machine, working)
            folder.keep(task.identity, trials)
        declared = task.budget if task.budget is not None else max(machine.available - SERVICES_NBYTES, 1)
        requests = sorted({trial.requested for trial in trials})
        each = " to ".join(format_size(size) for size in dict.fromkeys((requests[0], requests[-1])))
        mapped = max(trial.mapped for trial in trials)
        once = f", {format_size(mapped)} for libraries that all share" if mapped else ""
        begin(f"{len(trials)} trials in {task.out}; each requests {each}{once}; {format_size(declared)} declared")
        try:
            results, total, at_once, is_stopped = run_sweep(
                trials, folder, cluster=task.cluster, declared=declared, num_cpus=max(machine.cores, 1),
                concurrent=task.concurrent, show=show, say=say,
            )  # fmt: skip
        except LegroomError:
            folder.forget_unless_begun()  # so that the corrected command can have the folder
            raise
        seconds = time.monotonic() - began
        ended = Sweep(task.target, task.metric, task.mode, total, results, seconds, at_once)
        folder.write_result(ended.to_json())
    return ended, is_stopped


def _planned(
    task: SweepTask, machine: Machine, working: Callable[[str], AbstractContextManager[object]]
) -> list[Trial]:
    first = task.read_point(tuple((parameter.key, parameter.values[0]) for parameter in task.parameters))
    require_packages(first)
    with working(f"predicting {first.name}"):
        return make_trials(task.parameters, task.read_point, machine, trust=task.trust, on_one=task.cluster == "local")


def _resumed(task: SweepTask, folder: SweepFolder) -> list[Trial] | None:
    """Return the trials that the folder holds; None where none was begun.

    Raises:
        BadInput: it holds another sweep.
        Unseen: its runs name code of their own, and are not trusted.
    """
    held = folder.identity()
    if held is None:
        return None
    for part, value in task.identity.items():
        if held.get(part) != value:
            raise BadInput(
                f"holds another sweep: its {part} is {held.get(part)}, not {value}",
                path=folder.path,
                hint="resume with the command it was started with, or start over in another --out",
            )
    trials, steps = folder.trials(), task.timesteps
    check_trust((trial.run for trial in trials), trust=task.trust)
    if steps is None:
        return trials
    return [
        replace(t, asked=t.asked.replace(total_timesteps=steps), run=t.run.replace(total_timesteps=steps))
        for t in trials
    ]


def make_trials(
    parameters: Sequence[Parameter], read_point: Reader, machine: Machine, *, trust: bool = False, on_one: bool = True
) -> list[Trial]:
    """Return a trial for every point of the grid, with what it will need.

    Args:
        read_point: gives the run with a point's values laid over it.
        trust: import the code that the run names (`own_code`).
        on_one: all trials run on one machine.

    Raises:
        Unseen: it names some, and is not trusted.
        BadInput: a key or a value that the run cannot have, or a run that has no total_timesteps.
    """
    asked = [(point, read_point(point)) for point in points(parameters)]
    check_trust([run for _, run in asked], trust=trust)
    seed = secrets.randbelow(2**31)  # the same for all, or they would differ by more than their params
    for _, run in asked:
        if run.total_timesteps is None:
            raise BadInput(f"{run.name} has no total_timesteps", path=run.source, hint="--timesteps N")
    firsts: dict[str, int] = {}
    shares = [firsts.setdefault(_memory_key(run), number) for number, (_, run) in enumerate(asked)]
    leaders = sorted(set(shares))
    gathered = gather_all([asked[number][1] for number in leaders], machine, trust=True)
    known = {number: _priced(run, evidence, machine) for number, (run, evidence) in zip(leaders, gathered, strict=True)}
    trials = []
    for number, (point, run) in enumerate(asked):
        leader, evidence, footprint, gpu_share = known[shares[number]]
        mapped = footprint.mapped if on_one else 0
        built = backend_of(run).fitter.with_free_savings(run.replace(env=leader.env), evidence)
        trials.append(
            Trial(
                number=number,
                params={key: _value_in(run, key, text) for key, text in point},
                asked=run,
                run=built if built.seed is not None else built.replace(seed=seed),
                device=footprint.device,
                predicted=Predicted.of(footprint),
                requested=footprint.host.high - mapped + WORKER_NBYTES,
                gpu_share=gpu_share,
                shares=shares[number],
                mapped=mapped,
            )
        )
    return trials


def check_trust(runs: Iterable[Run], *, trust: bool) -> None:
    """Refuse to train runs that name code of their own without being trusted.

    Raises:
        Unseen: one does.
    """
    for run in runs:
        if not trust and (code := own_code(run).names):
            raise Unseen(run.name, code, path=run.source)


def _priced(run: Run, evidence: Evidence, machine: Machine) -> tuple[Run, Evidence, Footprint, float]:
    footprint = add_up(backend_of(run).fitter.with_free_savings(run, evidence), evidence)
    share = 0.0
    if footprint.gpu is not None:
        known = machine.gpus and machine.gpus[0].free and not footprint.unknown  # else it gets a card of its own
        share = min(footprint.gpu.high / machine.gpus[0].free, 1.0) if known else 1.0
    return run, evidence, footprint, round(share, 3)


def _memory_key(run: Run) -> str:
    """Return a key that runs share which need the same memory."""
    hyperparams = {name: value for name, value in run.hyperparams.items() if name not in WITHOUT_MEMORY}
    return run.replace(seed=None, name="", description="", hyperparams=hyperparams).key


def _value_in(run: Run, key: str, text: str) -> Any:
    """Return the value that the run has at a key; the text where it is elsewhere by another name."""
    data: Any = run.model_dump()
    path = key.replace("-", "_").split(".")
    for place in (path, ["hyperparams", *path], ["env", *path], ["policy", *path], ["memory", *path]):
        at: Any = data
        for part in place:
            at = at.get(part) if isinstance(at, dict) else None
        if at is not None and not isinstance(at, dict):
            return at
    return text
