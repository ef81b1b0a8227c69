"""A workload: environments and run files that belong together, as a package declares them to legroom.

A package registers a `Workload` in the entry point group `legroom.workloads`. The module that holds it is imported by
nearly every command, so it imports nothing heavy: functions that need more import it when they are called.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from legroom.errors import BadInput

if TYPE_CHECKING:
    from legroom.model.layers import Net
    from legroom.model.run import Run
    from legroom.model.spaces import BoxSpace, KnownSpaces


@dataclass(frozen=True)
class Extractor:
    """What a features extractor publishes of itself, so that it need not be imported.

    Args:
        layers: returns its layers, given an observation's space and the extractor's arguments by name; None where only
            its sizes are known.
        sizes: the arguments that make it smaller, largest first: what `fit` may choose from.
    """

    layers: Callable[..., Net] | None = None
    sizes: tuple[Mapping[str, Any], ...] = ()

    def net(self, observation: BoxSpace, arguments: Mapping[str, Any]) -> Net:
        """Return its layers.

        Raises:
            BadInput: its function does not take these arguments.
        """
        assert self.layers is not None
        try:
            return self.layers(observation, **arguments)
        except (TypeError, ValueError, KeyError) as error:
            name = getattr(self.layers, "__qualname__", repr(self.layers))
            raise BadInput(f"features_extractor_kwargs: {name} says {error}", hint="check policy") from error


@dataclass(frozen=True)
class WorkloadOption:
    """An option of the command line for the runs of a workload, such as `--rom FILE`; `help` is half a sentence."""

    name: str
    metavar: str
    help: str


@dataclass(frozen=True)
class Workload:
    """Named runs, and what legroom has to know of their environments and networks without importing them.

    Args:
        name: the same as that of the entry point; `name:run` names a run.
        package: what the modules of its environments start with. Runs of such an environment belong to the workload,
            whichever file they stand in.
        runs: the folder of its run files, `<run>.yaml` each.
        default: the run that the bare name means where a command takes one run.
        order: of the runs in tables; others follow by name.
        apart: runs that are not the same training in another size, which `train NAME --fit` does not choose from.
        first_shown: the run that the page opens with if none is named there.
        extra: of the distribution that brings `packages`; empty where they are named themselves.
        packages: that its environments, networks and scores import when they are used.
        options: of the command line, beside those that every run has.
        with_options: returns a run as it is with options, given as texts by their name. It may read the files that they
            name, and removes declared spaces that no longer hold.
        spaces: returns the spaces of its environment by the arguments that it is made with; None where only the
            environment can tell. Where arguments are changed, declared spaces no longer count, and it is asked.
        extractors: what features extractors publish, by the name that run files give them (`module:Class`).
        headless: policies of Q networks without a head of their own, whose extractor's features are the values.
        rank: where it stands among workloads in tables; those of the same rank are sorted by name.
        checked: whether the package's own tests read all its run files, which then are read without being checked.
    """

    name: str
    package: str
    runs: Path
    default: str
    order: tuple[str, ...] = ()
    apart: tuple[str, ...] = ()
    first_shown: str | None = None
    extra: str = ""
    packages: tuple[str, ...] = ()
    options: tuple[WorkloadOption, ...] = ()
    with_options: Callable[[Run, Mapping[str, str]], Run] | None = None
    spaces: Callable[[Mapping[str, Any]], KnownSpaces | None] | None = None
    extractors: Mapping[str, Extractor] = field(default_factory=dict)
    headless: tuple[str, ...] = ()
    rank: int = 100
    checked: bool = False

    def run_files(self) -> dict[str, Path]:
        """Return its run files by the name of the run, in their order."""
        files = {path.stem: path for path in sorted(self.runs.glob("*.yaml"))}
        named = [run for run in self.order if run in files]
        return {run: files[run] for run in (*named, *(run for run in files if run not in named))}
