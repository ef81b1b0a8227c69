"""A ROM and the cartridge file that belongs to it, read and checked together, before any console is started."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from legroom.extend import BadInput
from legroom_workloads.gameboy.build_rom import fighter_rom
from legroom_workloads.gameboy.cartridge import Cartridge, read_cartridge
from legroom_workloads.gameboy.rom import read_rom, rom_title


@dataclass(frozen=True)
class Game:
    """What a console is started with.

    Args:
        image: the ROM's bytes.
        name: of the ROM, for messages.
    """

    image: bytes
    name: str
    cartridge: Cartridge


def read_game(rom: str | Path | None = None, cartridge: str | Path | Cartridge | None = None) -> Game:
    """Return a game; without a ROM, the one that ships with legroom.

    Raises:
        BadInput: a ROM without a cartridge, a file of either that cannot be used, or two that do not belong together.
    """
    if rom is not None and cartridge is None:
        raise BadInput("a ROM without a cartridge file", path=rom, hint="cartridge: says where its numbers are")
    known = cartridge if isinstance(cartridge, Cartridge) else read_cartridge(cartridge)
    image = fighter_rom() if rom is None else read_rom(rom)
    title = rom_title(image)
    if known.rom_title and known.rom_title != title:
        raise BadInput(f"is for the ROM {known.rom_title!r}, not {title!r}", path=known.path)
    return Game(image, "the fighter game" if rom is None else str(rom), known)
