"""Rules and knobs of other distributions, found through the entry point groups `legroom.rules` and `legroom.knobs`.

An entry point names one of them, or a tuple. One that cannot be loaded is told of and left out: a broken package must
not take `check` away from the project that has it installed.
"""

from __future__ import annotations

import warnings
from functools import cache
from typing import Any

from legroom.extras import entry_points
from legroom.model.plan import Knob
from legroom.model.rule import Rule

RULE_GROUP, KNOB_GROUP = "legroom.rules", "legroom.knobs"
OUR_CODES = "LR"  # no other distribution's rules begin so


@cache
def plugged_rules() -> tuple[Rule, ...]:
    """Return the rules of other distributions."""
    rules = _loaded(RULE_GROUP, Rule)
    for rule in rules:
        if rule.code.startswith(OUR_CODES):
            _warn(f"rule {rule.code} {rule.name}", f"codes that begin with {OUR_CODES} are legroom's own")
    return tuple(rule for rule in rules if not rule.code.startswith(OUR_CODES))


@cache
def plugged_knobs() -> tuple[Knob, ...]:
    """Return the knobs of other distributions; their ladders are empty for runs that they do not concern."""
    return tuple(_loaded(KNOB_GROUP, Knob))


def _loaded(group: str, kind: type[Any]) -> list[Any]:
    found = []
    for point in entry_points(group):
        try:
            value = point.load()
        except Exception as error:  # whatever an import of another's package raises
            _warn(f"{group} {point.name!r}", f"{type(error).__name__}: {error}")
            continue
        values = value if isinstance(value, tuple | list) else (value,)
        wrong = [each for each in values if not isinstance(each, kind)]
        if wrong:
            _warn(f"{group} {point.name!r}", f"{type(wrong[0]).__name__} is not a {kind.__name__}")
        found += [each for each in values if isinstance(each, kind)]
    return found


def _warn(what: str, why: str) -> None:
    warnings.warn(f"legroom: {what} is skipped: {why}", stacklevel=3)
