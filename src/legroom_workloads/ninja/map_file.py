"""Read and write levels as binary map files.

    offset      bytes       content
    0           8           b"NINJAMAP"
    8           1           version, 1
    9           1           0
    10          2           number of entity records, n, little endian
    12          966         tiles, 23 rows of 42, a byte each: the numbers of `tiles.SHAPES`
    978         5 n         entity records: type, x, y, orientation, mode, a byte each

A file without a header, 966 tiles and then records to its end, is read too; written is the one with a header.

x and y count quarters of a tile, 6 px, from the top left corner of the playfield, so 168 by 92 of them cover it.
Entity types: 0 start, 1 mine, 2 gold, 3 exit door, 4 exit switch; each level has one of 0, 3 and 4. Orientation (0 to
7) and mode (0 to 3) are kept for what might need them; these five do not, and both are written as 0.

A file is input from anywhere: whatever is wrong with it is said in one line, with the offset and the numbers.
"""

from __future__ import annotations

import struct
from pathlib import Path

import numpy as np

from legroom.extend import BadInput
from legroom_workloads.ninja.level import MOST_GOLD, MOST_MINES, Level, Place
from legroom_workloads.ninja.tiles import COLUMNS, ROWS, SHAPES, TILE

MAGIC, VERSION = b"NINJAMAP", 1
HEADER = struct.Struct("<8sBBH")
RECORD = struct.Struct("<BBBBB")
UNIT = TILE / 4  # px
TILES_NBYTES = ROWS * COLUMNS
START, MINE, GOLD, EXIT, SWITCH = range(5)
NAMES = ("start", "mine", "gold", "exit door", "exit switch")
NUMBERS = ((1, 1), (0, MOST_MINES), (0, MOST_GOLD), (1, 1), (1, 1))  # fewest and most, per type
MOST_ENTITIES = 3 + MOST_MINES + MOST_GOLD
ORIENTATIONS, MODES = 8, 4


def read_map(path: str | Path) -> Level:
    """Return the level of a map file.

    Raises:
        BadInput: it cannot be read or is no map, saying where and what.
    """
    try:
        data = Path(path).read_bytes()
    except (OSError, ValueError) as problem:
        reason = getattr(problem, "strerror", None) or problem
        raise BadInput(f"cannot be read: {reason}", path=path) from None
    return parse_map(data, path)


def parse_map(data: bytes, path: object = "map", *, name: str | None = None) -> Level:
    """Return the level of a map file's bytes.

    Raises:
        BadInput: they are no map, saying where and what.
    """
    tiles_at, count = _layout(data, path)
    tiles = np.frombuffer(data, np.uint8, TILES_NBYTES, tiles_at).reshape(ROWS, COLUMNS)
    wrong = np.argwhere(tiles >= len(SHAPES))
    if len(wrong):
        row, column = wrong[0].tolist()
        raise BadInput(
            f"byte {tiles_at + row * COLUMNS + column}: tile {tiles[row, column]} in row {row}, column {column}",
            path=path,
            hint=f"shapes are numbered 0 to {len(SHAPES) - 1}",
        )
    places: list[list[Place]] = [[] for _ in NAMES]
    for number in range(count):
        kind, place = _entity(data, tiles_at + TILES_NBYTES + RECORD.size * number, number, path)
        places[kind].append(place)
    for kind, (fewest, most) in enumerate(NUMBERS):
        found = len(places[kind])
        if not fewest <= found <= most:
            allowed = str(most) if fewest == most else f"{fewest} to {most}"
            raise BadInput(f"{found} records of type {kind}, {NAMES[kind]}", path=path, hint=f"a level has {allowed}")
    mines, gold = (np.array(places[kind], np.float32).reshape(-1, 2) for kind in (MINE, GOLD))
    start, switch, door = places[START][0], places[SWITCH][0], places[EXIT][0]
    return Level(name or Path(str(path)).stem, tiles, start, switch, door, mines, gold)


def _layout(data: bytes, path: object) -> tuple[int, int]:
    """Check header and length, and return where the tiles begin and how many records there are."""
    records, rest = divmod(len(data) - TILES_NBYTES, RECORD.size)
    if not data.startswith(MAGIC) and rest == 0 and 0 <= records <= MOST_ENTITIES:
        return 0, records
    if len(data) < HEADER.size:
        raise BadInput(f"{len(data)} bytes, and the header alone has {HEADER.size}", path=path)
    magic, version, zero, count = HEADER.unpack_from(data)
    if magic != MAGIC:
        raise BadInput(f"byte 0: begins with {magic!r}, a map with {MAGIC!r}", path=path)
    if version != VERSION or zero != 0:
        raise BadInput(f"byte 8: version {version}.{zero}, this legroom reads {VERSION}.0", path=path)
    if count > MOST_ENTITIES:
        raise BadInput(f"byte 10: {count} entity records", path=path, hint=f"at most {MOST_ENTITIES}")
    expected = HEADER.size + TILES_NBYTES + RECORD.size * count
    if len(data) != expected:
        raise BadInput(f"{len(data)} bytes, and {count} entity records make it {expected}", path=path)
    return HEADER.size, int(count)


def _entity(data: bytes, offset: int, number: int, path: object) -> tuple[int, Place]:
    kind, x, y, orientation, mode = RECORD.unpack_from(data, offset)
    for value, limit, what in (
        (kind, len(NAMES), "type"),
        (x, COLUMNS * 4 + 1, "x"),
        (y, ROWS * 4 + 1, "y"),
        (orientation, ORIENTATIONS, "orientation"),
        (mode, MODES, "mode"),
    ):
        if value >= limit:
            raise BadInput(f"byte {offset}: entity {number} has {what} {value}", path=path, hint=f"0 to {limit - 1}")
    return kind, (TILE + x * UNIT, TILE + y * UNIT)


def write_map(level: Level, path: str | Path) -> None:
    """Write a level as a map file; places are rounded to 6 px.

    Raises:
        BadInput: the file cannot be written.
    """
    try:
        Path(path).write_bytes(map_bytes(level))
    except OSError as problem:
        raise BadInput(f"cannot be written: {problem.strerror}", path=path) from None


def map_bytes(level: Level) -> bytes:
    """Return a level as the bytes of a map file."""
    entities = [
        (START, *level.start),
        (EXIT, *level.exit),
        (SWITCH, *level.switch),
        *((MINE, x, y) for x, y in level.mines.tolist()),
        *((GOLD, x, y) for x, y in level.gold.tolist()),
    ]
    records = (RECORD.pack(kind, round((x - TILE) / UNIT), round((y - TILE) / UNIT), 0, 0) for kind, x, y in entities)
    header = HEADER.pack(MAGIC, VERSION, 0, len(entities))
    return header + level.tiles.tobytes() + b"".join(records)
