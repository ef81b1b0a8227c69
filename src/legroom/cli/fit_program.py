"""`legroom fit -- COMMAND...`: makes the user's program fit, by savings from outside or its arguments and constants."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Annotated

import typer

from legroom.cli import options, rehearse
from legroom.cli.params import EXAMPLE, filled_in, places_in, read_params, run_text
from legroom.cli.writing import Force, Html, check_writable, show
from legroom.errors import EXIT_BAD_INPUT, EXIT_FINDINGS, EXIT_GOOD, EXIT_INTERRUPTED, BadInput
from legroom.fitting.param_search import find_frontier, find_largest
from legroom.model.program_plan import Attached, Number, Param, ParamSearch, ProgramPlan, Savings, Trial
from legroom.model.rehearsal import ProgramPrediction
from legroom.rendering.attached_text import attached_plan_document, attached_plan_json
from legroom.rendering.console import complain, say, status
from legroom.rendering.param_text import refusal_text, search_document, search_json, trial_line
from legroom.rendering.program_text import first_line

Params = Annotated[
    list[str] | None,
    typer.Option("--param", metavar="NAME=A..B", help="Find the largest {NAME} that fits."),
]


def run(
    command: rehearse.Command = None,
    param: Params = None,
    gpu: rehearse.GpuName = None,
    vram: options.Vram = None,
    ram: options.Ram = None,
    reserve: options.Reserve = "0%",
    cpu_only: options.CpuOnly = False,
    seconds: rehearse.Seconds = 60.0,
    updates: rehearse.Updates = None,
    real_limit: rehearse.RealLimit = None,
    keep_writes: rehearse.KeepWrites = False,
    html: Html = None,
    force: Force = False,
    json: options.Json = False,
) -> int:
    """Make your program fit, by savings attached from outside or by its own arguments. Your program is EXECUTED several
    times, for seconds each, on a simulated GPU (see legroom predict --help --).

    Without --param: the cheapest savings with which it fits, of those that `legroom train -- COMMAND` can attach. With
    --param: the largest value that fits for {NAME} in the command, or for a constant of the program (NAME = 32 in the
    script or a module beside it, set while it runs; no file is changed). Values that the program refuses are skipped;
    two --param give the frontier. Exit code 1: nothing fits, or unknown.

    \b
    legroom fit --vram 8GiB -- python train.py
    legroom fit --gpu T4 --param n=64..8192 -- python train.py --batch-size {n}

    \b
    legroom fit --gpu "RTX 4070" --param batch=64..8192 -- \\
      python train.py --batch-size {batch}
    legroom fit --vram 8GiB --param n=16,32,64,128 -- python train.py --num-envs {n}
    legroom fit --vram 8GiB --param envs=64..4096:64 --param steps=16..128:16 -- \\
      python train.py --num-envs {envs} --num-steps {steps}
    """
    check_writable("--html", html, force=force)
    if not command:
        raise BadInput("no command after --", hint=f"legroom fit {EXAMPLE}")
    params = read_params(param, command) if param else []
    if html is not None and not params:
        raise BadInput("--html draws memory against a parameter", hint="give --param too, or leave --html out")
    if not (gpu or vram or ram):
        raise BadInput("fit needs a budget", hint='--gpu "RTX 4070", --vram 8GiB or --ram 16GiB')
    rehearsed = rehearse.rehearser(
        gpu=gpu, vram=vram, ram=ram, reserve=reserve, cpu_only=cpu_only, seconds=seconds, updates=updates,
        real_limit=real_limit, keep_writes=keep_writes,
    )  # fmt: skip
    if not params:
        return _attach(command, rehearsed, has_gpu=not cpu_only, json=json)
    found = _search(params, command, rehearsed, quiet=json)
    if found.refused:
        raise BadInput(refusal_text(found), hint="give values that the program accepts")
    show(partial(search_json, found), search_document(found), json=json, html=html)
    if found.best is not None and not json:
        say(run_text(command, params, found.best.params))
    return EXIT_GOOD if found.fits else EXIT_FINDINGS


def _attach(command: Sequence[str], rehearsed: rehearse.Rehearser, *, has_gpu: bool, json: bool) -> int:
    """Find the cheapest savings that make the program fit, and say how to run it with them."""
    plan = find_attached(command, rehearsed, has_gpu=has_gpu, quiet=json)
    _check_places(command, plan)
    say(attached_plan_json(plan, command) if json else attached_plan_document(plan, command))
    if plan.plain.prediction.rehearsal.stopped == "failed":
        return EXIT_BAD_INPUT
    return EXIT_GOOD if plan.fits else EXIT_FINDINGS


def _check_places(command: Sequence[str], plan: ProgramPlan) -> None:
    """Refuse a program that fails with a {name} in its command: without --param nothing is put there."""
    plain = plan.plain.prediction.rehearsal
    if plain.stopped == "failed" and (names := places_in(command)):
        raise BadInput(
            f"the program failed: {first_line(plain.failure)}",
            hint=f"{{{names[0]}}} in the command stands for a value only with --param {names[0]}=1..64",
        )


def find_attached(command: Sequence[str], rehearsed: rehearse.Rehearser, *, has_gpu: bool, quiet: bool) -> ProgramPlan:
    """Rehearse the program as it is, then with dearer and dearer savings, until it fits.

    Raises:
        SystemExit: interrupted.
    """
    from legroom.backends.program.attached_search import find_savings, with_savings

    def predict(command: Sequence[str], environment: Mapping[str, str]) -> ProgramPrediction:
        return _unless_interrupted(rehearsed(command, environment))

    with status("rehearsing", show=not quiet) as shown:

        def attempt(savings: Savings) -> Attached:
            words = ", ".join(name if number is None else f"{name}={number}" for name, number in savings.items())
            shown(f"rehearsing with {words}" if words else "rehearsing the program as it is")
            return with_savings(command, savings, predict, has_gpu=has_gpu)

        return find_savings(attempt)


def _unless_interrupted(prediction: ProgramPrediction) -> ProgramPrediction:
    if prediction.rehearsal.stopped == "interrupted":
        complain("interrupted")
        raise SystemExit(EXIT_INTERRUPTED)
    return prediction


def _search(
    params: Sequence[Param],
    command: Sequence[str],
    rehearsed: rehearse.Rehearser,
    *,
    quiet: bool,
) -> ParamSearch:
    """Search with one rehearsal per value, telling of each.

    Raises:
        SystemExit: interrupted; what was tried has been told.
    """
    from legroom.backends.program.program_constants import setting

    with status("rehearsing", show=not quiet) as shown:

        def attempt(*values: Number) -> Trial:
            chosen = dict(zip((param.name for param in params), values, strict=True))
            shown(f"rehearsing {', '.join(f'{name}={value}' for name, value in chosen.items())}")
            constants = {each.name: (each.constant, chosen[each.name]) for each in params if each.constant is not None}
            environment = setting(constants, os.environ)
            prediction = _unless_interrupted(rehearsed(filled_in(command, chosen), environment))
            seen = prediction.rehearsal
            for name in constants.keys() - {*seen.constants} if seen.stopped != "failed" else ():
                at = f"{os.path.relpath(constants[name][0].file)}:{constants[name][0].first}"
                raise BadInput(
                    f"--param {name}: {at} was not executed in {seen.seconds:.0f} s, so it was not set",
                    hint="more time (--seconds), or an argument of the command in its place",
                )
            refused = seen.failure or "it failed" if seen.stopped == "failed" else ""
            trial = Trial(chosen, prediction, refused)
            complain(trial_line(trial))
            return trial

        if len(params) == 1:
            return find_largest(params[0], attempt)
        return find_frontier(params[0], params[1], attempt)
