"""`legroom train -- COMMAND...`: the user's program as it is, for real, with savings attached from outside."""

from __future__ import annotations

import os
from dataclasses import replace

from legroom.cli.commands import RehearsalOptions, TrainProgramCommand
from legroom.cli.fit_program import find_attached
from legroom.cli.output import check_writable
from legroom.cli.rehearse import rehearser
from legroom.cli.watch import display_for, report
from legroom.errors import EXIT_FINDINGS, EXIT_GOOD, BadInput
from legroom.model.program_plan import Savings
from legroom.rendering.attached_text import TRAIN, attached_document, attached_plan_document, attached_report
from legroom.rendering.console import say
from legroom.rendering.watch_text import watched_json
from legroom.units import parse_size
from legroom.watching.command import Signals
from legroom.watching.watch import watch


def run(asked: TrainProgramCommand) -> int:
    from legroom.backends.program.attach_api import attaching, by_default, chosen
    from legroom.machine import probe

    choices = (("--plain", asked.plain), ("--with", asked.with_ is not None), ("--fit", asked.fit))
    given = [name for name, is_given in choices if is_given]
    if len(given) > 1:
        raise BadInput(f"{given[0]} contradicts {given[1]}", hint="give one of them")
    limit = parse_size(asked.ram, what="--ram") if asked.ram is not None else None
    vram_nbytes = parse_size(asked.vram, what="--vram") if asked.vram is not None else None
    check_writable("--html", asked.html, force=asked.force)
    has_gpu = bool(probe().gpus)
    what = {} if asked.plain else chosen(asked.with_) if asked.with_ is not None else by_default()
    if asked.fit:
        found_to_fit = _to_fit(asked, has_gpu=has_gpu)
        if found_to_fit is None:
            return EXIT_FINDINGS
        what = {**what, **found_to_fit}
    with attaching(asked.command, what, os.environ, has_gpu=has_gpu) as attached:
        shown = display_for(asked.out, TRAIN, force=asked.force)
        with Signals() as signals:  # held until the result is written
            found = watch(asked.command, limit=limit, display=shown, signals=signals, environment=attached.environment)
            if found.limit is not None:
                found = replace(found, limit=replace(found.limit, option="--ram"))
            said = attached.notes(), attached.stored(), attached.predicted()
            text = attached_report(found, *said, wanted=tuple(what), vram=vram_nbytes)
            document = watched_json(found, **attached_document(*said))
            report(asked, found, shown, text, document)
    return EXIT_GOOD if found.exit_code is None else found.exit_code


def _to_fit(asked: TrainProgramCommand, *, has_gpu: bool) -> Savings | None:
    """Return the cheapest savings with which the program fits, None where there are none; either is told.

    Raises:
        BadInput: the program fails in a rehearsal, or there is no card that it could fit.
    """
    from legroom.backends.program.attach_api import EXAMPLE
    from legroom.backends.program.launching import check_command

    check_command(asked.command, EXAMPLE, "use attached savings")
    if asked.vram is not None and not has_gpu:
        raise BadInput("--fit --vram: this machine has no GPU", hint="legroom fit --vram SIZE -- COMMAND plans for one")
    rehearsed = rehearser(RehearsalOptions(vram=asked.vram, ram=asked.ram, cpu_only=not has_gpu))
    plan = find_attached(asked.command, rehearsed, has_gpu=has_gpu, quiet=asked.json)
    seen = plan.plain.prediction.rehearsal
    if seen.stopped == "failed":
        raise BadInput(f"the program fails when it is rehearsed: {seen.failure or 'see its own output'}",
                       hint="legroom train -- COMMAND runs it anyway")  # fmt: skip
    say(attached_plan_document(plan, asked.command), aside=True)
    return None if plan.best is None else plan.best.savings
