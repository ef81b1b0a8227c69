"""`--param NAME=VALUES`: which arguments of the user's command a search may set, and the command with them set."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from difflib import get_close_matches

from legroom.errors import BadInput
from legroom.model.param import Number, Param

EXAMPLE = "--param batch_size=64..8192 -- python train.py --batch-size {batch_size}"
MOST = 2
_PLACE = re.compile(r"\{([A-Za-z_]\w*)\}")
_RANGE = re.compile(r"(\d+)\.\.(\d+)(?::(\d+))?")


def read_params(texts: Sequence[str], command: Sequence[str]) -> list[Param]:
    """Return the parameters, in the order given; each has its place in the command.

    Raises:
        BadInput: values that cannot be read, a parameter without a place in the command, a place without a parameter.
    """
    params = [_read(text) for text in texts]
    names = [param.name for param in params]
    if len(params) > MOST or len(set(names)) < len(names):
        raise BadInput(f"--param: {', '.join(names)}", hint=f"at most {MOST} different parameters")
    places = places_in(command)
    for name in names:
        if name not in places:
            near = get_close_matches(name, places, 1)
            hint = f"did you mean {{{near[0]}}}?" if near else f"write {{{name}}} where its value belongs"
            raise BadInput(f"--param {name}: the command has no {{{name}}}", hint=hint)
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


def filled_in(command: Sequence[str], params: Mapping[str, Number]) -> list[str]:
    """Return the command with the parameters in their places."""
    return [_PLACE.sub(lambda found: str(params[found[1]]), word) for word in command]
