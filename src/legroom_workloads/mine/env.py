"""Open-pit scheduling as a gymnasium environment: which column of the pit to dig next.

The agent sees the whole block model, 17 channels of raw values, and picks a column; the topmost block left in it is
mined, if no block still lies on it within 45 degrees. The block goes to the mill or to the dump, whichever pays more,
and what it brings is discounted to today. The order of the digging is all there is to decide, and it decides a lot: of
a dollar that is earned after ten years, a third is left.

Time: a fleet moves `mining_rate` tonnes per day, and a block takes as long as the deposit's mean block, whatever its
own tonnes: shovels fill buckets by volume. So the k-th block is out on day k * days_per_block in every schedule, and
schedules differ only in *which* block that is, which keeps every one of them comparable with the greedy ones.

Where to dig: by default inside the ultimate pit, the closed set of blocks that is worth most undiscounted. Planners
schedule inside these limits, since outside them no block pays for the waste that must be moved for it;
`within="grid"` leaves it to the agent to find that out, and its episodes are as long as the grid has blocks.

Importing this module imports neither torch nor scipy: it is what a worker process holds.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any

import gymnasium as gym
import numpy as np
from numpy.typing import NDArray

from legroom.extend import BadInput
from legroom_workloads.mine.blocks import BlockModel, checked_grid
from legroom_workloads.mine.economics import Economics
from legroom_workloads.mine.observation import Cells, Copies, Digging, Scene, Slot, check_slots
from legroom_workloads.mine.precedence import Columns
from legroom_workloads.mine.prepared import Prepared, prepare, prepared
from legroom_workloads.mine.spaces import UniformBox

WITHIN = ("pit", "grid")
STEPS_PER_BLOCK = 10  # an agent that keeps choosing forbidden columns is cut off after so many steps per block
PIT_VALUE_IN_REWARDS = 10.0
EPISODE_SEEDS = 2**31
DEPOSITS_TRIED = 100


class MineEnv(gym.Env[NDArray[np.float32], np.int64]):
    """Dig a deposit block by block.

    Observation float32 [17, nx, ny, nz], raw values: 0-5 cu, mo, as, clays, bwi, rec; 6-11 minerals; 12 tonnes; 13
    mined (0, 1); 14 the day on which the block was out (0: not mined); 15 destination (0 not mined, 1 dump, 2 mill);
    16 ultimate pit. Action Discrete(nx * ny): column x * ny + y. A column that `action_masks()` does not allow changes
    nothing but the count of steps, and its reward is `-invalid_penalty`.

    Reward: the block's discounted value in units of `reward_scale` dollars. At the end of an episode `info` has the
    net present value of the schedule in dollars (`npv`), its `blocks` and its `days`.

    Args:
        model: the name of a generated deposit, or a BlockModel.
        data: a block model file to use instead.
        grid: blocks along x, y, z to which the deposit is brought; None or "data": its own.
        economics: prices that differ from the defaults of `Economics`, by name.
        mining_rate: tonnes that the fleet moves per day, ore and waste. At the default, pits of half a billion to a
            billion tonnes live for ten to twenty years, as copper mines of that size do.
        horizon: blocks after which planning ends; None: all that may be mined.
        within: "pit" or "grid", see above.
        reward_scale: dollars per unit of reward; None: a tenth of the pit's undiscounted value, so that an episode's
            return is between 0 and 10, the tenths of that bound which the schedule keeps after discounting. A network
            that learns such returns beside the policy neither drowns it in its loss nor has to grow first.
        new_geology: every episode digs another deposit of the same grid, generated, drawn from the env's random
            numbers.
        copy: False returns one live array from every step, which the next step changes! SB3 stores an observation only
            after the next step, so it would store the wrong one; LeanVecEnv does it right through `bind_observation`.
        seed: of the first episode, when `reset` is given none.

    Raises:
        BadInput: an argument, file or price that cannot be used; a deposit in which nothing pays.
    """

    metadata: dict[str, Any] = {"render_modes": ["rgb_array"], "render_fps": 10}  # noqa: RUF012  gymnasium's
    score = "legroom_workloads.mine.score:score_policy"  # who judges a policy of this environment,
    picture = "legroom_workloads.mine.pictures:draw"  # and who draws its `last_episode`; by name, since both are heavy

    def __init__(
        self,
        model: str | BlockModel = "sample",
        *,
        grid: Sequence[int] | str | None = None,
        data: str | None = None,
        economics: Economics | Mapping[str, Any] | None = None,
        mining_rate: float = 150_000.0,
        horizon: int | None = None,
        within: str = "pit",
        reward_scale: float | None = None,
        invalid_penalty: float = 0.01,
        new_geology: bool = False,
        copy: bool = True,
        seed: int | None = None,
        render_mode: str | None = None,
    ) -> None:
        if within not in WITHIN:
            raise BadInput(f"within is {within!r}", hint=f"one of {', '.join(WITHIN)}")
        if render_mode not in (None, *self.metadata["render_modes"]):
            raise BadInput(f"render_mode is {render_mode!r}", hint="rgb_array or none")
        if new_geology and (data is not None or isinstance(model, BlockModel)):
            raise BadInput(
                "new_geology generates deposits, but this one is given", hint="leave out data and new_geology"
            )
        self._mining_rate = _positive("mining_rate", mining_rate, "tonnes per day")
        self._horizon = None if horizon is None else _whole("horizon", horizon)
        self._reward_scale = None if reward_scale is None else _positive("reward_scale", reward_scale, "dollars")
        self._invalid_penalty = _at_least_0("invalid_penalty", invalid_penalty)
        self._within, self.new_geology, self._copy = within, bool(new_geology), bool(copy)
        self.economics = Economics.of(economics)
        self.render_mode = render_mode
        self._first_seed = seed
        self._slots: list[Slot] = []
        self._turn = 0
        self._copies = Copies()
        self._geology: int | None = None  # the seed of the deposit, where episodes have one of their own
        self._last: tuple[Cells, NDArray[np.float64]] | None = None
        self._use(self._find(model, data, grid))
        nx, ny, nz = self.prepared.shape
        self.observation_space = UniformBox(0.0, np.inf, (17, nx, ny, nz))
        self.action_space = gym.spaces.Discrete(nx * ny)

    def _find(self, model: str | BlockModel, data: str | None, grid: Sequence[int] | str | None) -> Prepared:
        if isinstance(model, BlockModel):
            if data is not None or grid not in (None, "data"):
                raise BadInput("a BlockModel is used as it is", hint="leave out data and grid")
            return prepare(model, self.economics)
        if isinstance(grid, str) and grid != "data":
            raise BadInput(f"grid {grid!r}", hint="three numbers of blocks, as [20, 20, 10], or data")
        blocks = None if grid is None or isinstance(grid, str) else checked_grid(grid)
        return prepared(str(data or model), blocks, self.economics)

    def _use(self, deposit: Prepared) -> None:
        """Make `deposit` the one that is dug."""
        tonnes, surface = deposit.tonnes, deposit.surface()
        limits = deposit.pit_depths() if self._within == "pit" else np.full_like(surface, deposit.shape[2])
        to_mine = int(np.maximum(limits - surface, 0).sum())
        if to_mine == 0:
            raise BadInput(f"{deposit.name}: no block pays at these prices", hint="within: grid mines it all the same")
        self.prepared = deposit
        self.days_per_block = float(tonnes.sum(dtype=np.float64) / np.count_nonzero(tonnes)) / self._mining_rate
        self.blocks_to_mine = min(to_mine, self._horizon or to_mine)
        self.discount_factors = self.economics.discount_factors(self.blocks_to_mine, self.days_per_block)
        self.reward_scale = self._reward_scale or _default_scale(deposit)
        self._values = deposit.values.reshape(-1)
        self._scene = Scene(deposit.ground, deposit.destination.reshape(-1), self.days_per_block)
        self._columns = Columns(surface, limits, deposit.slopes)
        self.restart()

    def restart(self) -> None:
        """Fill the pit again, in the present deposit, without looking."""
        self._columns.reset()
        self._digging = Digging(self.blocks_to_mine)
        self._steps, self._npv = 0, 0.0

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[NDArray[np.float32], dict[str, Any]]:
        """Fill the pit again, or go to another deposit, and return the observation."""
        super().reset(seed=self._first_seed if seed is None else seed)
        self._first_seed = None
        if self.new_geology:
            self._draw_geology()
        else:
            self.restart()
        return self.observe(), {}

    def _draw_geology(self) -> None:
        for _ in range(DEPOSITS_TRIED):  # one in which nothing pays is no mine
            self._geology = int(self.np_random.integers(EPISODE_SEEDS))
            with suppress(BadInput):
                return self._use(self._generate(self._geology))
        raise BadInput(f"in {DEPOSITS_TRIED} deposits no block pays at these prices", hint="within: grid mines them")

    def _generate(self, geology: int) -> Prepared:
        from legroom_workloads.mine.deposit import generate  # only where episodes differ

        return prepare(generate(self.prepared.shape, geology, size_m=self.prepared.size_m), self.economics)

    def step(self, action: Any) -> tuple[NDArray[np.float32], float, bool, bool, dict[str, Any]]:
        """Mine the topmost block of column `action`."""
        result = self.mine(int(action))
        return self.observe(), *result

    def mine(self, action: int) -> tuple[float, bool, bool, dict[str, Any]]:
        """Do what `step` does without looking: return reward, terminated, truncated and info."""
        nz = self.prepared.shape[2]
        x, y = divmod(action, self._columns.shape[1])
        self._steps += 1
        count = self._digging.count
        finished = count >= self.blocks_to_mine
        if finished or not (0 <= x < self._columns.shape[0] and self._columns.allowed(x, y)):
            truncated = self._steps >= STEPS_PER_BLOCK * self.blocks_to_mine
            info: dict[str, Any] = {"invalid_action": True} | (self._summary() if finished or truncated else {})
            return -self._invalid_penalty, finished, truncated and not finished, info
        cell = action * nz + self._columns.dig(x, y)
        self._digging.add(cell)
        earned = float(self._values[cell]) * float(self.discount_factors[count])
        self._npv += earned
        terminated = count + 1 == self.blocks_to_mine
        if terminated:
            self._keep_last()
        return earned / self.reward_scale, terminated, False, self._summary() if terminated else {}

    def action_masks(self) -> NDArray[np.bool_]:
        """Return which columns may be dug, [nx * ny]."""
        return self._columns.mask()

    def _summary(self) -> dict[str, Any]:
        return {"npv": self._npv, "blocks": self._digging.count, "days": self._digging.count * self.days_per_block}

    def observe(self) -> NDArray[np.float32]:
        """Return the observation of the present state."""
        if not self._slots:
            self._slots = [Slot(np.empty(self._scene.shape, np.float32))]
            self._turn = 0
        slot = self._slots[self._turn]
        slot.show(self._scene, self._digging)
        return self._copies.copy(slot.array) if self._copy else slot.array

    # -- observations in somebody else's memory ---------------------------------------------------------------------

    def bind_observation(self, slots: list[NDArray[np.float32]]) -> None:
        """From now on write observations into these arrays, whichever `write_to` names, and return that array itself.

        Raises:
            BadInput: an array that cannot hold the observation.
        """
        check_slots(slots, self._scene.shape)
        self._slots, self._turn, self._copy = [Slot(array) for array in slots], 0, False
        self.observe()

    def write_to(self, index: int) -> None:
        """Say which slot the next reset or step brings up to date; the others stay as they are meanwhile."""
        self._turn = index

    # -- state --------------------------------------------------------------------------------------------------------

    def get_state(self) -> dict[str, Any]:
        """Return all that a continuation depends on: a few kilobytes, since the rest follows from the deposit."""
        cells, curve = self._last if self._last is not None else (None, None)
        return {
            "cells": self._digging.cells.copy(),
            "steps": self._steps,
            "npv": self._npv,
            "geology": self._geology,
            "rng": self.np_random.bit_generator.state,
            "first_seed": self._first_seed,
            "last_cells": cells,
            "last_npv": curve,
        }

    def set_state(self, state: Mapping[str, Any]) -> None:
        """Continue from where `get_state` was called, and show it in every slot.

        Raises:
            BadInput: a state of another deposit or grid.
        """
        try:
            cells, geology = np.asarray(state["cells"], np.int32), state["geology"]
            if self.new_geology and geology is not None and geology != self._geology:
                self._use(self._generate(geology))
            self._columns.set_dug(cells // self.prepared.shape[2])
            self._digging = Digging.of(cells, self.blocks_to_mine)
            self._steps, self._npv, self._geology = int(state["steps"]), float(state["npv"]), geology
            self._first_seed = state["first_seed"]
            self.np_random.bit_generator.state = state["rng"]
            self._last = None if state["last_cells"] is None else (state["last_cells"], state["last_npv"])
        except (KeyError, ValueError, TypeError) as problem:
            raise BadInput(f"the state to continue from is not one of this deposit: {problem}") from None
        for slot in self._slots:
            slot.show(self._scene, self._digging)

    # -- what was done ------------------------------------------------------------------------------------------------

    def _keep_last(self) -> None:
        cells = self._digging.cells.copy()
        self._last = cells, np.cumsum(self._values[cells] * self.discount_factors)

    @property
    def last_episode(self) -> dict[str, Any] | None:
        """The last schedule that was finished, None before the first.

        `days` float32 [nx, ny, nz], when each block was out, 0: never; `npv` float64 [blocks], the dollars earned with
        each block and those before it; `days_per_block`; the deposit's `name` and its blocks' `size_m`.
        """
        if self._last is None:
            return None
        cells, npv = self._last
        days = np.zeros(self._values.size, np.float32)
        days[cells] = np.arange(1, len(cells) + 1) * self.days_per_block
        return {
            "name": self.prepared.name,
            "size_m": self.prepared.size_m,
            "days": days.reshape(self.prepared.shape),
            "npv": npv,
            "days_per_block": self.days_per_block,
        }

    def render(self) -> NDArray[np.uint8] | None:  # type: ignore[override]
        """Return the pit from above, uint8 [8 * nx, 8 * ny, 3]: the deeper, the darker; green may be dug next."""
        if self.render_mode is None:
            return None
        depth = self._columns.depths / self.prepared.shape[2]
        shade = 235 - 200 * depth
        picture = np.stack([shade, shade * 0.92, shade * 0.8], axis=-1)
        picture[self.action_masks().reshape(depth.shape)] *= (0.6, 1.0, 0.6)
        return picture.astype(np.uint8).repeat(8, axis=0).repeat(8, axis=1)


def _default_scale(deposit: Prepared) -> float:
    """Return the dollars of a unit of reward, for a pit without profit (one drawn by hand) by all the money moved."""
    total = float(deposit.values[deposit.pit].sum())
    return (total if total > 0 else float(np.abs(deposit.values).sum()) or 1.0) / PIT_VALUE_IN_REWARDS


def _positive(name: str, value: Any, unit: str) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value) or value <= 0:
        raise BadInput(f"{name} is {value!r}", hint=f"a number of {unit} over 0")
    return float(value)


def _at_least_0(name: str, value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value) or value < 0:
        raise BadInput(f"{name} is {value!r}", hint="a number, 0 or more")
    return float(value)


def _whole(name: str, value: Any) -> int:
    if isinstance(value, bool) or not isinstance(value, int | np.integer) or value < 1:
        raise BadInput(f"{name} is {value!r}", hint="a whole number of blocks, 1 or more")
    return int(value)
