"""A sweep from its grid to its result: plan the trials, or find them in the folder, and have Ray train them."""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from legroom.backends.base import require_packages
from legroom.errors import BadInput, LegroomError
from legroom.extras import needs
from legroom.machine import probe
from legroom.model.machine import Machine
from legroom.model.run import Run
from legroom.reading import read
from legroom.sweeping.grid import Parameter, Point
from legroom.sweeping.sweep_folder import SweepFolder
from legroom.sweeping.trial import SERVICES_NBYTES, Mode, Sweep, SweepView, TooLarge, Trial
from legroom.sweeping.trial_plan import check_trust, make_trials
from legroom.training.run_folder import RunFolder
from legroom.units import format_size


@dataclass(frozen=True)
class SweepTask:
    """What is to be swept.

    Args:
        target: the run, as the user names it; `settings` are laid over it, then a point of the grid.
        cluster: local, auto or an address.
        concurrent: trials at once, at most; None: as many as fit.
        budget: bytes for all trials together; None: what is available.
        resume: go on with the sweep in `out`.
        trust: import the code that the run names.
    """

    target: str
    parameters: tuple[Parameter, ...]
    settings: list[tuple[str, str]]
    like: str | None
    timesteps: int | None
    out: Path
    metric: str
    mode: Mode
    cluster: str = "local"
    concurrent: int | None = None
    budget: int | None = None
    resume: bool = False
    trust: bool = False

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
        TooLarge: a trial fits no node.
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
            swept = run_sweep(
                trials, folder, cluster=task.cluster, declared=declared, num_cpus=max(machine.cores, 1),
                concurrent=task.concurrent, show=show, say=say,
            )  # fmt: skip
        except (TooLarge, LegroomError):
            folder.forget_unless_begun()  # so that the corrected command can have the folder
            raise
        seconds = time.monotonic() - began
        ended = Sweep(task.target, task.metric, task.mode, swept.declared, swept.results, seconds, swept.most_at_once)
        folder.write_result(ended.to_json())
    return ended, swept.is_stopped


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
