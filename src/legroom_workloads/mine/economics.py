"""What a block is worth: prices, costs and the discount of future money.

A block pays for its metal only if it is milled, and it is milled only if that pays more than dumping it:

    milling  = ton * (cu% * rec% * 3.8 $/lb + mo% * rec% * 15 $/lb - processing - fixed - penalties)
    value    = max(milling, 0) - ton * mining

so that waste over the ore is never free: whatever is dug is dug at the mining cost. Grades are priced as they are in
the ground, in percent; a network may scale what it looks at, money may not be made of scaled numbers.

Two properties of the rock cost money at the mill. Hard rock (Bond work index over 15 kWh/t) takes more power and steel
to grind, and clay (over 3 %) slows filters and thickeners; both are charged per tonne milled and per unit *over* the
limit, so that a block at the limit pays nothing. The rates are of the size of power at 0.1 $/kWh with as much again in
wear, and of a few per cent of the mill's throughput per per cent of clay.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from typing import Any

import numpy as np
from numpy.typing import NDArray

from legroom.extend import BadInput
from legroom_workloads.mine.blocks import BlockModel

LB_PER_TONNE = 2204.62
DAYS_PER_YEAR = 365.0
DUMP, MILL = 0, 1


@dataclass(frozen=True)
class Economics:
    """Prices and costs in US dollars; the defaults are those of the workload.

    Args:
        mo_recovery_pct: share of the molybdenum that the mill recovers; None takes the block's own `rec`, as for
            copper.
        fixed_cost_per_t: general and administrative cost, charged, as is usual, per tonne *milled*.
        bwi_penalty_per_kwh: $ per tonne milled for each kWh/t of Bond work index over `bwi_limit`.
        clay_penalty_per_pct: $ per tonne milled for each per cent of clay over `clay_limit_pct`.
        discount_rate: of a year: 0.12 means that a dollar a year from now is worth 1/1.12 today.

    Raises:
        BadInput: a number that is negative or not finite.
    """

    cu_price_per_lb: float = 3.8
    mo_price_per_lb: float = 15.0
    mo_recovery_pct: float | None = None
    mining_cost_per_t: float = 2.5
    processing_cost_per_t: float = 8.0
    fixed_cost_per_t: float = 1.2
    bwi_limit: float = 15.0
    bwi_penalty_per_kwh: float = 0.2
    clay_limit_pct: float = 3.0
    clay_penalty_per_pct: float = 0.5
    discount_rate: float = 0.12

    def __post_init__(self) -> None:
        for name, value in dataclasses.asdict(self).items():
            if value is None and name == "mo_recovery_pct":
                continue
            if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value) or value < 0:
                raise BadInput(f"economics: {name} is {value!r}", hint="a number, 0 or more")

    @classmethod
    def of(cls, given: Economics | Mapping[str, Any] | None) -> Economics:
        """Return what a user wrote as Economics: nothing, some prices by name, or the object itself.

        Raises:
            BadInput: a price that does not exist or is no number.
        """
        if isinstance(given, Economics):
            return given
        if not isinstance(given, Mapping | None):
            raise BadInput(f"economics is {given!r}", hint="prices by name, e.g. {cu_price_per_lb: 4.1}")
        known = [field.name for field in dataclasses.fields(cls)]
        for name in given or {}:
            if name not in known:
                close = get_close_matches(str(name), known, 1, 0.4)
                raise BadInput(
                    f"economics has no {name!r}",
                    hint=f"did you mean {close[0]}?" if close else f"one of {', '.join(known)}",
                )
        return cls(**dict(given or {}))

    def discount_factors(self, count: int, days_per_block: float) -> NDArray[np.float64]:
        """Return what a dollar is worth today that the k-th block extracted brings, k = 0 … count - 1.

        The dollar is there when the block is out: the first block's after `days_per_block` days.
        """
        days = np.arange(1, count + 1) * days_per_block
        return np.power(1.0 + self.discount_rate, -days / DAYS_PER_YEAR)


def block_values(
    model: BlockModel, economics: Economics | None = None
) -> tuple[NDArray[np.float64], NDArray[np.uint8]]:
    """Return each block's value in $ if mined today and its better destination (0 dump, 1 mill), both [nx, ny, nz].

    Where the data tell values themselves, those count, and what is worth something is taken to be milled.
    """
    if model.values_usd is not None:
        return model.values_usd, (model.values_usd > 0).astype(np.uint8)
    prices = economics or Economics()
    cu, mo, clays, bwi, rec, ton = (
        model.column(name).astype(np.float64) for name in ("cu", "mo", "clays", "bwi", "rec", "ton")
    )
    mo_recovery = rec if prices.mo_recovery_pct is None else prices.mo_recovery_pct
    per_percent_lb = LB_PER_TONNE / 100 / 100  # pounds recovered per tonne, per cent of grade and per cent of recovery
    revenue = per_percent_lb * (cu * rec * prices.cu_price_per_lb + mo * mo_recovery * prices.mo_price_per_lb)
    penalties = prices.bwi_penalty_per_kwh * np.maximum(bwi - prices.bwi_limit, 0)
    penalties += prices.clay_penalty_per_pct * np.maximum(clays - prices.clay_limit_pct, 0)
    milling = ton * (revenue - prices.processing_cost_per_t - prices.fixed_cost_per_t - penalties)
    destination = (milling > 0).astype(np.uint8)
    return np.where(destination == MILL, milling, 0.0) - ton * prices.mining_cost_per_t, destination
