"""Rate of surface fire spread after Rothermel (1972) with the changes of Albini (1976), for whole rasters at once.

Albini's changes are those in which everybody computes today: net load w(1 - S_T), the exponent A = 133 σ^-0.7913, the
live moisture of extinction from the fine fuel of both kinds, and net loads weighted by size class. Dynamic models of
Scott & Burgan (2005) move their herbaceous load from live to dead as it dries from 120 % to 30 %; what has moved keeps
its own surface and takes the moisture of the 1 h fuel. There is no limit on wind.

Wind is given along the horizontal, as forecasts and stations have it, and the rate of spread along the ground. On a
slope, the ground's share of a horizontal wind is longer: U·√(1 + tan²) when it blows straight upslope. That is how
pyretechnics reads its inputs; the nomograms and BEHAVE take the midflame wind as it is given, which is the same on
level ground, 1 % less at a slope of 0.1, and up to 17 % less at 0.5 in a strong wind.

Everything between input and output is in feet, pounds, minutes and BTU, in which the coefficients were fitted. The
equations are those of the papers, symbols included: β packing ratio, σ surface area to volume, ξ propagating flux
ratio, ε effective heating number.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from legroom.extend import BadInput
from legroom_workloads.fire.fuels import check_codes, fuel_table

FT_PER_M = 1.0 / 0.3048
PARTICLE_DENSITY_LB_FT3 = 32.0
TOTAL_MINERALS, EFFECTIVE_MINERALS = 0.0555, 0.010
MINERAL_DAMPING = 0.174 * EFFECTIVE_MINERALS**-0.19
GREEN_MOISTURE, CURED_MOISTURE = 1.20, 0.30
SIZE_CLASS_BOUNDS_PER_FT = (16.0, 48.0, 96.0, 192.0, 1200.0)
DEAD, LIVE = slice(0, 4), slice(4, 6)  # dead 1 h, 10 h, 100 h, cured herbaceous | live herbaceous, woody

Cells = NDArray[np.float64]


@dataclass(frozen=True)
class Moisture:
    """Water per oven-dry fuel, as fractions."""

    dead_1h: float = 0.06
    dead_10h: float = 0.07
    dead_100h: float = 0.08
    live_herb: float = 0.60
    live_woody: float = 0.90

    def __post_init__(self) -> None:
        for name, value in vars(self).items():
            if not isinstance(value, int | float) or not math.isfinite(value) or value < 0:
                raise BadInput(f"moisture {name} is {value!r}", hint="a fraction of the dry weight, such as 0.06")


@dataclass(frozen=True, eq=False)
class FireBed:
    """What a fuel bed does without wind and slope, and how it answers to them; arrays of one shape.

    Attributes:
        rate_ft_min: rate of spread on level ground in still air, R0.
        wind_scale, wind_exponent: φ_w = wind_scale · U^wind_exponent, U in ft/min.
        slope_scale: φ_s = slope_scale · tan²(slope).
    """

    rate_ft_min: Cells
    wind_scale: Cells
    wind_exponent: Cells
    slope_scale: Cells

    def at(self, index: NDArray[np.integer]) -> FireBed:
        """Return the beds at `index`."""
        return FireBed(
            self.rate_ft_min[index], self.wind_scale[index], self.wind_exponent[index], self.slope_scale[index]
        )

    def wind_factor(self, wind_m_min: Cells | float) -> Cells:
        """Return φ_w of a midflame wind."""
        return self.wind_scale * (np.asarray(wind_m_min) * FT_PER_M) ** self.wind_exponent

    def slope_factor(self, rise_run: Cells | float) -> Cells:
        """Return φ_s of a slope."""
        return self.slope_scale * np.asarray(rise_run) ** 2

    def wind_m_min_of(self, factor: Cells) -> Cells:
        """Return the midflame wind whose φ_w is `factor`: the effective wind of wind and slope together."""
        scale = np.where(self.wind_scale > 0, self.wind_scale, 1.0)
        exponent = np.where(self.wind_exponent > 0, self.wind_exponent, 1.0)
        return np.where(self.wind_scale > 0, factor / scale, 0.0) ** (1.0 / exponent) / FT_PER_M


def spread_rate(
    fuel_model: int,
    *,
    dead_1h: float,
    dead_10h: float,
    dead_100h: float,
    live_herb: float,
    live_woody: float,
    wind_midflame_m_min: float,
    slope_rise_run: float,
) -> float:
    """Return the head rate of spread in m/min, wind blowing upslope.

    Args:
        fuel_model: 1-13, 101-204, or 91-99, which do not burn: 0.0.
        dead_1h, dead_10h, dead_100h, live_herb, live_woody: moistures, as fractions.
        wind_midflame_m_min: its horizontal speed.
        slope_rise_run: tangent of the slope.

    Raises:
        BadInput: a code that is no fuel model; a number that is negative or none.
    """
    for name, value in (("wind_midflame_m_min", wind_midflame_m_min), ("slope_rise_run", slope_rise_run)):
        if not math.isfinite(value) or value < 0:
            raise BadInput(f"{name} is {value!r}", hint="a number, 0 or more")
    if isinstance(fuel_model, bool) or not isinstance(fuel_model, int | np.integer):
        raise BadInput(f"fuel model {fuel_model!r}", hint="the code, a whole number")
    codes = np.array([fuel_model])
    check_codes(codes)
    bed = fire_bed(codes, Moisture(dead_1h, dead_10h, dead_100h, live_herb, live_woody))
    wind_m_min = wind_midflame_m_min * along_slope(slope_rise_run)
    factor = 1.0 + bed.wind_factor(wind_m_min) + bed.slope_factor(slope_rise_run)
    return float((bed.rate_ft_min * factor / FT_PER_M)[0])


def along_slope(rise_run: Cells | float) -> Cells:
    """Return the length, along ground that rises so, of what is 1 long on the map."""
    return np.hypot(1.0, rise_run)


def fire_bed(codes: NDArray[np.integer], moisture: Moisture) -> FireBed:
    """Return the beds of an array of fuel codes; those that do not burn have rate 0.

    A landscape has few models: they are computed once each and spread over the cells.
    """
    present, where = np.unique(codes, return_inverse=True)
    return _compute(present, moisture).at(where.reshape(codes.shape))


def _compute(codes: NDArray[np.integer], moisture: Moisture) -> FireBed:
    table = fuel_table()
    loads, sav = _by_class(codes, moisture)  # [n, 6]
    water = np.array([moisture.dead_1h, moisture.dead_10h, moisture.dead_100h, moisture.dead_1h,
                      moisture.live_herb, moisture.live_woody])  # fmt: skip
    depth, extinction, heat = table.depth[codes], table.extinction[codes], table.heat[codes]
    total = loads.sum(axis=1)
    surface = sav * loads / PARTICLE_DENSITY_LB_FT3
    dead, live = surface[:, DEAD].sum(axis=1), surface[:, LIVE].sum(axis=1)
    shares = np.concatenate(
        [_divide(surface[:, DEAD], dead[:, None]), _divide(surface[:, LIVE], live[:, None])], axis=1
    )
    of_all = np.stack([_divide(dead, dead + live), _divide(live, dead + live)], axis=1)

    # the fuel bed as a whole
    σ = of_all[:, 0] * (shares * sav)[:, DEAD].sum(axis=1) + of_all[:, 1] * (shares * sav)[:, LIVE].sum(axis=1)
    σ = np.where(σ > 0, σ, 1.0)  # of what does not burn; its rate is 0 below
    bulk_density = _divide(total, depth)
    β = bulk_density / PARTICLE_DENSITY_LB_FT3
    relative_packing = β / (3.348 * σ**-0.8189)

    # heat released, by dead and live fuel
    net = _class_weights(shares, sav) * loads * (1.0 - TOTAL_MINERALS)
    live_extinction = _live_extinction(loads, sav, water, extinction)
    released = np.zeros(len(codes))
    for part, limit in ((DEAD, extinction), (LIVE, live_extinction)):
        wetness = _divide((shares[:, part] * water[part]).sum(axis=1), limit)
        released += net[:, part].sum(axis=1) * heat * _moisture_damping(wetness) * MINERAL_DAMPING
    exponent_a = 133.0 * σ**-0.7913
    fastest = σ**1.5 / (495.0 + 0.0594 * σ**1.5)
    velocity = fastest * relative_packing**exponent_a * np.exp(exponent_a * (1.0 - relative_packing))
    ξ = np.exp((0.792 + 0.681 * np.sqrt(σ)) * (β + 0.1)) / (192.0 + 0.2595 * σ)

    # heat needed to ignite what lies ahead
    ε = np.exp(_divide(np.full_like(sav, -138.0), sav)) * (sav > 0)
    preignition = shares * ε * (250.0 + 1116.0 * water)
    sink = bulk_density * (
        of_all[:, 0] * preignition[:, DEAD].sum(axis=1) + of_all[:, 1] * preignition[:, LIVE].sum(axis=1)
    )

    burns = depth > 0
    wind_exponent = 0.02526 * σ**0.54
    packed = np.where(burns, relative_packing, 1.0)
    wind_scale = 7.47 * np.exp(-0.133 * σ**0.55) * packed ** (-0.715 * np.exp(-3.59e-4 * σ))
    slope_scale = 5.275 * np.where(burns, β, 1.0) ** -0.3
    rate = _divide(released * velocity * ξ, sink)
    return FireBed(
        np.where(burns, rate, 0.0), wind_scale * burns, np.where(burns, wind_exponent, 1.0), slope_scale * burns
    )


def _by_class(codes: NDArray[np.integer], moisture: Moisture) -> tuple[Cells, Cells]:
    """Return loads and surface area to volume of the six classes, [n, 6], cured herbaceous load moved to the dead."""
    table = fuel_table()
    one, ten, hundred, herb, woody = table.loads[codes].T
    green = np.clip((moisture.live_herb - CURED_MOISTURE) / (GREEN_MOISTURE - CURED_MOISTURE), 0.0, 1.0)
    cured = herb * np.where(table.dynamic[codes], 1.0 - green, 0.0)
    sav = table.sav[codes]
    loads = np.stack([one, ten, hundred, cured, herb - cured, woody], axis=1)
    return loads, np.stack([*sav.T[:3], sav[:, 3], sav[:, 3], sav[:, 4]], axis=1)


def _class_weights(shares: Cells, sav: Cells) -> Cells:
    """Return for each class the summed surface of its kind's classes of like size, by which net loads are weighted."""
    size = np.digitize(sav, SIZE_CLASS_BOUNDS_PER_FT)
    weights = np.zeros_like(shares)
    for part in (DEAD, LIVE):
        alike = size[:, part, None] == size[:, None, part]
        weights[:, part] = (alike * shares[:, None, part]).sum(axis=2)
    return weights


def _live_extinction(loads: Cells, sav: Cells, water: Cells, extinction: Cells) -> Cells:
    fine_dead = (loads * np.exp(_divide(np.full_like(sav, -138.0), sav)))[:, DEAD]
    fine_live = (loads * np.exp(_divide(np.full_like(sav, -500.0), sav)))[:, LIVE].sum(axis=1)
    fine_water = _divide((fine_dead * water[DEAD]).sum(axis=1), fine_dead.sum(axis=1))
    ratio = _divide(fine_dead.sum(axis=1), fine_live)
    return np.maximum(2.9 * ratio * (1.0 - _divide(fine_water, extinction)) - 0.226, extinction)


def _moisture_damping(wetness: Cells) -> Cells:
    r = np.minimum(wetness, 1.0)
    # at extinction the polynomial is 0 but for rounding, and a cell with rate 1e-16 would count as one that burns
    return np.where(r < 1.0, 1.0 - 2.59 * r + 5.11 * r**2 - 3.52 * r**3, 0.0)


def _divide(numerator: Cells, denominator: Cells) -> Cells:
    """Return the quotient, 0 where there is nothing to divide by."""
    return np.divide(numerator, denominator, out=np.zeros(np.broadcast(numerator, denominator).shape),
                     where=denominator != 0)  # fmt: skip
