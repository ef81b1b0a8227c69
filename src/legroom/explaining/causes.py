"""What most likely allocated it, by the frames of the traceback: a table from frame to sentence (`programs.toml`).

The innermost frame that the table knows decides. `layout` names the axes of an array allocated there, as the library
orders them (stable_baselines3/common/buffers.py, release 2.9): (2048, 4, 17, 49, 71, 58) is n_steps × n_envs ×
observation. Without a traceback the shape itself is read, which is a guess: an array of five or more axes holds images
or grids for steps and environments, and a first axis of fifty thousand and more is a replay buffer's.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from math import prod

from legroom.explaining.frames import TracebackFrame
from legroom.explaining.log_programs import TABLE
from legroom.explaining.sizes import item_bytes
from legroom.model.trace import Dimension
from legroom.units import format_size

Layout = tuple[str, ...]  # names of the leading axes; the last name stands for all axes that follow


@dataclass(frozen=True)
class Cause:
    """Code that allocates and what it is for."""

    name: str  # what advice depends on; several rows may share one
    say: str
    pattern: str = ""  # searched in `path | function | code`, without regard to case
    layout: Layout | None = None
    # only the innermost three frames count: its words are so common that a caller's line may hold them too
    near: bool = False


NEAR = 3
_LAYOUTS: dict[str, Layout] = {name: tuple(axes) for name, axes in TABLE["layouts"].items()}
CAUSES = tuple(Cause(**{**row, "layout": _LAYOUTS.get(row.get("layout"))}) for row in TABLE["cause"])
BY_SHAPE = {axis: Cause(**row) for axis, row in TABLE["shapes"].items()}
REPLAY_ROWS = 50_000
_KEYS = {"n_steps": "n_steps", "buffer rows": "buffer_size", "capacity": "buffer_size", "batch": "batch_size"}
_SMALLER = {"n_steps": 8, "buffer rows": 10, "capacity": 10, "batch": 4}
_PATTERNS = tuple(re.compile(cause.pattern, re.IGNORECASE) for cause in CAUSES)


def likely_cause(frames: tuple[TracebackFrame, ...]) -> tuple[Cause | None, TracebackFrame | None]:
    """Return what the table knows about the innermost frame it knows, and that frame."""
    for depth, frame in enumerate(reversed(frames)):
        for cause, pattern in zip(CAUSES, _PATTERNS, strict=True):
            if (depth < NEAR or not cause.near) and pattern.search(frame.signature):
                return cause, frame
    return None, None


def cause_text(cause: Cause | None, frame: TracebackFrame | None, frames: tuple[TracebackFrame, ...]) -> str:
    """Return the sentence: what it was, and where the user's own code stands."""
    own = next((f for f in reversed(frames) if not f.library), None)
    where = f"{own.name}:{own.line}" if own else f"{frame.name}:{frame.line}" if frame else ""
    if cause is None:
        return f"the line is {where}" if where else ""
    return f"{cause.say} ({where})" if where else cause.say


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
        return _LAYOUTS["replay" if shape[0] >= REPLAY_ROWS else "rollout"]
    return _LAYOUTS["ring"] if len(shape) >= 3 and shape[0] >= REPLAY_ROWS else None
