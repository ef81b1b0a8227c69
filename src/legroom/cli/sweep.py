"""`legroom sweep RUN --param KEY=VALUES`: trains a grid of settings, as many at once as memory allows."""

from __future__ import annotations

from functools import partial
from json import dumps
from pathlib import Path
from typing import Any

from legroom.cli.commands import SweepCommand
from legroom.cli.output import command_to_resume
from legroom.cli.overrides import split_settings
from legroom.errors import EXIT_GOOD, EXIT_INTERRUPTED, EXIT_TRAINING_FAILED, BadInput
from legroom.rendering.console import LINES, complain, say, status
from legroom.rendering.sweep_text import SweepLine, sweep_document
from legroom.sweeping.grid import parse_parameters
from legroom.sweeping.sweep_grid import SweepTask, sweep_grid
from legroom.sweeping.trial import MEASURES
from legroom.training.run_folder import RunFolder
from legroom.units import parse_size


def run(asked: SweepCommand) -> int:
    parameters = parse_parameters(asked.param)
    if asked.mode not in ("", "max", "min"):
        raise BadInput(f"--mode {asked.mode!r} is neither max nor min")
    best: Any = asked.mode or MEASURES.get(asked.metric, "max")
    if asked.out is None:
        raise BadInput("a sweep needs a folder", hint="--out DIR")
    RunFolder(asked.out).check(resume=asked.resume)
    budget = parse_size(asked.ram, what="--ram") if asked.ram is not None else None
    task = SweepTask(
        asked.target, parameters, split_settings(asked.settings), asked.like, asked.timesteps, asked.out, asked.metric,
        best, asked.cluster, asked.concurrent, budget, asked.resume, asked.trust,
    )  # fmt: skip
    nothing: Any = lambda _: None  # noqa: E731 (JSON is printed at the end, and nothing else)
    begin, show = (nothing, nothing) if asked.json else (complain, SweepLine())
    try:
        working = partial(status, show=not asked.json)
        ended, stopped = sweep_grid(task, working=working, begin=begin, show=show, say=complain)
    finally:
        LINES.draw(())
    _tell(ended.to_json(), asked.out, json=asked.json)
    if stopped:
        return EXIT_INTERRUPTED
    return EXIT_GOOD if any(r.status == "finished" for r in ended.results) else EXIT_TRAINING_FAILED


def _tell(data: dict[str, Any], out: Path, *, json: bool) -> None:
    """Print what came of it, with the command that goes on where a trial did not finish."""
    again = "" if all(trial["status"] == "finished" for trial in data["trials"]) else command_to_resume(out)
    if not json:
        say(sweep_document(data, str(out), resume=again))
        return
    say(dumps(data, indent=2))
    if again:
        complain(f"continue with: {again}")
