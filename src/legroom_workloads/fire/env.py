"""Wildfire as a gymnasium environment: where to cut fuel breaks so that the least area burns.

An episode is one landscape, one wind and `sims` ignitions, the same from its first step to its last. So the reward of a
step is what *its* breaks have saved, and not the luck of other ignitions; the next episode has others.

Importing this module imports neither torch nor rasterio: it is what a worker process holds.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium import spaces
from numpy.typing import NDArray

from legroom.extend import BadInput
from legroom_workloads.fire.choosing import cells_of
from legroom_workloads.fire.landscapes import Landscapes, from_files, generated
from legroom_workloads.fire.observation import CHANNELS, Packed, Scene, check_slots
from legroom_workloads.fire.rasters import Tile
from legroom_workloads.fire.rothermel import Moisture, fire_bed
from legroom_workloads.fire.spread import Ellipses, Landscape, ellipses
from legroom_workloads.fire.weather import midflame_factor

KM_H_IN_M_MIN = 1000.0 / 60.0


class FireEnv(gym.Env[NDArray[np.float32], Any]):
    """Cut `budget` fuel breaks into a landscape, `breaks_per_step` (K) at a time.

    Action: K cells by number, row * W + column, MultiDiscrete([H·W] * K); or float values, one per cell, of which the K
    highest allowed ones are the action. It is a *set* of cells: an agent with one Q value per cell takes the K highest,
    the Q value of the set is the mean of theirs, and replay keeps the K numbers. A cell that `action_masks()` does not
    allow, or that is named twice, is a wasted break: it costs budget and changes nothing.

    Observation float32 [8, H, W]: slope, aspect, canopy cover, fuel model, and the rates of spread to the north, east,
    south and west; `pack()` has it as the smallest whole numbers, from which `observation.unpack` makes it bit for bit.

    Reward: by how much the mean burned area has become smaller, as a share of the raster. `sims` is how many ignitions
    that mean is over; it takes time in the environment's process, and no memory on any GPU. At the end `info` has
    `burned_before` and `burned`, mean cells without and with the breaks, and `wasted` breaks.

    Args:
        grid: rows and columns of generated landscapes.
        rasters: how many landscapes to generate, or where tiles are to be read from.
        first_raster: seed of the first generated one; others than the trained ones are held out.
        hours: how long a fire burns.
        wind_km_h: 6 m above the vegetation.
        wind_from_deg: clockwise from north; None: another one in every episode.
        moisture: fractions that differ from the defaults of `Moisture`, by name.
        neighbours: 8 or 16, see `spread`.
        copy: False returns one live array from every step, which the next step changes.
        seed: of the first episode, when `reset` is given none.

    Raises:
        BadInput: an argument or file that cannot be used.
    """

    metadata: dict[str, Any] = {"render_modes": ["rgb_array"], "render_fps": 2}  # noqa: RUF012  gymnasium's
    score = "legroom_workloads.fire.score:score_policy"  # who judges a policy of this environment,
    picture = "legroom_workloads.fire.pictures:draw"  # and who draws its `last_episode`; by name, since both are heavy

    def __init__(
        self,
        *,
        grid: Sequence[int] = (50, 50),
        rasters: int | str = 500,
        first_raster: int = 0,
        sims: int = 25,
        budget: int = 200,
        breaks_per_step: int = 10,
        hours: float = 24.0,
        wind_km_h: float = 25.0,
        wind_from_deg: float | None = None,
        moisture: Mapping[str, float] | None = None,
        neighbours: int = 16,
        copy: bool = True,
        seed: int | None = None,
        render_mode: str | None = None,
    ) -> None:
        self._sims, self.budget = _whole("sims", sims), _whole("budget", budget)
        self.breaks_per_step = _whole("breaks_per_step", breaks_per_step)
        self.limit_min = 60.0 * _positive("hours", hours)
        self._wind_m_min = KM_H_IN_M_MIN * _positive("wind_km_h", wind_km_h, or_0=True)
        self._wind_from_deg = None if wind_from_deg is None else _positive("wind_from_deg", wind_from_deg, or_0=True)
        self._neighbours, self._copy, self._first_seed = neighbours, bool(copy), seed
        if render_mode not in (None, *self.metadata["render_modes"]):
            raise BadInput(f"render_mode is {render_mode!r}", hint="rgb_array or none")
        self.render_mode = render_mode
        try:
            self._moisture = Moisture(**(moisture or {}))
        except TypeError:
            hint = ", ".join(vars(Moisture()))
            raise BadInput(f"moisture of {', '.join(map(str, moisture or {}))}", hint=f"of {hint}") from None
        self.landscapes = _find(rasters, grid, first_raster)
        height, width = self.landscapes.layers.shape[2:]
        self.shape = (height, width)
        if self.breaks_per_step > height * width:
            raise BadInput(f"{self.breaks_per_step} breaks per step in {height * width} cells")
        self._slots: list[NDArray[np.float32]] = []
        self._turn = 0
        self._last: dict[str, Any] | None = None
        low, high = np.zeros((8, height, width), np.float32), np.full((8, height, width), np.inf, np.float32)
        low[1] = -1.0  # the aspect of flat ground
        self.observation_space = spaces.Box(low, high, dtype=np.float32)
        cells = height * width
        self.action_space: spaces.Space[Any] = (
            spaces.MultiDiscrete([cells] * self.breaks_per_step) if self.breaks_per_step > 1 else spaces.Discrete(cells)
        )
        self._use(0, self._wind_from_deg or 0.0, None)

    @classmethod
    def prepare_workers(cls, **arguments: Any) -> None:
        """Do once what every worker process would do again; called in the process that they are forked from."""
        env = cls(**arguments)
        env.reset(seed=0)
        env.step(np.zeros(env.breaks_per_step, np.int64))

    # -- episodes -----------------------------------------------------------------------------------------------------

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[NDArray[np.float32], dict[str, Any]]:
        """Begin with another landscape, wind and ignitions, or with options {"raster": n} in landscape n.

        Raises:
            BadInput: there is no landscape of that number.
        """
        super().reset(seed=self._first_seed if seed is None else seed)
        self._first_seed = None
        index = int(self.np_random.integers(len(self.landscapes)))
        wanted = (options or {}).get("raster")
        if wanted is not None:
            index = _whole("raster", wanted, least=0)
            if index >= len(self.landscapes):
                raise BadInput(f"raster {index}", hint=f"0 to {len(self.landscapes) - 1}")
        wind = float(self.np_random.uniform(0, 360)) if self._wind_from_deg is None else self._wind_from_deg
        self._use(index, wind, None)
        return self.observe(), {}

    def _use(self, index: int, wind_from_deg: float, ignitions: NDArray[np.int64] | None) -> None:
        """Begin in landscape `index`; None draws the ignitions, among what burns."""
        tile = self.landscapes[index]
        growth = self._growth(tile, wind_from_deg)
        self._index, self._wind_now_deg = index, wind_from_deg
        self.landscape = Landscape(growth, cell_m=tile.cell_m, neighbours=self._neighbours)
        self._scene = Scene.of(tile, growth)
        if ignitions is None:
            fuel = np.flatnonzero(self.landscape.burnable)
            ignitions = fuel[self.np_random.integers(len(fuel), size=self._sims)] if len(fuel) else fuel
        self._ignitions = ignitions
        self.breaks = np.zeros(self.shape, np.bool_)
        self._spent = self._wasted = 0
        self._probability_before = self.burn_probability()
        self._burned_before = self._burned_now = float(self._probability_before.sum())

    def _growth(self, tile: Tile, wind_from_deg: float) -> Ellipses:
        bed = fire_bed(tile["fbfm40"], self._moisture)
        flat = tile["asp"] < 0
        return ellipses(
            bed,
            wind_m_min=self._wind_m_min * midflame_factor(tile),
            wind_to_rad=math.radians(wind_from_deg + 180.0),
            slope_rise_run=np.where(flat, 0.0, np.tan(np.radians(np.minimum(tile["slp"], 80)))),
            upslope_rad=np.radians(tile["asp"] + 180.0),
        )

    def burn_probability(self) -> NDArray[np.float64]:
        """Return the share of the ignitions that burns each cell with the present breaks, [H, W]."""
        if len(self._ignitions) == 0:
            return np.zeros(self.shape)
        return self.landscape.burned(self._ignitions, breaks=self.breaks, limit_min=self.limit_min).mean(axis=0)

    def step(self, action: Any) -> tuple[NDArray[np.float32], float, bool, bool, dict[str, Any]]:
        """Cut breaks in the cells of `action`, and let it burn.

        Raises:
            BadInput: an action that names no cells of the raster.
        """
        allowed = self.action_masks()
        count = min(self.breaks_per_step, self.budget - self._spent)
        wanted = cells_of(action, allowed, self.breaks_per_step)[:count]
        cells = np.unique(wanted[allowed[wanted]])
        self.breaks.ravel()[cells] = True
        self._spent += count
        self._wasted += count - len(cells)
        probability = self.burn_probability() if len(cells) else None
        burned = self._burned_now if probability is None else float(probability.sum())
        reward = (self._burned_now - burned) / self.breaks.size
        self._burned_now = burned
        terminated = self._spent >= self.budget or not self.action_masks().any()
        info: dict[str, Any] = {}
        if terminated:
            after = self.burn_probability() if probability is None else probability
            self._last = {
                "name": self.landscapes[self._index].name,
                "before": self._probability_before,
                "after": after,
                "breaks": self.breaks.copy(),
                "burnable": self.landscape.burnable.reshape(self.shape),
                "cell_m": self.landscapes.cell_m,
                "wind_km_h": self._wind_m_min / KM_H_IN_M_MIN,
                "wind_from_deg": self._wind_now_deg,
                "fires": len(self._ignitions),
                "hours": self.limit_min / 60.0,
            }
            info = {
                "burned_before": self._burned_before,
                "burned": burned,
                "wasted": self._wasted,
                "landscape": self._index,
            }
        return self.observe(), reward, terminated, False, info

    def action_masks(self) -> NDArray[np.bool_]:
        """Return in which cells a break can be cut, [H·W]: those that burn and are none yet."""
        return self.landscape.burnable & ~self.breaks.ravel()

    @property
    def last_episode(self) -> dict[str, Any] | None:
        """Burn probabilities [H, W] `before` and `after` the `breaks` of the last finished episode, None at first.

        Also what a picture of it says: `name`, `burnable` [H, W], `cell_m`, the wind, and how many `fires` of how many
        `hours` it was.
        """
        return self._last

    # -- observations -------------------------------------------------------------------------------------------------

    def observe(self) -> NDArray[np.float32]:
        """Return the observation of the present state."""
        if self._slots:
            place = self._slots[self._turn]
        else:
            place = np.empty((len(CHANNELS), *self.shape), np.float32)
            if not self._copy:
                self._slots = [place]
        self._scene.write(self.breaks, place)
        return place

    def pack(self) -> Packed:
        """Return the observation as whole numbers by channel, 13 bytes per cell."""
        return self._scene.pack(self.breaks)

    def bind_observation(self, slots: list[NDArray[np.float32]]) -> None:
        """From now on write observations into these arrays, whichever `write_to` names, and return that array itself.

        Raises:
            BadInput: an array that cannot hold the observation.
        """
        check_slots(slots, (len(CHANNELS), *self.shape))
        self._slots, self._turn = list(slots), 0
        self.observe()

    def write_to(self, index: int) -> None:
        """Say which slot the next reset or step brings up to date; the others stay as they are meanwhile."""
        self._turn = index

    # -- state --------------------------------------------------------------------------------------------------------

    def get_state(self) -> dict[str, Any]:
        """Return all that a continuation depends on: tens of kilobytes, for the pictures."""
        return {
            "raster": self._index,
            "wind_from_deg": self._wind_now_deg,
            "ignitions": self._ignitions.copy(),
            "breaks": np.flatnonzero(self.breaks),
            "spent": self._spent,
            "wasted": self._wasted,
            "first_seed": self._first_seed,
            "rng": self.np_random.bit_generator.state,
            "last": None if self._last is None else dict(self._last),
        }

    def set_state(self, state: Mapping[str, Any]) -> None:
        """Continue from where `get_state` was called, and show it in every slot.

        Raises:
            BadInput: a state of other landscapes.
        """
        try:
            index, cells = int(state["raster"]), np.asarray(state["breaks"], np.int64)
            ignitions = np.asarray(state["ignitions"], np.int64)
            inside = all(((a >= 0) & (a < self.breaks.size)).all() for a in (cells, ignitions))
            if not 0 <= index < len(self.landscapes) or not inside:
                raise ValueError(f"raster {index} of {len(self.landscapes)}")
            self._use(index, float(state["wind_from_deg"]), ignitions)
            self.breaks.ravel()[cells] = True
            self._spent, self._wasted = int(state["spent"]), int(state["wasted"])
            self._burned_now = float(self.burn_probability().sum())
            self._first_seed = state["first_seed"]
            self.np_random.bit_generator.state = state["rng"]
            self._last = None if state["last"] is None else dict(state["last"])
        except (KeyError, ValueError, TypeError) as problem:
            raise BadInput(f"the state to continue from is not one of these landscapes: {problem}") from None
        for slot in self._slots:
            self._scene.write(self.breaks, slot)

    def render(self) -> NDArray[np.uint8] | None:  # type: ignore[override]
        """Return the picture, uint8 [8·H, 8·W, 3]: redder the likelier a cell burns, breaks white, water blue."""
        if self.render_mode is None:
            return None
        probability = self.burn_probability()
        picture = np.stack([80 + 175 * probability, 110 - 80 * probability, 60 - 40 * probability], axis=-1)
        picture[~self.landscape.burnable.reshape(self.shape)] = (70, 90, 140)
        picture[self.breaks] = 255
        return picture.astype(np.uint8).repeat(8, axis=0).repeat(8, axis=1)


def _find(rasters: int | str, grid: Sequence[int], first_raster: int) -> Landscapes:
    if isinstance(rasters, str):
        return from_files(rasters)
    if len(grid) != 2 or not all(isinstance(edge, int | np.integer) for edge in grid):
        raise BadInput(f"grid {grid!r}", hint="rows and columns, as [50, 50]")
    return generated(rasters, (int(grid[0]), int(grid[1])), first_seed=_whole("first_raster", first_raster, least=0))


def _positive(name: str, value: Any, *, or_0: bool = False) -> float:
    number = isinstance(value, int | float | np.number) and not isinstance(value, bool) and math.isfinite(value)
    if not number or value < 0 or (value == 0 and not or_0):
        raise BadInput(f"{name} is {value!r}", hint="a number, 0 or more" if or_0 else "a number over 0")
    return float(value)


def _whole(name: str, value: Any, *, least: int = 1) -> int:
    if isinstance(value, bool) or not isinstance(value, int | np.integer) or value < least:
        raise BadInput(f"{name} is {value!r}", hint=f"a whole number, {least} or more")
    return int(value)
