"""`--param NAME=VALUES`: which arguments of the user's command, or constants of his program, a search may set."""

from __future__ import annotations

import os
import re
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import replace
from difflib import get_close_matches

from legroom.errors import BadInput
from legroom.model.program_plan import Number, Param

EXAMPLE = "--param batch_size=64..8192 -- python train.py --batch-size {batch_size}"
MOST = 2
_PLACE = re.compile(r"\{([A-Za-z_]\w*)\}")
_RANGE = re.compile(r"(\d+)\.\.(\d+)(?::(\d+))?")


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
