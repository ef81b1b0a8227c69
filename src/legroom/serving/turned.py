"""What was turned on the page, as options of `legroom predict`.

Only settings that the page's controls turn are handed on, and only as numbers, truths and known words.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

from legroom.model.run import Run
from legroom.serving.controls import control_by_key

MOST_WIDTHS = 64


def place_options(asked: Mapping[str, Any]) -> Iterator[str]:
    """Yield the options of `legroom predict` for a place that `place_asked` has read."""
    for name in ("ram", "vram", "gpu"):
        if asked.get(name):
            yield f"--{name}={asked[name]}"
    if asked.get("device") == "cpu":
        yield "--cpu-only"


def turned_settings(run: Run, data: Any) -> Iterator[str]:
    """Yield an option for every setting of the run that was turned in the data."""
    before = run.model_dump(exclude_defaults=True)
    for key, control in control_by_key(run).items():
        value = _at(data, key)
        if value == _at(before, key) or not _is_plain(value, control):
            continue
        yield "--set"
        yield f"{key}={json.dumps(value)}"


def _at(data: Any, key: str) -> Any:
    for name in key.split("."):
        data = data.get(name) if isinstance(data, dict) else None
    return data


def _is_plain(value: Any, control: Mapping[str, Any]) -> bool:
    match control["kind"]:
        case "choice":
            return value is None or value in control["choices"]
        case "flag":
            return value is None or isinstance(value, bool)
        case "widths":
            return isinstance(value, list) and len(value) <= MOST_WIDTHS and all(_is_number(each) for each in value)
        case "text":
            return False  # schedules and the like, which memory does not depend on
    return value is None or _is_number(value)


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)
