"""What values a hyperparameter may have, as far as a wrong one would make a wrong prediction or a crash later on."""

from __future__ import annotations

import math
import re
from typing import Any

from legroom.model.draft import Vocabulary
from legroom.units import LARGEST

# Of the arguments that every algorithm takes (`NEUTRAL`): free ones, and whole numbers with the least.
_ANYTHING = ("tensorboard_log", "_init_setup_model")
_LEAST = {"stats_window_size": 1, "verbose": 0}
NO_DEFAULT = object()
# lin_2.5e-4, auto_0.1; a program of the user's own may know other words than the zoo
_SCHEDULE = re.compile(
    r"(?:lin|linear|const|constant|auto)|[a-z]+(?:_[a-z]+)*(?:_[0-9]*\.?[0-9]+(?:[eE][-+]?[0-9]+)?)+"
)


def checked(key: str, value: Any, default: Any, words: Vocabulary) -> tuple[Any, str]:
    """Return the value as the library would take it, and what is wrong with it ('' when nothing is).

    Args:
        default: what the algorithm's constructor has; tells truth values from numbers, and whether None is allowed.
            NO_DEFAULT where no constructor says what it is: then only sizes and counts are looked at.
        words: what the backend knows of its hyperparameters.
    """
    if key in words.free or key in _ANYTHING or (value is None and default is None):
        return value, ""
    if key == "train_freq":
        return _train_freq(value)
    if key in words.sizes or key in _LEAST or key in words.counts:
        return whole(value, words.counts.get(key, _LEAST.get(key, 1)))
    if default is NO_DEFAULT:
        return value, ""
    if isinstance(default, bool):
        return value, "" if value in (True, False) else f"must be true or false, got {shown(value)}"
    return value, _number(value)


def whole(value: Any, least: int) -> tuple[Any, str]:
    """Return `value` as an int and '' when it is a whole number of at least `least`; 1e6 is one."""
    if isinstance(value, float) and math.isfinite(value) and value == int(value):
        value = int(value)
    if isinstance(value, bool) or not isinstance(value, int):
        return value, f"must be a whole number, got {shown(value)}"
    if value < least:
        return value, f"must be at least {least}, got {shown(value)}"
    if value > LARGEST:
        return value, f"is over 2**63, got {shown(value)}"
    return value, ""


def net_arch_problem(value: Any) -> str:
    """Return what is wrong with SB3's `net_arch`: a list of widths, or a mapping of such lists ('' when nothing is)."""
    lists = list(value.values()) if isinstance(value, dict) else [value]
    for widths in lists:
        if not isinstance(widths, list | tuple):
            return f"must be a list of layer widths, got {shown(widths)}"
        for width in widths:
            # before SB3 1.8: [64, {pi: [64], vf: [64]}]
            problem = net_arch_problem(width) if isinstance(width, dict) else whole(width, 1)[1]
            if problem:
                return problem
    return ""


def shown(value: Any) -> str:
    """Return `value` as its user wrote it, cut to a readable length."""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, int) and abs(value) > 10**30:
        return f"a number of {value.bit_length()} bits"
    text = "nothing" if value is None else repr(value)
    return text if len(text) <= 60 else f"{text[:57]}..."


def _train_freq(value: Any) -> tuple[Any, str]:
    if isinstance(value, list | tuple) and len(value) == 2:
        number, problem = whole(value[0], 1)
        if not problem and value[1] not in ("step", "episode"):
            problem = f"must count 'step' or 'episode', got {shown(value[1])}"
        return [number, value[1]], problem
    return whole(value, 1)


def _number(value: Any) -> str:
    if isinstance(value, str):
        ok = _SCHEDULE.fullmatch(value.strip()) is not None
        return "" if ok else f"must be a number or a schedule such as lin_2.5e-4, got {shown(value)}"
    if isinstance(value, bool) or not (value is None or isinstance(value, int | float)):
        return f"must be a number, got {shown(value)}"
    if isinstance(value, int) and abs(value) > LARGEST:
        return f"is over 2**63, got {shown(value)}"
    if isinstance(value, float) and not math.isfinite(value):
        return f"must be a finite number, got {shown(value)}"
    return ""
