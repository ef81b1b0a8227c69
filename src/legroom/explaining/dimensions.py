"""Which dimension of an array multiplies what: (2048, 4, 17, 49, 71, 58) is n_steps × n_envs × observation.

The traceback decides where it names the code that allocated. Without one the shape itself is read, which is a guess: an
array of five or more axes holds images or grids for steps and environments, and a first axis of fifty thousand and
more is a replay buffer's.
"""

from __future__ import annotations

from math import prod

from legroom.explaining.causes import REPLAY, RING, ROLLOUT, Layout
from legroom.explaining.sizes import item_bytes
from legroom.model.explanation import Dimension
from legroom.units import format_size

REPLAY_ROWS = 50_000
_KEYS = {"n_steps": "n_steps", "buffer rows": "buffer_size", "capacity": "buffer_size", "batch": "batch_size"}
_SMALLER = {"n_steps": 8, "buffer rows": 10, "capacity": 10, "batch": 4}


def name_dimensions(shape: tuple[int, ...] | None, layout: Layout | None) -> tuple[Dimension, ...]:
    """Return the factors of the shape, named by the layout, or by the look of the shape where there is none."""
    if not shape:
        return ()
    layout = layout if layout and len(shape) >= len(layout) - 1 else _guess(shape)
    if layout is None:
        return ()
    leading = len(layout) - 1
    named = [Dimension(name, (size,)) for name, size in zip(layout, shape[:leading], strict=False)]
    rest = shape[leading:]
    return (*named, Dimension(layout[-1], rest)) if rest else tuple(named)


def smaller(dimensions: tuple[Dimension, ...], dtype: str | None) -> str:
    """Return what turning the dimension that multiplies most freely would ask: `n_steps 256 instead of 2,048 …`."""
    each = item_bytes(dtype)
    for dimension in dimensions:
        parts = _SMALLER.get(dimension.name)
        if parts is None or each is None or dimension.sizes[0] < 4 * parts:
            continue
        size = dimension.sizes[0]
        total = prod(prod(d.sizes) for d in dimensions) * each // size * (size // parts)
        return f"{_KEYS[dimension.name]} {size // parts:,} instead of {size:,} would ask {format_size(total)}"
    return ""


def _guess(shape: tuple[int, ...]) -> Layout | None:
    if len(shape) >= 5 and shape[1] <= 4096:
        return REPLAY if shape[0] >= REPLAY_ROWS else ROLLOUT
    return RING if len(shape) >= 3 and shape[0] >= REPLAY_ROWS else None
