"""`legroom train -- COMMAND...`: the user's program as it is, for real, with savings attached from outside."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Annotated

import typer

from legroom.cli.fit_program import find_attached
from legroom.cli.help import BUDGET, OUTPUT
from legroom.cli.rehearse import rehearser
from legroom.cli.watch import displays, report
from legroom.cli.writing import Force, Html, check_writable
from legroom.errors import EXIT_FINDINGS, EXIT_GOOD, BadInput
from legroom.model.program_plan import Savings
from legroom.model.trace import Watched
from legroom.rendering.attached_text import TRAIN, attached_document, attached_plan_document, attached_report
from legroom.rendering.console import say
from legroom.rendering.watch_text import watched_json
from legroom.units import parse_size
from legroom.watching import Signals, watch

Command = Annotated[
    list[str] | None, typer.Argument(metavar="-- COMMAND...", help="Your command, as you would type it.")
]
With = Annotated[
    str | None,
    typer.Option("--with", metavar="NAMES", help="Also attach lean or micro_batch=N; free ones are attached anyway."),
]
Fit = Annotated[
    bool, typer.Option("--fit", rich_help_panel=BUDGET, help="Attach the cheapest savings with which it fits.")
]
Plain = Annotated[bool, typer.Option("--plain", help="Attach nothing, only watch.")]
Ram = Annotated[
    str | None,
    typer.Option(metavar="SIZE", rich_help_panel=BUDGET, help="Host memory to compare with; nothing is killed."),
]
Vram = Annotated[
    str | None,
    typer.Option(metavar="SIZE", rich_help_panel=BUDGET, help="GPU memory to compare with; nothing is killed."),
]
Out = Annotated[
    Path | None, typer.Option(metavar="DIR", rich_help_panel=OUTPUT, help="Write watch.json and watch.html there.")
]
Json = Annotated[
    bool,
    typer.Option("--json", rich_help_panel=OUTPUT, help="Print the result as JSON, after the program's own output."),
]


def run(
    command: Command = None,
    with_: With = None,
    fit: Fit = False,
    plain: Plain = False,
    ram: Ram = None,
    vram: Vram = None,
    out: Out = None,
    html: Html = None,
    force: Force = False,
    json: Json = False,
) -> int:
    """Run your program for real, unedited, with memory savings attached from outside. Its results stay the same, and
    its output, input, signals and exit code pass through.

    Your program is EXECUTED in its own interpreter. Free savings for Stable-Baselines3 are attached: workers without
    torch in place of SubprocVecEnv's (workers), updates that run out of memory are redone in pieces (redo), allocator
    settings (allocator). --with lean also stores rollouts and replay losslessly in less memory. Parameters after
    training are bit-equal; with micro_batch=N equal up to rounding. Models that it saves load without legroom. What
    was attached and the memory that it took are printed on standard error.

    \b
    legroom train -- python train.py
    legroom train --with lean -- python train.py --seed 1

    \b
    legroom train --with lean,micro_batch=16 --ram 8GiB -- python -m package.train
    legroom train --fit --ram 8GiB -- python train.py
    legroom train --plain --html memory.html -- uv run train.py
    """
    from legroom.backends.program.attach_api import attaching, by_default, chosen
    from legroom.machine import probe

    given = [name for name, is_given in (("--plain", plain), ("--with", with_ is not None), ("--fit", fit)) if is_given]
    if len(given) > 1:
        raise BadInput(f"{given[0]} contradicts {given[1]}", hint="give one of them")
    limit = parse_size(ram, what="--ram") if ram is not None else None
    vram_nbytes = parse_size(vram, what="--vram") if vram is not None else None
    check_writable("--html", html, force=force)
    has_gpu = bool(probe().gpus)
    what = {} if plain else chosen(with_) if with_ is not None else by_default()
    if fit:
        found_to_fit = _to_fit(command or [], ram, vram, has_gpu=has_gpu, quiet=json)
        if found_to_fit is None:
            return EXIT_FINDINGS
        what = {**what, **found_to_fit}
    with attaching(command or [], what, os.environ, has_gpu=has_gpu) as attached:
        display, shown = displays(out, TRAIN, force=force)
        with Signals() as signals:  # held until the result is written
            found = _named(
                watch(command or [], limit=limit, display=shown, signals=signals, environment=attached.environment)
            )
            said = attached.notes(), attached.stored(), attached.predicted()
            text = attached_report(found, *said, wanted=tuple(what), vram=vram_nbytes)
            document = watched_json(found, **attached_document(*said))
            report(found, display, text, document, out=out, html=html, json=json)
    return EXIT_GOOD if found.exit_code is None else found.exit_code


def _to_fit(command: Sequence[str], ram: str | None, vram: str | None, *, has_gpu: bool, quiet: bool) -> Savings | None:
    """Return the cheapest savings with which the program fits, None where there are none; either is told.

    Raises:
        BadInput: the program fails in a rehearsal, or there is no card that it could fit.
    """
    from legroom.backends.program.attach_api import EXAMPLE
    from legroom.backends.program.launching import check_command

    check_command(command, EXAMPLE, "use attached savings")
    if vram is not None and not has_gpu:
        raise BadInput("--fit --vram: this machine has no GPU", hint="legroom fit --vram SIZE -- COMMAND plans for one")
    rehearsed = rehearser(
        gpu=None, vram=vram, ram=ram, reserve="0%", cpu_only=not has_gpu, seconds=60.0, updates=None, real_limit=None,
    )  # fmt: skip
    plan = find_attached(command, rehearsed, has_gpu=has_gpu, quiet=quiet)
    seen = plan.plain.prediction.rehearsal
    if seen.stopped == "failed":
        raise BadInput(f"the program fails when it is rehearsed: {seen.failure or 'see its own output'}",
                       hint="legroom train -- COMMAND runs it anyway")  # fmt: skip
    say(attached_plan_document(plan, command), aside=True)
    return None if plan.best is None else plan.best.savings


def _named(found: Watched) -> Watched:
    """Return the watching with the option that this command has for a limit."""
    return found if found.limit is None else replace(found, limit=replace(found.limit, option="--ram"))
