"""Whose memory an array is: the attribute of the environment that holds it; runs in the child."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

DEPTH = 3  # env.game.screen.pixels
MOST_LOOKED_AT = 5_000  # attributes and items
MAX_WORK = 10_000  # of np.shares_memory, for views with odd strides
PLAIN = (str, bytes, int, float, bool, type(None), type)


def shares(one: np.ndarray, other: np.ndarray) -> bool:
    """Say whether two arrays have a byte in common; where that is hard to tell, whether they may."""
    if not np.may_share_memory(one, other):
        return False
    try:
        return bool(np.shares_memory(one, other, max_work=MAX_WORK))  # type: ignore[arg-type]  # any number will do
    except np.exceptions.TooHardError:
        return True


def name_owner(env: Any, array: np.ndarray) -> str:
    """Return the attribute (`self.screen`, `self.game.pixels`) that shares memory with `array`, empty for none.

    The environment itself is asked first, then the wrappers around it, from inside out.
    """
    links: list[Any] = []
    while env is not None and not any(env is link for link in links):
        links.append(env)
        env = vars(env).get("env") if hasattr(env, "__dict__") else None
    for link in reversed(links):
        for name, value in _arrays(link, links):
            if value is not array and shares(value, array):
                return f"{name} of {type(link).__name__}"
        for name, value in _arrays(link, links):
            if value is array:
                return f"{name} of {type(link).__name__}"
    return ""


def _arrays(link: Any, links: list[Any]) -> Iterator[tuple[str, np.ndarray]]:
    """Yield the arrays that can be reached from an environment, by the way there, nearest first."""
    seen = {id(other) for other in links if other is not link}
    level: list[tuple[str, Any]] = [("self", link)]
    looked_at = 0
    for _ in range(DEPTH + 1):
        following: list[tuple[str, Any]] = []
        for name, value in level:
            looked_at += 1
            if id(value) in seen or looked_at > MOST_LOOKED_AT:
                continue
            seen.add(id(value))
            if isinstance(value, np.ndarray):
                yield name, value
            else:
                following += _parts(name, value)
        level = following


def _parts(name: str, value: Any) -> list[tuple[str, Any]]:
    if isinstance(value, PLAIN) or type(value).__module__.startswith("gymnasium.spaces"):
        return []
    if isinstance(value, dict):
        return [(f"{name}[{key!r}]", part) for key, part in list(value.items())[:100]]
    if isinstance(value, list | tuple):
        return [(f"{name}[{number}]", part) for number, part in enumerate(value[:100])]
    if callable(value) or not hasattr(value, "__dict__"):
        return []
    return [(f"{name}.{attribute}", part) for attribute, part in list(vars(value).items())]
