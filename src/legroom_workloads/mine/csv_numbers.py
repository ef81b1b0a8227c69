"""Turn the rows of a CSV file into numbers: quickly when all is well, carefully when not.

NumPy's own text reader takes a second for three million numbers and says little when it stumbles. `parse_quickly` works
on the bytes themselves: a plain decimal number is the sum of its digits times powers of ten, divided by a power of ten,
which array operations do for many thousand numbers at once. Up to 15 digits that is exact: the sum and the power are
whole numbers that float64 holds, and one division rounds once, as any correct reader does. Numbers written in another
way (1e-05, nan, 17 digits) go through `float` one by one.

Whatever is not rows of numbers makes it give up, and `parse_carefully` goes through the lines one by one and says
which of them are wrong.
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

COMMA, NEWLINE, RETURN, QUOTE, DOT, MINUS, ZERO = b',\n\r".-0'
MOST_DIGITS = 15  # of a whole number that float64 certainly holds
CHUNK_TOKENS = 1 << 14  # so that the arrays of a chunk stay in the processor's cache
POWERS = 10.0 ** np.arange(MOST_DIGITS + 1)

Numbers = NDArray[np.float64]
Bytes = NDArray[np.uint8]


def parse_quickly(body: bytes, n_columns: int, wanted: Sequence[int]) -> Numbers | None:
    """Return the wanted columns [rows, len(wanted)] of the lines after the header; None if they are not plain rows."""
    text = _without_ornaments(np.frombuffer(body.rstrip() + b"\n", np.uint8))
    ends = np.flatnonzero((text == COMMA) | (text == NEWLINE))
    if QUOTE in text or len(ends) % n_columns:
        return None
    marks = text[ends].reshape(-1, n_columns)
    if (marks[:, :-1] != COMMA).any() or (marks[:, -1] != NEWLINE).any():
        return None
    rows_per_chunk = max(CHUNK_TOKENS // n_columns, 1)
    columns = np.tile(np.isin(np.arange(n_columns), wanted), rows_per_chunk)
    row_ends, begin, parts = ends.reshape(-1, n_columns), 0, []
    for first in range(0, len(row_ends), rows_per_chunk):
        chunk_ends = row_ends[first : first + rows_per_chunk].ravel() - begin
        numbers = _decimals(text[begin : begin + chunk_ends[-1] + 1], chunk_ends, columns[: len(chunk_ends)])
        if numbers is None:
            return None
        parts.append(numbers.reshape(-1, n_columns)[:, list(wanted)])
        begin += int(chunk_ends[-1]) + 1
    return np.concatenate(parts)


def _without_ornaments(text: Bytes) -> Bytes:
    """Return the text without the carriage returns of its line ends and without the quotes around whole values."""
    if RETURN in text:
        text = text[~((text == RETURN) & (np.roll(text, -1) == NEWLINE))]
    if QUOTE in text:
        mark = (text == COMMA) | (text == NEWLINE)
        quote, values_before = text == QUOTE, np.cumsum(mark)
        opening, closing = quote & np.roll(mark, 1), quote & np.roll(mark, -1)  # the last mark stands before the first
        if np.array_equal(values_before[opening], values_before[closing]):  # each value opened is closed
            text = text[~(opening | closing)]
    return text


def _decimals(text: Bytes, ends: NDArray[np.int64], wanted: NDArray[np.bool_]) -> Numbers | None:
    """Return the numbers that end at `ends`, 0 for those not wanted that are none; None if a wanted one is none."""
    starts = np.concatenate([[0], ends[:-1] + 1])
    lengths = ends - starts
    token_of = np.repeat(np.arange(len(ends), dtype=np.int32), lengths + 1)
    digit = text - np.uint8(ZERO)
    is_digit, is_dot = digit < 10, text == DOT
    seen = np.cumsum(is_digit, dtype=np.int32)
    behind = seen[ends][token_of] - seen  # how many digits of its number stand to the right of each character
    n_digits = np.diff(seen[ends], prepend=0)
    n_dots = np.add.reduceat(is_dot, starts, dtype=np.int32)
    negative = text[starts] == MINUS
    whole = np.add.reduceat(np.where(is_digit, digit * POWERS.take(behind, mode="clip"), 0.0), starts)
    decimals = np.zeros(len(ends), np.int32)
    decimals[token_of[is_dot]] = behind[is_dot]
    values = whole / POWERS.take(decimals, mode="clip")
    values[negative] *= -1

    nothing_else = lengths == n_digits + n_dots + negative
    plain = nothing_else & (n_dots <= 1) & (n_digits >= 1) & (n_digits <= MOST_DIGITS)
    values[~plain & ~wanted] = 0.0
    for token in np.flatnonzero(~plain & wanted):
        try:
            values[token] = number(text[starts[token] : ends[token]].tobytes().decode())
        except ValueError:
            return None
    return values


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
