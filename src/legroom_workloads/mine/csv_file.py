"""Read and write block models as CSV: one row per block, its centre, grades, minerals and tonnes.

Coordinates are what the file says they are, centres in metres or counted blocks; `grid` finds the blocks in them.
Columns are known by name, since every package exports them in its own order and among others.
"""

from __future__ import annotations

import csv
import os
import re
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from legroom.extend import BadInput
from legroom_workloads.mine.blocks import COLUMNS, BlockModel
from legroom_workloads.mine.csv_numbers import parse_carefully, parse_quickly
from legroom_workloads.mine.rows import check_numbers, placed

AXES = ("x", "y", "z")
FILE_COLUMNS = (
    *AXES,
    *("cu", "mo", "as", "clays", "bwi", "rec", "ton"),
    *("chalcocite", "bornite", "chalcopyrite", "tennantite", "molibdenite", "pyrite"),
)
OPTIONAL = "upl"


def read_csv(path: str | os.PathLike[str], fill_absent: bool = False) -> BlockModel:
    """Return the block model of a file.

    The columns may stand in any order, in capitals, among others; `upl` may be missing and is then all 0. Coordinates
    are block centres in metres or counted blocks; z grows upwards.

    Args:
        fill_absent: blocks of the grid that the file has not become air (no grades, no tonnes) instead of an error.

    Raises:
        BadInput: the file cannot be read, or does not describe a block model: with the lines.
    """
    path = Path(path)
    raw, text = _content(path)
    names = _header(path, text)
    wanted = [*FILE_COLUMNS, *([OPTIONAL] if OPTIONAL in names else [])]
    where = [names.index(name) for name in wanted]
    numbers = parse_quickly(raw[raw.find(b"\n") + 1 :], len(names), where) if b"\n" in raw else None
    if numbers is None:
        numbers, lines = parse_carefully(path, text, names, where)
    else:
        lines = np.arange(2, 2 + len(numbers))
    if len(numbers) == 0:
        raise BadInput("there is a header and no block", path=path)
    columns = dict(zip(wanted, numbers.T, strict=True))
    check_numbers(path, columns, lines)
    placement = placed(path, numbers[:, : len(AXES)], lines, fill_absent=fill_absent)
    channels = np.zeros((len(COLUMNS), placement.n_cells), np.float32)
    cells = placement.flat
    for channel, name in zip(channels, COLUMNS, strict=True):
        if name in columns:
            channel[cells] = columns[name]
    return BlockModel(channels.reshape(len(COLUMNS), *placement.shape), path.stem, placement.size_m)


def write_csv(model: BlockModel, path: str | os.PathLike[str]) -> None:
    """Write a block model, centres in metres, so that reading it gives the same float32 numbers back.

    `upl` is left out where the model has none. The file appears whole or not at all.

    Raises:
        BadInput: the file cannot be written.
    """
    path = Path(path)
    nx, ny, nz = model.shape
    x, y, up = ((np.arange(n) + 0.5) * size for n, size in zip(model.shape, model.size_m, strict=True))
    columns = {name: _shortest(channel.ravel()) for name, channel in zip(COLUMNS, model.channels, strict=True)}
    columns["x"] = [text for text in map(repr, x.tolist()) for _ in range(ny * nz)]
    columns["y"] = [text for text in map(repr, y.tolist()) for _ in range(nz)] * nx
    columns["z"] = [repr(centre) for centre in up[::-1].tolist()] * (nx * ny)  # the top bench is the highest
    wanted = [*FILE_COLUMNS, *([OPTIONAL] if model.column(OPTIONAL).any() else [])]
    temporary = path.with_name(f"{path.name}.{os.getpid()}.tmp")
    try:
        with temporary.open("w", encoding="utf-8", newline="") as file:
            file.write(",".join(wanted) + "\n")
            file.writelines(",".join(row) + "\n" for row in zip(*(columns[name] for name in wanted), strict=True))
        temporary.replace(path)
    except OSError as problem:
        temporary.unlink(missing_ok=True)
        raise BadInput(f"cannot write: {problem.strerror}", path=path) from problem


def _shortest(values: NDArray[np.float32]) -> list[str]:
    """Return the shortest texts that give the same float32 back; many blocks share a number, so each is made once."""
    different, which = np.unique(values, return_inverse=True)
    texts = [np.format_float_positional(value, trim="-") for value in different]
    return np.array(texts, dtype=object)[which].tolist()


def _content(path: Path) -> tuple[bytes, str]:
    """Return a file as bytes, which are quick to search, and as text."""
    try:
        raw = path.read_bytes()
    except OSError as problem:
        raise BadInput(f"cannot read: {problem.strerror}", path=path) from problem
    try:
        text = raw.decode("utf-8-sig")
    except UnicodeDecodeError as problem:
        line = raw.count(b"\n", 0, problem.start) + 1
        raise BadInput("is not UTF-8 text", path=path, line=line, hint="export it as CSV in UTF-8") from None
    if not text.strip():
        raise BadInput("the file is empty", path=path, hint=f"a header and one row per block: {','.join(FILE_COLUMNS)}")
    return raw, text


def _header(path: Path, text: str) -> list[str]:
    """Return the column names of the first line, in lower case."""
    first = re.split(r"[\r\n]", text, maxsplit=1)[0]
    names = [name.strip().lower() for name in next(csv.reader([first], skipinitialspace=True), [])]
    missing = [name for name in FILE_COLUMNS if name not in names]
    if missing:
        separated = next((mark for mark in ";\t" if mark in first and "," not in first), None)
        found = ", ".join(names)[:200]
        hint = f"separate columns by commas, not by {separated!r}" if separated else f"found: {found or 'none'}"
        plural = "s are" if len(missing) > 1 else " is"
        raise BadInput(f"{len(missing)} column{plural} missing: {', '.join(missing)}", path=path, line=1, hint=hint)
    twice = sorted({name for name in names if names.count(name) > 1 and name in (*FILE_COLUMNS, OPTIONAL)})
    if twice:
        raise BadInput(f"column {', '.join(twice)} is there twice", path=path, line=1, hint="rename or delete one")
    return names
