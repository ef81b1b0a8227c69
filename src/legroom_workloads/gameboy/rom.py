"""Read a ROM file and say what is wrong with it before the emulator does, which would do so at length.

The header of every Game Boy cartridge stands at 0x134: title, size, and a checksum that the console itself verifies, so
a file that fails it never ran on one.
"""

from __future__ import annotations

from pathlib import Path

from legroom.extend import BadInput

TITLE_AT, COLOUR_AT, SIZE_AT, CHECKSUM_AT = 0x134, 0x143, 0x148, 0x14D
HEADER_ENDS = 0x150
SMALLEST, LARGEST_SIZE_CODE = 32_768, 8  # 8 MiB
SUFFIXES = "a .gb or .gbc file"


def read_rom(path: str | Path) -> bytes:
    """Return the bytes of a ROM file.

    Raises:
        BadInput: it is missing, cannot be read, is no ROM, or is shorter than its header says.
    """
    file = Path(path)
    try:
        if file.is_dir():
            raise BadInput("is a directory", path=path, hint=SUFFIXES)
        if file.stat().st_size > SMALLEST << LARGEST_SIZE_CODE:
            raise BadInput(f"{file.stat().st_size:,} bytes, more than any Game Boy ROM has", path=path, hint=SUFFIXES)
        data = file.read_bytes()
    except FileNotFoundError:
        raise BadInput("no such ROM", path=path, hint=f"rom: {SUFFIXES} that you own") from None
    except (OSError, ValueError) as problem:
        raise BadInput(f"cannot be read: {getattr(problem, 'strerror', None) or problem}", path=path) from None
    check_rom(data, path)
    return data


def check_rom(data: bytes, path: object) -> None:
    """Raise BadInput unless the bytes are those of a Game Boy ROM, whole."""
    if len(data) < HEADER_ENDS:
        raise BadInput(f"{len(data):,} bytes, too short for a Game Boy ROM", path=path, hint="a ROM has 32,768 or more")
    expected = header_checksum(data)
    if data[CHECKSUM_AT] != expected:
        raise BadInput(
            f"not a Game Boy ROM, or a damaged one: header checksum {data[CHECKSUM_AT]:#04x}, computed {expected:#04x}",
            path=path,
            hint=SUFFIXES,
        )
    if data[SIZE_AT] > LARGEST_SIZE_CODE:
        raise BadInput(f"not a Game Boy ROM: size code {data[SIZE_AT]:#04x} in its header", path=path, hint=SUFFIXES)
    size = SMALLEST << data[SIZE_AT]
    if len(data) < size:
        raise BadInput(f"{len(data):,} bytes, and its header says {size:,}: too short", path=path, hint="copy it again")


def header_checksum(data: bytes | bytearray) -> int:
    """Return the checksum over title and sizes, as the console computes it."""
    checksum = 0
    for byte in data[TITLE_AT:CHECKSUM_AT]:
        checksum = (checksum - byte - 1) & 0xFF
    return checksum


def rom_title(data: bytes) -> str:
    """Return the title in the header, which is up to 16 letters."""
    raw = data[TITLE_AT:COLOUR_AT] if is_colour(data) else data[TITLE_AT : COLOUR_AT + 1]
    return raw.split(b"\0")[0].decode("ascii", "replace").strip()


def is_colour(data: bytes) -> bool:
    """Return whether the game uses the colours of a Game Boy Color."""
    return bool(data[COLOUR_AT] & 0x80)
