"""A Game Boy game as a gymnasium environment: one round of a fight per episode, seen as the console's picture.

The ROM is one that the user owns, with a cartridge file that says where in RAM health and result are; without either
it is the fighter game that ships with legroom. The console is started once and every episode begins from the state in
which the first round did, so a reset costs milliseconds and no title screen.

Importing this module imports neither torch nor PyBoy; making an environment imports PyBoy.
"""

from __future__ import annotations

import zlib
from array import array
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium import spaces
from numpy.typing import NDArray

from legroom.extend import BadInput
from legroom_workloads.gameboy.cartridge import Cartridge
from legroom_workloads.gameboy.emulator import Emulator
from legroom_workloads.gameboy.game import read_game
from legroom_workloads.gameboy.view import View

FRAMES_PER_S = 60
LARGEST_STATE = 4 << 20  # of PyBoy, for cartridges with much RAM
PREPARING_STEPS = 8
RENDER_MODES = (None, "rgb_array")
Frame = NDArray[np.uint8]


class GameBoyEnv(gym.Env[Frame, np.int64]):
    """Play rounds; the observation is uint8 [144, 160, 3], or what `grey`, `crop` and `downsample` make of it.

    The action is the number of one of the cartridge's actions, whose buttons are held for `action_repeat` frames. An
    episode ends when the cartridge says that the round is won, lost or drawn, and is truncated after its `max_frames`.
    Every `info` has the numbers that the cartridge names; the last one also `is_success`, `outcome` ("won", "lost",
    "drawn" or "time") and `frames`.

    Args:
        rom: a .gb or .gbc file; without one, the game that ships with legroom. A ROM needs a cartridge.
        cartridge: a cartridge file, or one that has been read.
        grey, crop, downsample: see `View`.
        action_repeat: frames per step; only the last of them is drawn and seen.
        save_state: a file written by PyBoy's save_state, to begin every episode from, instead of booting;
            buttons that were held in it are let go of.
        data: the same as `rom`, as `legroom train --data` names it.
        seed: of the first episode, when `reset` is given none.

    Raises:
        BadInput: a ROM, cartridge, save state or argument that cannot be used.
        MissingExtra: PyBoy is not installed.
    """

    metadata: dict[str, Any] = {"render_modes": ["rgb_array"], "render_fps": FRAMES_PER_S}  # noqa: RUF012
    score = "legroom_workloads.gameboy.score:score_policy"  # who judges a policy of this environment,
    picture = "legroom_workloads.gameboy.pictures:draw"  # and who draws its `last_episode`; by name, since it is heavy

    def __init__(
        self,
        rom: str | Path | None = None,
        cartridge: str | Path | Cartridge | None = None,
        *,
        grey: bool = False,
        action_repeat: int = 4,
        crop: Sequence[int] | None = None,
        downsample: int = 1,
        save_state: str | Path | None = None,
        render_mode: str | None = None,
        data: str | Path | None = None,
        seed: int | None = None,
    ) -> None:
        if rom is not None and data is not None:
            raise BadInput("both rom and data are given", hint="they mean the same")
        rom = data if rom is None else rom
        if isinstance(action_repeat, bool) or not isinstance(action_repeat, int) or not 1 <= action_repeat <= 600:
            raise BadInput(f"action_repeat is {action_repeat!r}", hint="a whole number, 1 to 600")
        if render_mode not in RENDER_MODES:
            raise BadInput(f"render_mode is {render_mode!r}", hint="rgb_array, or none: there is no window")
        self.render_mode, self.action_repeat = render_mode, action_repeat
        self._view = View.of(grey, crop, downsample)
        game = read_game(rom, cartridge)
        self.cartridge = game.cartridge
        start = None if save_state is None else _read_state(save_state)
        self._first_seed = seed
        self._buttons = tuple(self.cartridge.actions.values())
        self._emulator: Emulator | None = Emulator(game.image, game.name)
        try:
            if start is None:
                self._emulator.boot(self.cartridge.boot, self.cartridge.memory, self.cartridge.path)
            else:
                self._emulator.load(start, name=save_state)
                self._emulator.let_go()
        except BadInput:
            self.close()
            raise
        self._start = zlib.compress(self._emulator.save(), 1)  # 150 KB that are mostly zeros
        self._game_files = {"rom": rom, "cartridge": cartridge}
        self._begin(self._start)
        self._last: dict[str, Any] | None = None
        self._numbers = self._read()
        self._slots: list[Frame] = []
        self._turn = 0
        self.observation_space = spaces.Box(0, 255, self._view.shape, np.uint8)
        self.action_space = spaces.Discrete(len(self._buttons))

    @classmethod
    def prepare_workers(cls, **arguments: Any) -> None:
        """Do once what every worker process would do again: import PyBoy and build the ROM, before they are forked."""
        env = cls(**arguments)
        env.reset(seed=0)
        for step in range(PREPARING_STEPS):
            env.step(step % len(env._buttons))
        env.close()

    # -- episodes -----------------------------------------------------------------------------------------------------

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Frame, dict[str, Any]]:
        """Begin a round, varied by the environment's random numbers as the cartridge says."""
        super().reset(seed=self._first_seed if seed is None else seed)
        self._first_seed = None
        emulator, cartridge = self._console(), self.cartridge
        emulator.load(zlib.decompress(self._start))
        seed, waited = None, 0
        if cartridge.seed_to is not None:
            place = cartridge.memory[cartridge.seed_to]
            seed = int(self.np_random.integers(1, 256**place.nbytes))
            emulator.write(place, seed)
        if cartridge.wait_frames:
            waited = 1 + int(self.np_random.integers(cartridge.wait_frames))
            emulator.run(waited)
        self._begin(self._start, seed=seed, waited=waited)
        self._numbers = self._read()
        return self.observe(), dict(self._numbers)

    def step(self, action: Any) -> tuple[Frame, float, bool, bool, dict[str, Any]]:
        """Hold an action's buttons for `action_repeat` frames.

        Raises:
            BadInput: an action that there is not.
        """
        number = int(action)
        if not 0 <= number < len(self._buttons):
            raise BadInput(f"action {number}", hint=f"0 to {len(self._buttons) - 1}")
        emulator, cartridge, before = self._console(), self.cartridge, self._numbers
        emulator.run(self.action_repeat, self._buttons[number])
        self._actions.append(number)
        self._frames += self.action_repeat
        now = self._numbers = self._read()
        reward = cartridge.per_step
        for name, paid in cartridge.per_point_lost.items():
            reward += paid * max(before[name] - now[name], 0)  # a health that is filled up again costs nothing
        info: dict[str, Any] = dict(now)
        outcome = self._outcome()
        truncated = not outcome and self._frames >= cartridge.max_frames
        if outcome:
            reward += {"won": cartridge.won, "lost": cartridge.lost, "drawn": cartridge.drawn}[outcome]
        if outcome or truncated:
            info |= {"is_success": outcome == "won", "outcome": outcome or "time", "frames": self._frames}
            ended = {"actions": list(self._actions), "outcome": outcome or "time is up", "frames": self._frames}
            self._last = {**self._began, **ended}
        return self.observe(), reward, bool(outcome), truncated, info

    def _begin(self, start: bytes, held: Sequence[str] = (), *, frame: int = 0, **varied: int | None) -> None:
        """Keep from where the episode can be played again."""
        varied = {"seed": None, "waited": 0} | varied
        self._began = {"start": start, "held": tuple(held), "first_frame": frame, **varied}
        self._frames, self._actions = frame, array("H")

    @property
    def last_episode(self) -> dict[str, Any] | None:
        """All that `pictures.draw` needs to play the last finished episode again; None before the first."""
        if self._last is None:
            return None
        known = {
            "name": self.cartridge.name,
            "action_repeat": self.action_repeat,
            "health": list(self.cartridge.per_point_lost),
        }
        return {**self._game_files, **known, **self._last}

    def _outcome(self) -> str:
        """Return how the round ended, nothing while it goes on."""
        cartridge, numbers = self.cartridge, self._numbers
        for name, condition in (
            ("won", cartridge.won_when),
            ("lost", cartridge.lost_when),
            ("drawn", cartridge.drawn_when),
        ):
            if condition and all(numbers[each] == value for each, value in condition.items()):
                return name
        return ""

    def _read(self) -> dict[str, int]:
        emulator = self._console()
        return {name: emulator.read(place) for name, place in self.cartridge.memory.items()}

    def _console(self) -> Emulator:
        if self._emulator is None:
            raise BadInput("the environment has been closed")
        return self._emulator

    # -- observations -------------------------------------------------------------------------------------------------

    def observe(self) -> Frame:
        """Return the observation of the present state, safe to keep unless a worker's slots are bound."""
        place = self._slots[self._turn] if self._slots else np.empty(self._view.shape, np.uint8)
        emulator = self._console()
        self._view.write(emulator.screen, emulator.colour, place)
        return place

    def bind_observation(self, slots: list[Frame]) -> None:
        """From now on write observations into these arrays, whichever `write_to` names, and return those.

        Raises:
            BadInput: arrays that cannot hold the observation.
        """
        for slot in slots:
            if slot.shape != self._view.shape or slot.dtype != np.uint8:
                raise BadInput(f"a slot of {slot.dtype} {slot.shape}", hint=f"uint8 {self._view.shape}")
        self._slots, self._turn = list(slots), 0
        self.observe()

    def write_to(self, index: int) -> None:
        """Say which slot the next reset or step writes; the others stay as they are meanwhile."""
        self._turn = index

    # -- state --------------------------------------------------------------------------------------------------------

    def get_state(self) -> dict[str, Any]:
        """Return all that a continuation depends on: the console's save state, packed to some kilobytes."""
        emulator = self._console()
        return {
            "console": np.frombuffer(zlib.compress(emulator.save(), 1), np.uint8).copy(),
            "held": list(emulator.held),
            "frames": self._frames,
            "title": self.cartridge.name,
            "first_seed": self._first_seed,
            "rng": self.np_random.bit_generator.state,
        }

    def set_state(self, state: Mapping[str, Any]) -> None:
        """Continue from where `get_state` was called, and show it in every slot.

        Raises:
            BadInput: a state of another game, or none.
        """
        try:
            if state["title"] != self.cartridge.name:
                raise BadInput(f"the state to continue from is one of {state['title']}, not of {self.cartridge.name}")
            packed = np.asarray(state["console"], np.uint8).tobytes()
            unpacked = zlib.decompressobj().decompress(packed, LARGEST_STATE)
            self._console().load(unpacked, tuple(state["held"]))
            self._begin(packed, state["held"], frame=int(state["frames"]))
            self._first_seed = state["first_seed"]
            self.np_random.bit_generator.state = state["rng"]
        except (KeyError, ValueError, TypeError, zlib.error) as problem:
            raise BadInput(f"the state to continue from is not one of a Game Boy: {problem}") from None
        self._numbers = self._read()
        emulator = self._console()
        for slot in self._slots:
            self._view.write(emulator.screen, emulator.colour, slot)

    # -- pictures -----------------------------------------------------------------------------------------------------

    def render(self) -> Frame | None:  # type: ignore[override]
        """Return the console's picture, uint8 [144, 160, 3], whatever the observation shows of it."""
        return self._console().screen.copy() if self.render_mode == "rgb_array" else None

    def close(self) -> None:
        """Switch the console off, and let go of its memory."""
        if self._emulator is not None:
            self._emulator.stop()
            self._emulator = None


def _read_state(path: str | Path) -> bytes:
    try:
        if Path(path).stat().st_size > LARGEST_STATE:
            raise BadInput(f"{Path(path).stat().st_size:,} bytes are not a save state", path=path)
        return Path(path).read_bytes()
    except FileNotFoundError:
        raise BadInput("no such save state", path=path, hint="a file written by PyBoy's save_state") from None
    except (OSError, ValueError) as problem:
        raise BadInput(f"cannot be read: {getattr(problem, 'strerror', None) or problem}", path=path) from None
