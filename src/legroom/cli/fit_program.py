"""`legroom fit -- COMMAND...`: makes the user's program fit, by savings from outside or its arguments and constants."""

from __future__ import annotations

import os
import re
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import replace
from difflib import get_close_matches
from functools import partial

from legroom.cli.commands import FitProgramCommand
from legroom.cli.output import check_writable, show
from legroom.cli.rehearse import Rehearser, rehearser
from legroom.errors import EXIT_BAD_INPUT, EXIT_FINDINGS, EXIT_GOOD, EXIT_INTERRUPTED, BadInput
from legroom.fitting.param_search import find_frontier, find_largest
from legroom.model.program_plan import Attached, Number, Param, ParamSearch, ParamTrial, ProgramPlan, Savings
from legroom.model.rehearsal import ProgramPrediction
from legroom.rendering.attached_text import attached_plan_document, attached_plan_json
from legroom.rendering.console import complain, say, status
from legroom.rendering.param_text import refusal_text, search_document, search_json, trial_line
from legroom.rendering.program_text import first_line

EXAMPLE = "--param batch_size=64..8192 -- python train.py --batch-size {batch_size}"
MOST = 2
_PLACE = re.compile(r"\{([A-Za-z_]\w*)\}")
_RANGE = re.compile(r"(\d+)\.\.(\d+)(?::(\d+))?")


def run(asked: FitProgramCommand) -> int:
    check_writable("--html", asked.html, force=asked.force)
    if not asked.command:
        raise BadInput("no command after --", hint=f"legroom fit {EXAMPLE}")
    params = read_params(asked.param, asked.command) if asked.param else []
    if asked.html is not None and not params:
        raise BadInput("--html draws memory against a parameter", hint="give --param too, or leave --html out")
    if not (asked.gpu or asked.vram or asked.ram):
        raise BadInput("fit needs a budget", hint='--gpu "RTX 4070", --vram 8GiB or --ram 16GiB')
    rehearsed = rehearser(asked)
    if not params:
        return _attach(asked, rehearsed)
    found = _search(params, asked.command, rehearsed, quiet=asked.json)
    if found.refused:
        raise BadInput(refusal_text(found), hint="give values that the program accepts")
    show(asked, partial(search_json, found), search_document(found))
    if found.best is not None and not asked.json:
        say(run_text(asked.command, params, found.best.params))
    return EXIT_GOOD if found.fits else EXIT_FINDINGS


def _attach(asked: FitProgramCommand, rehearsed: Rehearser) -> int:
    """Find the cheapest savings that make the program fit, and say how to run it with them."""
    plan = find_attached(asked.command, rehearsed, has_gpu=not asked.cpu_only, quiet=asked.json)
    plain = plan.plain.prediction.rehearsal
    if plain.stopped == "failed" and (names := places_in(asked.command)):
        hint = f"{{{names[0]}}} in the command stands for a value only with --param {names[0]}=1..64"
        raise BadInput(f"the program failed: {first_line(plain.failure)}", hint=hint)
    say(attached_plan_json(plan, asked.command) if asked.json else attached_plan_document(plan, asked.command))
    if plain.stopped == "failed":
        return EXIT_BAD_INPUT
    return EXIT_GOOD if plan.fits else EXIT_FINDINGS


def find_attached(command: Sequence[str], rehearsed: Rehearser, *, has_gpu: bool, quiet: bool) -> ProgramPlan:
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


def _search(params: Sequence[Param], command: Sequence[str], rehearsed: Rehearser, *, quiet: bool) -> ParamSearch:
    """Search with one rehearsal per value, telling of each.

    Raises:
        SystemExit: interrupted; what was tried has been told.
    """
    from legroom.backends.program.program_constants import setting

    with status("rehearsing", show=not quiet) as shown:

        def attempt(*values: Number) -> ParamTrial:
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
            trial = ParamTrial(chosen, prediction, refused)
            complain(trial_line(trial))
            return trial

        if len(params) == 1:
            return find_largest(params[0], attempt)
        return find_frontier(params[0], params[1], attempt)


def read_params(texts: Sequence[str], command: Sequence[str]) -> list[Param]:
    """Return the parameters, in the order given; each has its place in the command, or is a constant of the program.

    Raises:
        BadInput: values that cannot be read, a parameter without a place, a place without a parameter.
    """
    from legroom.backends.program.program_constants import constants_of

    params = [_read(text) for text in texts]
    names = [param.name for param in params]
    if len(params) > MOST or len(set(names)) < len(names):
        raise BadInput(f"--param: {', '.join(names)}", hint=f"at most {MOST} different parameters")
    places = places_in(command)
    constants = constants_of(command) if set(names) - set(places) else {}
    params = [each if each.name in places else replace(each, constant=constants.get(each.name)) for each in params]
    for name in (each.name for each in params if each.name not in places and each.constant is None):
        near = get_close_matches(name, [*places, *constants], 1)
        close = f"{{{near[0]}}}" if near and near[0] in places else near[0] if near else ""
        hint = f"did you mean {close}?" if near else f"write {{{name}}} where its value belongs"
        raise BadInput(f"--param {name}: the command has no {{{name}}}, and the program no such constant", hint=hint)
    for place in sorted(set(places) - set(names)):
        raise BadInput(f"the command has {{{place}}}, and there is no --param {place}", hint=f"--param {place}=1..64")
    return params


def _read(text: str) -> Param:
    name, equals, values = text.partition("=")
    if not equals or not name.isidentifier() or not values:
        raise BadInput(f"--param {text!r} cannot be read", hint=EXAMPLE)
    found = _RANGE.fullmatch(values)
    if found is not None:
        low, high, step = int(found[1]), int(found[2]), int(found[3] or 1)
        if low > high or step < 1:
            raise BadInput(f"--param {text}: the range is empty", hint=f"--param {name}=64..8192")
        grid = range(low, high + 1, step)
        return Param(name, grid, given=found[3] is not None)
    numbers = sorted({_number(part, text) for part in values.split(",")})
    return Param(name, tuple(numbers), given=True)


def _number(part: str, text: str) -> Number:
    try:
        return int(part)
    except ValueError:
        pass
    try:
        number = float(part)
    except ValueError:
        number = float("nan")
    if not 0 <= number < float("inf"):
        raise BadInput(
            f"--param {text}: {part!r} is not a number", hint="64..8192, 64..8192:64 or 64,128,256"
        ) from None
    return number


def places_in(command: Sequence[str]) -> list[str]:
    """Return the names that stand in braces in the command."""
    return list(dict.fromkeys(name for word in command for name in _PLACE.findall(word)))


def run_text(command: Sequence[str], params: Sequence[Param], values: Mapping[str, Number]) -> str:
    """Return how to run the program with these values: the command, after constants are changed in their files."""
    changed = [
        f"{each.name} = {values[each.name]} in {os.path.relpath(each.constant.file)}:{each.constant.first}"
        for each in params if each.constant is not None
    ]  # fmt: skip
    run = shlex.join(filled_in(command, values))
    return f"set {', '.join(changed)}, then run: {run}" if changed else f"run it with: {run}"


def filled_in(command: Sequence[str], params: Mapping[str, Number]) -> list[str]:
    """Return the command with the parameters in their places."""
    return [_PLACE.sub(lambda found: str(params[found[1]]), word) for word in command]
