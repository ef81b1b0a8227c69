"""What every attachment to a program of Stable-Baselines3 needs: the plan, and to say a thing once."""

from __future__ import annotations

from typing import Any

from legroom.hollow.attaching import plan, tell, user_line

# as they stand in paths: the line that counts is one of the program's
_LIBRARIES = ("/stable_baselines3/", "/sb3_contrib/", "/cleanrl_utils/", "/gymnasium/")
_told: set[tuple[Any, ...]] = set()


def wanted(name: str) -> bool:
    """Return whether this attachment is in the plan."""
    return name in plan().get("with", {})


def program_line() -> str:
    """Return the line of the program that is at work."""
    return user_line(_LIBRARIES)


def tell_once(name: str, attached: bool, text: str, where: str = "") -> None:
    """Say that something was attached, or was not and why; a program may make a thousand models in one line."""
    if (name, attached, text, where) not in _told:
        _told.add((name, attached, text, where))
        tell(name, attached, text, where)
