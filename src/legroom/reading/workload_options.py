"""Options that workloads declare (`--rom FILE`), laid over the runs they belong to.

On the command line they look like any option. There and in `read(..., overrides=...)` they travel among the overrides,
under their name with its dashes, which no key of a run has.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from legroom.errors import BadInput
from legroom.model.run import Run
from legroom.model.workload import WorkloadOption
from legroom.named_runs import with_own_spaces, workload_of, workloads

# Of every environment whose workload does not declare it, or that belongs to none.
DATA = WorkloadOption("--data", "FILE", "the environment's data (env.kwargs.data)")


def declared_options(only: Sequence[str] = ()) -> list[tuple[str, WorkloadOption]]:
    """Return all options with the names of their workloads, empty for the general one; of some workloads, or of all."""
    chosen = [each for each in workloads() if each.name in only] or workloads()
    return [*((each.name, option) for each in chosen for option in each.options), ("", DATA)]


def split_overrides(overrides: Sequence[tuple[str, str]]) -> tuple[list[tuple[str, str]], dict[str, str]]:
    """Return overrides of keys, and the options of workloads among them."""
    keys = [(name, text) for name, text in overrides if not name.startswith("--")]
    return keys, {name: text for name, text in overrides if name.startswith("--")}


def with_options(run: Run, given: Mapping[str, str]) -> Run:
    """Return the run as its workload makes it of these options.

    Raises:
        BadInput: an option that the run does not take, or a value that its workload refuses.
    """
    if not given:
        return run  # whose reader knows its spaces
    workload = workload_of(run)
    own = {option.name for option in workload.options} if workload is not None else set()
    for name in given:
        if name not in own and name != DATA.name:
            takers = ", ".join(each for each, option in declared_options() if option.name == name)
            problem = f"is an option of {takers}, which {run.name} does not belong to" if takers else "is not an option"
            raise BadInput(f"{name} {problem}", hint="--set env.kwargs.KEY=VALUE for other environments")
    theirs = {name: text for name, text in given.items() if name in own}
    if theirs and workload is not None and workload.with_options is not None:
        run = workload.with_options(run, theirs)
    return with_own_spaces(run if DATA.name in theirs or DATA.name not in given else _with_data(run, given[DATA.name]))


def _with_data(run: Run, file: str) -> Run:
    """Return the run with these data; their size may decide the spaces, so declared ones no longer count."""
    data = Path(file)
    if not data.is_file():
        raise BadInput("no such file", path=data, hint="--data FILE")
    kwargs = {**run.env.kwargs, "data": str(data.absolute())}
    return run.replace(env=run.env.model_copy(update={"kwargs": kwargs, "spaces": None}))
