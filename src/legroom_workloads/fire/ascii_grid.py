"""Read and write ASCII grids (.asc): six lines of header, then numbers from north to south and west to east.

Read here and not by rasterio, so that a message can name the line that is wrong.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from legroom.extend import BadInput

REQUIRED = ("ncols", "nrows", "cellsize")
HEADER = {*REQUIRED, "xllcorner", "yllcorner", "xllcenter", "yllcenter", "nodata_value"}
DEFAULT_NODATA = -9999.0
MOST_CELLS = 100_000_000


@dataclass(frozen=True, eq=False)
class Grid:
    """One layer: values [H, W], the edge of a cell in metres, and where there is no value."""

    values: NDArray[np.float64]
    cell_m: float
    missing: NDArray[np.bool_]


def read_ascii(path: Path) -> Grid:
    """Return the grid of a file.

    Raises:
        BadInput: it cannot be read, or not an ASCII grid; says in which line.
    """
    try:
        lines = path.read_text("ascii").splitlines()
    except OSError as problem:
        raise BadInput(f"cannot be read: {problem.strerror}", path=path) from None
    except UnicodeDecodeError:
        raise BadInput("not an ASCII grid", path=path, hint="it is not text") from None
    header, first = _header(lines, path)
    columns, rows = (_whole(header[name], name, path) for name in ("ncols", "nrows"))
    if columns * rows > MOST_CELLS:
        raise BadInput(f"{rows:,}x{columns:,} cells", path=path, hint=f"at most {MOST_CELLS:,}")
    if not 0 < header["cellsize"] < 1e6:
        raise BadInput(f"cellsize {header['cellsize']:g}", path=path, hint="metres, over 0")
    numbers: list[float] = []
    for number, line in enumerate(lines[first:], start=first + 1):
        try:
            numbers += map(float, line.split())
        except ValueError as problem:
            raise BadInput(f"not a number: {str(problem).rpartition(':')[2].strip()}", path=path, line=number) from None
        if len(numbers) > rows * columns:
            raise BadInput(f"more than {rows}x{columns} values", path=path, line=number)
    if len(numbers) != rows * columns:
        raise BadInput(f"{len(numbers)} values where the header says {rows}x{columns}", path=path)
    values = np.array(numbers).reshape(rows, columns)
    missing = ~np.isfinite(values) | (values == header.get("nodata_value", DEFAULT_NODATA))
    return Grid(values, header["cellsize"], missing)


def _header(lines: list[str], path: Path) -> tuple[dict[str, float], int]:
    """Return the header by name in small letters, and the index of the first line after it."""
    header: dict[str, float] = {}
    for index, line in enumerate(lines):
        words = line.split()
        if len(words) != 2 or words[0].lower() not in HEADER:
            break
        try:
            header[words[0].lower()] = float(words[1])
        except ValueError:
            raise BadInput(f"{words[0]} is {words[1]!r}", path=path, line=index + 1, hint="a number") from None
    missing = [name for name in REQUIRED if name not in header]
    if missing:
        raise BadInput(f"not an ASCII grid: no {', '.join(missing)}", path=path)
    return header, len(header)


def _whole(value: float, name: str, path: Path) -> int:
    if not 1 <= value <= MOST_CELLS or value != int(value):
        raise BadInput(f"{name} is {value:g}", path=path, hint="a whole number, 1 or more")
    return int(value)


def write_ascii(path: Path, values: NDArray[np.integer], *, cell_m: float) -> None:
    """Write whole numbers [H, W] as a grid."""
    rows, columns = values.shape
    header = f"ncols {columns}\nnrows {rows}\nxllcorner 0\nyllcorner 0\ncellsize {cell_m:g}\nNODATA_value -9999\n"
    path.write_text(header + "\n".join(" ".join(map(str, row)) for row in values.tolist()) + "\n")
