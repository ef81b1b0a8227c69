"""Turn the rows of a CSV file into numbers: quickly when all is well, carefully when not.

NumPy's own text reader is quick and says little when it stumbles. Whatever is not rows of numbers makes `parse_quickly`
give up, and `parse_carefully` goes through the lines one by one and says which of them are wrong.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from legroom.extend import BadInput
from legroom_workloads.mine.rows import and_lines

COMMA, NEWLINE = b",\n"

Numbers = NDArray[np.float64]


def parse_quickly(body: bytes, n_columns: int, wanted: Sequence[int]) -> Numbers | None:
    """Return the wanted columns [rows, len(wanted)] of the lines after the header; None if they are not plain rows."""
    body = body.replace(b"\r\n", b"\n").rstrip() + b"\n"
    text = np.frombuffer(body, np.uint8)
    marks = text[(text == COMMA) | (text == NEWLINE)]
    if len(marks) % n_columns:
        return None
    marks = marks.reshape(-1, n_columns)  # asked here: with `usecols`, NumPy takes rows that are too long
    if (marks[:, :-1] != COMMA).any() or (marks[:, -1] != NEWLINE).any():
        return None
    try:
        return np.loadtxt(
            io.BytesIO(body), delimiter=",", usecols=wanted, quotechar='"', comments=None, ndmin=2, encoding="utf-8"
        )
    except ValueError:
        return None


def parse_carefully(
    path: Path, text: str, names: Sequence[str], wanted: Sequence[int]
) -> tuple[Numbers, NDArray[np.int64]]:
    """Return the wanted columns [rows, len(wanted)] of a whole file and the line of each row.

    Raises:
        BadInput: rows of another length than the header, or something that is not a number: with the lines.
    """
    reader = csv.reader(io.StringIO(text, newline=None), skipinitialspace=True)
    rows: list[list[float]] = []
    lines: list[int] = []
    ragged: list[tuple[int, int]] = []
    garbled: list[tuple[int, str, str]] = []
    for cells in _rows(path, reader):
        if reader.line_num == 1 or (len(cells) <= 1 and not "".join(cells).strip()):
            continue  # the header, a blank line
        if len(cells) != len(names):
            ragged.append((reader.line_num, len(cells)))
            continue
        try:
            rows.append([number(cells[column]) for column in wanted])
            lines.append(reader.line_num)
        except ValueError:
            garbled += [(reader.line_num, names[c], cells[c].strip()) for c in wanted if not _is_number(cells[c])]
    if ragged:
        line, count = ragged[0]
        message = f"{count} values, the header has {len(names)}{and_lines([line for line, _ in ragged])}"
        raise BadInput(message, path=path, line=line, hint="a decimal comma counts as a separator: use points")
    if garbled:
        line, name, cell = garbled[0]
        what = f"{name} is {cell[:40]!r}, not a number" if cell else f"{name} is empty"
        raise BadInput(f"{what}{and_lines([line for line, *_ in garbled])}", path=path, line=line)
    return np.array(rows, np.float64).reshape(-1, len(wanted)), np.array(lines, np.int64)


def _rows(path: Path, reader: Any) -> Iterator[list[str]]:
    """Yield the rows of a CSV reader, with its own complaints (a quote that never ends) in our words."""
    try:
        yield from reader
    except csv.Error as problem:
        raise BadInput(f"is not CSV: {problem}", path=path, line=reader.line_num) from None


def number(cell: str) -> float:
    """Return the number that a cell holds.

    Raises:
        ValueError: it holds none.
    """
    if "_" in cell:  # Python's float takes 1_000, files do not mean it
        raise ValueError(cell)
    return float(cell)


def _is_number(cell: str) -> bool:
    try:
        number(cell)
    except ValueError:
        return False
    return True
