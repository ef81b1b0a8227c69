"""JSON from strangers: bounded before it is parsed, plain numbers only, and errors that fit on a line."""

from __future__ import annotations

import json
import math
import re
from typing import Any, NoReturn

from legroom.errors import BadInput

DEEPEST = 40  # run files have five levels, a brax network a few more
LONGEST_NUMBER = 40  # digits; Python takes quadratic time to read thousands of them
_STRING = re.compile(r'"(?:[^"\\]|\\.)*"', re.DOTALL)
_BRACKETS = re.compile(r"[\[\]{}]")
_LONG_NUMBER = re.compile(rf"\d{{{LONGEST_NUMBER + 1}}}")


def parse_json(data: bytes) -> Any:
    """Return the value that the text holds.

    Raises:
        BadInput: it is not UTF-8, not JSON, nested too deeply, or holds a number that is none.
    """
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError:
        raise BadInput("the request is not UTF-8 text", hint="send JSON") from None
    bare = _STRING.sub('""', text)
    depth = 0
    for bracket in _BRACKETS.finditer(bare):
        depth += 1 if bracket[0] in "[{" else -1
        if depth > DEEPEST:
            raise BadInput(f"the request is nested more than {DEEPEST} levels deep", hint="run files are flat")
    if _LONG_NUMBER.search(bare):
        raise BadInput(f"the request holds a number of more than {LONGEST_NUMBER} digits", hint="write a size")
    try:
        return json.loads(text, parse_constant=_no_number, parse_float=_finite)
    except (ValueError, RecursionError) as error:
        where = f" at line {error.lineno}" if isinstance(error, json.JSONDecodeError) else ""
        raise BadInput(f"the request is not JSON{where}", hint='send a run as {"algo": …, "env": …}') from None


def _no_number(name: str) -> NoReturn:
    raise BadInput(f"the request holds {name}, which is not a number", hint="leave it out")


def _finite(text: str) -> float:
    number = float(text)
    if not math.isfinite(number):
        raise BadInput(f"the request holds {text}, which is too large for a number", hint="write a size")
    return number
