"""Check the rows of a block model before they become a grid, and say which lines are wrong.

What is wrong in a block model is wrong in many rows as a rule (a column in other units, a bench exported twice), so a
message names the first lines and how many there are.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from legroom.extend import BadInput
from legroom_workloads.mine.blocks import COLUMNS, LARGEST_BLOCKS, PERCENT_COLUMNS
from legroom_workloads.mine.grid import Placement, place

SHOWN = 5  # lines or blocks that a message names

Numbers = NDArray[np.float64]
Lines = NDArray[np.int64]


def check_numbers(path: Path, columns: Mapping[str, Numbers], lines: Lines) -> None:
    """Refuse values that no block can have; columns that are none of the model's may be any finite number.

    Raises:
        BadInput: with the lines.
    """
    for name, values in columns.items():
        with np.errstate(over="ignore"):
            finite = np.isfinite(values.astype(np.float32))
        _refuse(path, lines, ~finite, values, f"{name} is {{}}, not a finite number")
    for name, values in columns.items():
        if name not in COLUMNS:
            continue
        _refuse(path, lines, values < 0, values, f"{name} is {{}}, negative", "air is a block with ton 0")
        if name in PERCENT_COLUMNS:
            _refuse(path, lines, values > 100, values, f"{name} is {{}}, over 100 %", "give percent, not ppm or g/t")
        if name == "upl":
            neither = (values != 0) & (values != 1)
            _refuse(path, lines, neither, values, f"{name} is {{}}", "1 in the ultimate pit, else 0")


def placed(path: Path, centres: Numbers, lines: Lines, *, fill_absent: bool) -> Placement:
    """Return where rows with these centres [n, 3] lie.

    Raises:
        BadInput: rows beside the grid, blocks given twice, blocks that are not there (unless they are to be filled).
    """
    placement = place(centres)
    if placement.off_grid.any():
        first = int(np.argmax(placement.off_grid))
        size = " x ".join(f"{edge:g}" for edge in placement.size_m)
        message = f"the centre {_at(centres[first])} is not on the grid{and_lines(lines[placement.off_grid])}"
        hint = f"blocks of {size} m fit most rows; a model with sub-blocks must be made regular first"
        raise BadInput(message, path=path, line=int(lines[first]), hint=hint)
    flat = placement.flat
    order = np.argsort(flat, kind="stable")
    repeats = np.sort(order[1:][flat[order][1:] == flat[order][:-1]])
    if len(repeats):
        first = int(repeats[0])
        original = int(lines[np.argmax(flat == flat[first])])
        message = f"the block at {_at(centres[first])} is already in line {original}{and_lines(lines[repeats])}"
        raise BadInput(message, path=path, line=int(lines[first]), hint="keep one row per block")
    _check_absent(path, placement, flat, fill_absent)
    return placement


def _check_absent(path: Path, placement: Placement, flat: Lines, fill_absent: bool) -> None:
    """Refuse a grid with holes unless they are meant to be air, and one too large to be meant at all."""
    absent = placement.n_cells - len(flat)
    shape = "x".join(map(str, placement.shape))
    if placement.n_cells > LARGEST_BLOCKS:
        message = f"the centres span a grid of {shape} = {placement.n_cells:,} blocks, {absent:,} of them absent"
        raise BadInput(message, path=path, hint="are the coordinates those of a regular grid?")
    if absent and not fill_absent:
        there = np.zeros(placement.n_cells, np.bool_)
        there[flat] = True
        shown = ", ".join(_at(placement.centre_of(int(cell))) for cell in np.flatnonzero(~there)[:SHOWN])
        more = ", …" if absent > SHOWN else ""
        message = f"{absent:,} of the {placement.n_cells:,} blocks of the grid {shape} are absent: {shown}{more}"
        raise BadInput(
            message, path=path, hint="add them, with ton 0 where there is air, or read with fill_absent=True"
        )


def _refuse(path: Path, lines: Lines, bad: NDArray[np.bool_], values: Numbers, what: str, hint: str = "") -> None:
    """Raise for the rows marked, if any; `{}` in `what` is the first bad value."""
    if bad.any():
        first = int(np.argmax(bad))
        message = what.format(f"{values[first]:g}") + and_lines(lines[bad])
        raise BadInput(message, path=path, line=int(lines[first]), hint=hint)


def _at(centre: Iterable[float]) -> str:
    """Return `(10, 30, 7.5)`."""
    return "({})".format(", ".join(f"{coordinate:.10g}" for coordinate in centre))


def and_lines(lines: Iterable[int]) -> str:
    """Return ` (3 rows: lines 2, 7, 9)`, nothing for a single one."""
    every = list(dict.fromkeys(int(line) for line in lines))
    if len(every) == 1:
        return ""
    more = ", …" if len(every) > SHOWN else ""
    return f" ({len(every):,} rows: lines {', '.join(map(str, every[:SHOWN]))}{more})"
