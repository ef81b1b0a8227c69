"""PyBoy as the environment uses it: no window, no sound, no files beside the ROM, and errors of one line.

Everything goes in and out of PyBoy as bytes in memory. Given a path it would read, and on stopping write, a save file
beside the ROM, and environments side by side would share that.
"""

from __future__ import annotations

import io
import warnings
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from legroom.extend import BadInput, MissingExtra
from legroom_workloads.gameboy.cartridge import BUTTONS, BootStep, Place
from legroom_workloads.gameboy.rom import is_colour

GREYS = (0xFFFFFF, 0xAAAAAA, 0x555555, 0x000000)  # red, green and blue alike, so that one of them is the grey


class Emulator:
    """One console with one ROM in it, switched on.

    Args:
        rom: the bytes of a checked ROM.

    Raises:
        MissingExtra: PyBoy is not installed.
        BadInput: a ROM that PyBoy refuses.
    """

    def __init__(self, rom: bytes, name: object) -> None:
        make = _pyboy()
        self.colour = is_colour(rom)
        try:
            self._pyboy = make(
                io.BytesIO(rom),
                window="null",
                sound_emulated=False,
                no_input=True,
                log_level="CRITICAL",
                color_palette=GREYS,
                cgb=self.colour,
            )
        except Exception as problem:  # PyBoy raises its own and Python's, whatever its parser met
            raise BadInput(f"PyBoy cannot run it: {problem}", path=name, hint="is it a Game Boy ROM?") from None
        self._pyboy.set_emulation_speed(0)
        self.held: tuple[str, ...] = ()

    @property
    def screen(self) -> NDArray[np.uint8]:
        """The last picture, uint8 [144, 160, 3]: a view that the next frame writes over."""
        screen: NDArray[np.uint8] = self._pyboy.screen.ndarray[:, :, :3]
        return screen

    def run(self, frames: int, buttons: Sequence[str] = (), *, render: bool = True) -> None:
        """Hold exactly these buttons for so many frames; the last of them is drawn."""
        if buttons != self.held:
            for button in self.held:
                if button not in buttons:
                    self._pyboy.button_release(button)
            for button in buttons:
                if button not in self.held:
                    self._pyboy.button_press(button)
            self.held = tuple(buttons)
        self._pyboy.tick(frames, render, False)

    def read(self, place: Place) -> int:
        """Return a number from RAM."""
        memory, address = self._pyboy.memory, place.address
        if place.nbytes == 1 and not place.bcd:
            return int(memory[address])
        return place.value([memory[address + offset] for offset in range(place.nbytes)])

    def write(self, place: Place, value: int) -> None:
        """Put a number into RAM, in binary."""
        for offset in range(place.nbytes):
            self._pyboy.memory[place.address + offset] = value >> 8 * offset & 0xFF

    def are(self, condition: Mapping[str, int], memory: Mapping[str, Place]) -> bool:
        """Return whether every number has the value that is named; nothing named is never so."""
        return bool(condition) and all(self.read(memory[name]) == value for name, value in condition.items())

    def boot(self, steps: Sequence[BootStep], memory: Mapping[str, Place], path: object) -> None:
        """Play the steps to the first round.

        Raises:
            BadInput: one that waits for something that does not come.
        """
        for number, step in enumerate(steps):
            for _ in range(step.frames if step.until else 1):
                if self.are(step.until, memory):
                    break
                self.run(1 if step.until else step.frames, step.press)
            if step.until and not self.are(step.until, memory):
                found = ", ".join(f"{name} is {self.read(memory[name])}" for name in step.until)
                raise BadInput(
                    f"boot[{number}]: after {step.frames:,} frames {found}",
                    path=path,
                    hint=f"waited for {dict(step.until)}",
                )
        self.let_go()

    def save(self) -> bytes:
        """Return the whole state of the console, its picture and the buttons that are held included."""
        stream = io.BytesIO()
        self._pyboy.save_state(stream)
        return stream.getvalue()

    def load(self, state: bytes, held: Sequence[str] = (), *, name: object = None) -> None:
        """Continue from a saved state; `held` says which buttons were, since the bytes do not say it to us.

        Raises:
            BadInput: bytes that are no state of this game; the console is then in an unknown one.
        """
        try:
            self._pyboy.load_state(io.BytesIO(state))
        except Exception as problem:  # of many kinds, by what the bytes happen to mean
            raise BadInput(f"no save state of this game: {problem}", path=name, hint="PyBoy's save_state") from None
        self.held = tuple(held)

    def let_go(self) -> None:
        """Let go of every button, also of those that a state from elsewhere holds, and let the console see it."""
        for button in BUTTONS:
            self._pyboy.button_release(button)
        self.held = ()
        self._pyboy.tick(1, True, False)

    def stop(self) -> None:
        """Switch off, saving nothing."""
        self._pyboy.stop(save=False)


def _pyboy() -> Any:
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # it says which window library it would use
            from pyboy import PyBoy  # not installed with legroom itself
    except ImportError:
        raise MissingExtra("gameboy", "pyboy", what="the Game Boy environment") from None
    return PyBoy
