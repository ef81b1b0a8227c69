"""What the environment must know about a game, read from a small YAML file and checked.

A ROM says nothing about itself: which byte of RAM is whose health, which buttons mean something, how to get past the
title. A cartridge file says that, so that a game needs no code. `cartridges/fighter.yaml` is the one of the game that
ships with legroom, and shows every key.
"""

from __future__ import annotations

import difflib
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from legroom.extend import BadInput, Key, Lines, parse_yaml, read_text

VERSION = 1
BUTTONS = ("a", "b", "start", "select", "left", "right", "up", "down")
OURS = Path(__file__).parent / "cartridges" / "fighter.yaml"
FIRST_ADDRESS, LAST_ADDRESS = 0x8000, 0xFFFF  # below is the ROM
LONGEST_BOOT_FRAMES = 60 * 600
NEEDED = object()


@dataclass(frozen=True)
class Place:
    """A number in RAM: one byte, two with the low one first, or decimal digits of four bits each."""

    address: int
    nbytes: int = 1
    bcd: bool = False

    def value(self, data: Sequence[int]) -> int:
        """Return the number that these bytes mean."""
        number = 0
        for byte in reversed(data):
            number = number * 100 + (byte >> 4) * 10 + (byte & 15) if self.bcd else number * 256 + byte
        return number


@dataclass(frozen=True)
class BootStep:
    """Hold buttons for so many frames; with `until`, no longer than it takes for that to be so, or fail."""

    frames: int
    press: tuple[str, ...] = ()
    until: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True)
class Cartridge:
    """All that is known about a game; conditions map names of `memory` to the values that they must have."""

    name: str
    rom_title: str
    memory: Mapping[str, Place]
    boot: tuple[BootStep, ...]
    actions: Mapping[str, tuple[str, ...]]
    won_when: Mapping[str, int]
    lost_when: Mapping[str, int]
    drawn_when: Mapping[str, int]
    max_frames: int
    per_point_lost: Mapping[str, float]
    won: float
    lost: float
    drawn: float
    per_step: float
    seed_to: str | None
    wait_frames: int
    path: str


def read_cartridge(path: str | Path | None = None) -> Cartridge:
    """Return the cartridge of a file; that of the game that ships with legroom if none is named.

    Raises:
        BadInput: a file that cannot be read, or a key or value that cannot be used, with its line.
    """
    source = str(OURS if path is None else path)
    data, lines = parse_yaml(read_text(source), source)
    return _Reader(source, lines).cartridge(data)


class _Reader:
    """Takes values out of the file's data, each with its place in the file for when it is wrong."""

    def __init__(self, path: str, lines: Lines) -> None:
        self._path, self._lines = path, lines
        self._memory: dict[str, Place] = {}

    def cartridge(self, data: Any) -> Cartridge:
        names = ("cartridge", "name", "rom_title", "memory", "boot", "variety", "actions", "round", "rewards")
        top = self._section(data, (), names)
        if top.get("cartridge") != VERSION:
            raise self._bad((), "not a cartridge file", hint=f"its first line is cartridge: {VERSION}")
        memory = self._section(self._take(top, (), "memory"), ("memory",), None)
        for each, value in memory.items():
            self._memory[each] = self._place(value, ("memory", each))
        if not self._memory:
            raise self._bad(("memory",), "memory names nothing", hint="player_health: 0xC003, …")
        rounds = self._section(
            self._take(top, (), "round"), ("round",), ("won_when", "lost_when", "drawn_when", "max_frames")
        )
        rewards = self._section(
            self._take(top, (), "rewards", {}),
            ("rewards",),
            ("per_point_lost", "won", "lost", "drawn", "per_step"),
        )
        variety = self._section(self._take(top, (), "variety", {}), ("variety",), ("seed_to", "wait_frames"))
        won_when, lost_when, drawn_when = (
            self._condition(rounds.get(name, {}), ("round", name)) for name in ("won_when", "lost_when", "drawn_when")
        )
        if not (won_when or lost_when or drawn_when):
            raise self._bad(("round",), "no condition says when a round is over", hint="won_when: {enemy_health: 0}")
        seed_to = variety.get("seed_to")
        if seed_to is not None:
            self._known(seed_to, self._memory, ("variety", "seed_to"))
        per_point = self._section(rewards.get("per_point_lost", {}), ("rewards", "per_point_lost"), tuple(self._memory))
        won, lost, drawn, per_step = (
            self._number(rewards.get(name, 0.0), ("rewards", name)) for name in ("won", "lost", "drawn", "per_step")
        )
        return Cartridge(
            name=self._text(self._take(top, (), "name"), ("name",)),
            rom_title=self._text(top.get("rom_title", ""), ("rom_title",)),
            memory=self._memory,
            boot=self._boot(top.get("boot", [])),
            actions=self._actions(self._take(top, (), "actions")),
            won_when=won_when,
            lost_when=lost_when,
            drawn_when=drawn_when,
            max_frames=self._whole(self._take(rounds, ("round",), "max_frames"), ("round", "max_frames"), 1, 10**9),
            per_point_lost={
                name: self._number(each, ("rewards", "per_point_lost", name)) for name, each in per_point.items()
            },
            won=won,
            lost=lost,
            drawn=drawn,
            per_step=per_step,
            seed_to=seed_to,
            wait_frames=self._whole(variety.get("wait_frames", 0), ("variety", "wait_frames"), 0, 3600),
            path=self._path,
        )

    # -- parts --------------------------------------------------------------------------------------------------------

    def _place(self, value: Any, at: Key) -> Place:
        section = (
            self._section(value, at, ("address", "bytes", "bcd")) if isinstance(value, dict) else {"address": value}
        )
        nbytes = self._whole(section.get("bytes", 1), (*at, "bytes"), 1, 2)
        bcd = section.get("bcd", False)
        if not isinstance(bcd, bool):
            raise self._bad((*at, "bcd"), f"{_name(at)}.bcd is {bcd!r}", hint="true or false")
        address = self._take(section, at, "address")
        if isinstance(address, bool) or not isinstance(address, int) or not (
            FIRST_ADDRESS <= address <= LAST_ADDRESS + 1 - nbytes
        ):  # fmt: skip
            shown = f"{address:#06x}" if isinstance(address, int) and not isinstance(address, bool) else repr(address)
            raise self._bad(at, f"{_name(at)} is at {shown}", hint="an address in RAM, 0x8000 to 0xFFFF")
        return Place(address, nbytes, bcd)

    def _boot(self, value: Any) -> tuple[BootStep, ...]:
        steps = []
        for number, each in enumerate(self._list(value, ("boot",))):
            at: Key = ("boot", number)
            section = self._section(each, at, ("frames", "press", "until"))
            frames = self._whole(self._take(section, at, "frames"), (*at, "frames"), 1, LONGEST_BOOT_FRAMES)
            press = self._buttons(section.get("press", []), (*at, "press"))
            steps.append(BootStep(frames, press, self._condition(section.get("until", {}), (*at, "until"))))
        return tuple(steps)

    def _actions(self, value: Any) -> dict[str, tuple[str, ...]]:
        found: dict[str, tuple[str, ...]] = {}
        for number, each in enumerate(self._list(value, ("actions",))):
            at: Key = ("actions", number)
            if not isinstance(each, dict) or len(each) != 1:
                raise self._bad(at, f"{_name(at)} is {each!r}", hint="a name and its buttons: punch: [a]")
            ((name, buttons),) = each.items()
            if name in found:
                raise self._bad(at, f"there are two actions called {name}")
            found[str(name)] = self._buttons(buttons, (*at, name))
        if len(found) < 2:
            raise self._bad(("actions",), f"{len(found)} actions", hint="two or more")
        return found

    def _buttons(self, value: Any, at: Key) -> tuple[str, ...]:
        buttons = self._list(value, at)
        for each in buttons:
            self._known(each, BUTTONS, at)
        return tuple(buttons)

    def _condition(self, value: Any, at: Key) -> dict[str, int]:
        section = self._section(value, at, tuple(self._memory))
        return {name: self._whole(each, (*at, name), 0, 65_535) for name, each in section.items()}

    # -- values -------------------------------------------------------------------------------------------------------

    def _section(self, value: Any, at: Key, names: Sequence[str] | None) -> dict[str, Any]:
        if not isinstance(value, dict):
            raise self._bad(at, f"{_name(at)} is {value!r}", hint="keys and values")
        for key in value:
            if names is not None:
                self._known(key, names, (*at, key), where=at)
            elif not isinstance(key, str):
                raise self._bad((*at, key), f"{_name(at)} has the key {key!r}", hint="a name")
        return value

    def _known(
        self, value: Any, names: Sequence[str] | Mapping[str, Any], at: Key, *, where: Key | None = None
    ) -> None:
        if not isinstance(value, str) or value not in names:
            close = difflib.get_close_matches(str(value), list(names), n=1)
            hint = f"did you mean {close[0]}?" if close else f"one of {', '.join(names)}"
            what = f"{_name(at)} is {value!r}" if where is None else f"{_name(where)} has no key {value!r}"
            raise self._bad(at, what, hint=hint)

    def _take(self, section: Mapping[str, Any], at: Key, name: str, default: Any = NEEDED) -> Any:
        if name in section:
            return section[name]
        if default is NEEDED:
            raise self._bad(at, f"{_name(at)} has no {name}")
        return default

    def _list(self, value: Any, at: Key) -> list[Any]:
        if not isinstance(value, list):
            raise self._bad(at, f"{_name(at)} is {value!r}", hint="a list")
        return value

    def _text(self, value: Any, at: Key) -> str:
        if not isinstance(value, str):
            raise self._bad(at, f"{_name(at)} is {value!r}", hint="text")
        return value

    def _whole(self, value: Any, at: Key, least: int, most: int) -> int:
        if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= most:
            raise self._bad(at, f"{_name(at)} is {value!r}", hint=f"a whole number, {least} to {most:,}")
        return value

    def _number(self, value: Any, at: Key) -> float:
        if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
            raise self._bad(at, f"{_name(at)} is {value!r}", hint="a number")
        return float(value)

    def _bad(self, at: Key, message: str, *, hint: str = "") -> BadInput:
        while at and at not in self._lines:  # what is missing is missing from what is around it
            at = at[:-1]
        return BadInput(message, path=self._path, line=self._lines.get(at), hint=hint)


def _name(at: Key) -> str:
    """Return the place in the file as text: `boot[1].press`."""
    return "".join(f"[{each}]" if isinstance(each, int) else f".{each}" for each in at).lstrip(".") or "the file"
