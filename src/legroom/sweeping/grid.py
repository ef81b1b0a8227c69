"""The grid of a sweep: `KEY=V1,V2` lists and `KEY=A..B` ranges, and every combination of them.

Values stay the texts that they were given as: a trial lays them over its run as `--set` does, so keys, types and
mistakes in them are `reading`'s business, and mean the same there and here.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Sequence
from dataclasses import dataclass

from legroom.errors import BadInput

MOST_TRIALS = 10_000
EXAMPLE = "--param hyperparams.learning_rate=1e-4,3e-4 or --param seed=0..3"
_RANGE = re.compile(r"\s*(-?\d+)\s*\.\.\s*(-?\d+)\s*")
_OPENING, _CLOSING = "[{(", "]})"


@dataclass(frozen=True)
class Parameter:
    """One axis of the grid: a key of the run and the values that it takes, as texts."""

    key: str
    values: tuple[str, ...]


Point = tuple[tuple[str, str], ...]


def parse_parameters(texts: Sequence[str]) -> tuple[Parameter, ...]:
    """Return the axes that `--param` options give.

    Raises:
        BadInput: one is empty, no key=values, a silly range, or given twice; or there are too many trials.
    """
    parameters = tuple(parse_parameter(text) for text in texts)
    if not parameters:
        raise BadInput("a sweep needs something to vary", hint=EXAMPLE)
    keys = [parameter.key.replace("-", "_") for parameter in parameters]
    for key in keys:
        if keys.count(key) > 1:
            raise BadInput(f"--param {key} is given {keys.count(key)} times", hint=f"--param {key}=V1,V2,V3")
    trials = 1
    for parameter in parameters:
        trials *= len(parameter.values)
    if trials > MOST_TRIALS:
        sizes = " x ".join(str(len(parameter.values)) for parameter in parameters)
        raise BadInput(f"{sizes} = {trials:,} trials are more than {MOST_TRIALS:,}", hint="fewer values")
    return parameters


def parse_parameter(text: str) -> Parameter:
    """Return the axis that one `KEY=VALUES` gives.

    Raises:
        BadInput: it is none.
    """
    key, equals, values = text.partition("=")
    key = key.strip()
    if not equals or not key:
        raise BadInput(f"--param {text!r} is not KEY=VALUES", hint=EXAMPLE)
    if not values.strip():
        raise BadInput(f"--param {key} has no values", hint=EXAMPLE)
    listed = _range(key, values) if ".." in values else _split(values)
    if "" in listed:
        raise BadInput(f"--param {text!r} has an empty value", hint=f"--param {key}=V1,V2")
    twice = next((value for value in listed if listed.count(value) > 1), None)
    if twice is not None:
        raise BadInput(f"--param {key} has the value {twice} twice", hint="name each value once")
    return Parameter(key, tuple(listed))


def points(parameters: Sequence[Parameter]) -> list[Point]:
    """Return every combination; the last parameter changes fastest."""
    keys = [parameter.key for parameter in parameters]
    every = itertools.product(*(parameter.values for parameter in parameters))
    return [tuple(zip(keys, values, strict=True)) for values in every]


def _range(key: str, values: str) -> list[str]:
    found = _RANGE.fullmatch(values)
    if found is None:
        raise BadInput(
            f"--param {key}={values}: a range goes from one integer to another",
            hint=f"--param {key}=0..3 means 0, 1, 2, 3; anything else is listed: {key}=V1,V2",
        )
    first, last = int(found[1]), int(found[2])
    if last < first:
        raise BadInput(f"--param {key}={values} is an empty range", hint=f"--param {key}={last}..{first}")
    if last - first >= MOST_TRIALS:
        raise BadInput(f"--param {key}={values} are {last - first + 1:,} values, more than {MOST_TRIALS:,}")
    return [str(value) for value in range(first, last + 1)]


def _split(values: str) -> list[str]:
    """Return the texts between commas that are in no bracket: `[64,64],[32]` are two."""
    parts, depth, begin = [], 0, 0
    for at, character in enumerate(values):
        if character in _OPENING:
            depth += 1
        elif character in _CLOSING:
            depth -= 1
        elif character == "," and depth == 0:
            parts.append(values[begin:at].strip())
            begin = at + 1
    return [*parts, values[begin:].strip()]
