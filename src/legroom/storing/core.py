"""The C core of lean storage. Where it could not be built, observations are stored plainly, and that is said once."""

import warnings
from functools import cache

from legroom.errors import BadInput

WAY_OUT = "install a C compiler, then legroom again: pip install --force-reinstall --no-deps --no-cache-dir legroom"

try:
    from legroom.storing._core import Store, block_sums, gather, gather_ring

    WHY_NOT = ""
except ImportError as error:
    Store = block_sums = gather = gather_ring = None  # type: ignore[assignment, misc]
    WHY_NOT = f"the C core of lean storage cannot be loaded ({error})"

__all__ = ["WAY_OUT", "WHY_NOT", "Store", "block_sums", "gather", "gather_ring", "need_core", "say_plain"]


@cache
def say_plain() -> None:
    """Warn, once in a process, that observations are stored plainly."""
    warnings.warn(f"{WHY_NOT}: observations are stored plainly ({WAY_OUT})", RuntimeWarning, stacklevel=2)


def need_core() -> None:
    """Refuse what there is no plain form of.

    Raises:
        BadInput: there is no core.
    """
    if WHY_NOT:
        raise BadInput(WHY_NOT, hint=WAY_OUT)
