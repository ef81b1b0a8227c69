"""`legroom workloads`: the named runs that ship with legroom."""

from __future__ import annotations

from legroom.cli import options
from legroom.named_runs import workloads
from legroom.reading import read_all
from legroom.rendering.console import say
from legroom.rendering.workloads_text import workloads_json, workloads_text


def run(json: options.Json = False) -> None:
    """The reference workloads, their named runs, and the commands to try.

    \b
    legroom workloads
    legroom workloads --json
    """
    runs = [one for workload in workloads() for one in read_all(workload.name)]
    say(workloads_json(runs) if json else workloads_text(runs))
