"""Build the fighter game that ships with legroom: a ROM of 32 KiB, assembled from source in some tens of milliseconds.

The environment builds it in memory when it is not given another ROM, so nothing binary is shipped or cached and there
is nothing that could be out of date. To have it as a file, for an emulator of your own:

    python -m legroom_workloads.gameboy.build_rom [fighter.gb]
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from functools import lru_cache
from pathlib import Path

from legroom.extend import LegroomError
from legroom_workloads.gameboy.art import background_tiles, pose_tiles
from legroom_workloads.gameboy.assembler import assemble
from legroom_workloads.gameboy.fighter_blows import BLOWS
from legroom_workloads.gameboy.fighter_main import MAIN
from legroom_workloads.gameboy.fighter_names import NAMES
from legroom_workloads.gameboy.fighter_opponent import OPPONENT
from legroom_workloads.gameboy.fighter_picture import PICTURE
from legroom_workloads.gameboy.rom import CHECKSUM_AT, TITLE_AT, header_checksum

TITLE = b"LEGROOMFIGHT"
ROM_BYTES = 32_768


@lru_cache(maxsize=1)
def fighter_rom() -> bytes:
    """Return the ROM of the fighter game."""
    image, names = assemble(NAMES + MAIN + BLOWS + OPPONENT + PICTURE, ROM_BYTES, name="the fighter game")
    for label, tiles in (("poses", pose_tiles()), ("scenery", background_tiles())):
        assert names[f"{label}_end"] - names[label] == len(tiles), f"{label}: {len(tiles)} bytes"
        image[names[label] : names[label] + len(tiles)] = tiles
    image[TITLE_AT : TITLE_AT + len(TITLE)] = TITLE
    image[CHECKSUM_AT] = header_checksum(image)
    image[0x14E:0x150] = (sum(image) & 0xFFFF).to_bytes(2, "big")  # of all bytes but these two, still 0
    return bytes(image)


def main(arguments: Sequence[str]) -> int:
    """Write the ROM to the file that is named, `fighter.gb` if none is."""
    target = Path(arguments[0] if arguments else "fighter.gb")
    try:
        target.write_bytes(fighter_rom())
    except (OSError, LegroomError) as problem:
        sys.stderr.write(f"{target}: cannot be written: {problem}\n")
        return 2
    sys.stdout.write(f"{target}: {len(fighter_rom()):,} bytes\n")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
