"""The fixtures of `explain`: texts in the formats of real ones, written for these tests, and what is right."""

import json
from pathlib import Path
from typing import Any

from legroom.explaining import Explanation

TEXTS = Path(__file__).parent / "texts"
EXPECTED: dict[str, dict[str, Any]] = json.loads((TEXTS / "expected.json").read_text())
NAMES = sorted(EXPECTED)
KEYS = ("kind", "certain", "requested", "capacity", "free", "allocated", "reserved_unallocated", "shape", "dtype")


def text_of(name: str) -> str:
    return (TEXTS / name).read_text()


def facts(found: Explanation) -> dict[str, Any]:
    """Return what the contract promises about an explanation, without words."""
    values = {key: getattr(found, key) for key in KEYS}
    return values | {"shape": None if found.shape is None else list(found.shape)}
