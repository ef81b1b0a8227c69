"""The standard fire behaviour fuel models: 13 of Anderson (1982), 40 of Scott & Burgan (2005), and what does not burn.

The tables stand in the units of their publications, so that they can be compared with the paper line by line: loads of
Anderson's models in lb/ft² (as in Albini 1976), those of Scott & Burgan in short tons per acre, depths in feet, surface
area to volume in ft²/ft³. Rothermel's equations were fitted in these units too; metres appear only in `rothermel`.

All fuel has 8000 BTU/lb (18,622 kJ/kg) but that of GR6, which Scott & Burgan give 9000.

Anderson's models have one live class only, "foliage". It stands here as herbaceous fuel of a static model, as in
pyretechnics; BEHAVE calls that of models 4, 5, 7 and 10 woody. The two differ where the two live moistures do.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cache

import numpy as np
from numpy.typing import NDArray

from legroom.extend import BadInput

TON_PER_ACRE_IN_LB_PER_FT2 = 2000.0 / 43_560.0
SAV_10H_PER_FT, SAV_100H_PER_FT = 109.0, 30.0
HEAT_BTU_PER_LB = 8000.0
NOT_BURNABLE = range(91, 100)
MOST_CODES = 256  # codes fit a byte; rows of a table by code

# code: name, dead 1 h, 10 h, 100 h, live [lb/ft²], SAV 1 h, live [1/ft], depth [ft], extinction [%]
_ANDERSON = {
    1: ("short grass", 0.034, 0.0, 0.0, 0.0, 3500, 1500, 1.0, 12),
    2: ("timber grass and understory", 0.092, 0.046, 0.023, 0.023, 3000, 1500, 1.0, 15),
    3: ("tall grass", 0.138, 0.0, 0.0, 0.0, 1500, 1500, 2.5, 25),
    4: ("chaparral", 0.230, 0.184, 0.092, 0.230, 2000, 1500, 6.0, 20),
    5: ("brush", 0.046, 0.023, 0.0, 0.092, 2000, 1500, 2.0, 20),
    6: ("dormant brush, hardwood slash", 0.069, 0.115, 0.092, 0.0, 1750, 1500, 2.5, 25),
    7: ("southern rough", 0.052, 0.086, 0.069, 0.017, 1750, 1550, 2.5, 40),
    8: ("closed timber litter", 0.069, 0.046, 0.115, 0.0, 2000, 1500, 0.2, 30),
    9: ("hardwood litter", 0.134, 0.019, 0.007, 0.0, 2500, 1500, 0.2, 25),
    10: ("timber litter and understory", 0.138, 0.092, 0.230, 0.092, 2000, 1500, 1.0, 25),
    11: ("light logging slash", 0.069, 0.207, 0.253, 0.0, 1500, 1500, 1.0, 15),
    12: ("medium logging slash", 0.184, 0.644, 0.759, 0.0, 1500, 1500, 2.3, 20),
    13: ("heavy logging slash", 0.322, 1.058, 1.288, 0.0, 1500, 1500, 3.0, 25),
}

# code: name, dead 1 h, 10 h, 100 h, live herb, woody [tons/acre], SAV 1 h, herb, woody [1/ft], depth [ft], ext. [%]
_SCOTT_BURGAN = {
    101: ("GR1", 0.10, 0.00, 0.00, 0.30, 0.00, 2200, 2000, 1500, 0.4, 15),
    102: ("GR2", 0.10, 0.00, 0.00, 1.00, 0.00, 2000, 1800, 1500, 1.0, 15),
    103: ("GR3", 0.10, 0.40, 0.00, 1.50, 0.00, 1500, 1300, 1500, 2.0, 30),
    104: ("GR4", 0.25, 0.00, 0.00, 1.90, 0.00, 2000, 1800, 1500, 2.0, 15),
    105: ("GR5", 0.40, 0.00, 0.00, 2.50, 0.00, 1800, 1600, 1500, 1.5, 40),
    106: ("GR6", 0.10, 0.00, 0.00, 3.40, 0.00, 2200, 2000, 1500, 1.5, 40),
    107: ("GR7", 1.00, 0.00, 0.00, 5.40, 0.00, 2000, 1800, 1500, 3.0, 15),
    108: ("GR8", 0.50, 1.00, 0.00, 7.30, 0.00, 1500, 1300, 1500, 4.0, 30),
    109: ("GR9", 1.00, 1.00, 0.00, 9.00, 0.00, 1800, 1600, 1500, 5.0, 40),
    121: ("GS1", 0.20, 0.00, 0.00, 0.50, 0.65, 2000, 1800, 1800, 0.9, 15),
    122: ("GS2", 0.50, 0.50, 0.00, 0.60, 1.00, 2000, 1800, 1800, 1.5, 15),
    123: ("GS3", 0.30, 0.25, 0.00, 1.45, 1.25, 1800, 1600, 1600, 1.8, 40),
    124: ("GS4", 1.90, 0.30, 0.10, 3.40, 7.10, 1800, 1600, 1600, 2.1, 40),
    141: ("SH1", 0.25, 0.25, 0.00, 0.15, 1.30, 2000, 1800, 1600, 1.0, 15),
    142: ("SH2", 1.35, 2.40, 0.75, 0.00, 3.85, 2000, 1800, 1600, 1.0, 15),
    143: ("SH3", 0.45, 3.00, 0.00, 0.00, 6.20, 1600, 1800, 1400, 2.4, 40),
    144: ("SH4", 0.85, 1.15, 0.20, 0.00, 2.55, 2000, 1800, 1600, 3.0, 30),
    145: ("SH5", 3.60, 2.10, 0.00, 0.00, 2.90, 750, 1800, 1600, 6.0, 15),
    146: ("SH6", 2.90, 1.45, 0.00, 0.00, 1.40, 750, 1800, 1600, 2.0, 30),
    147: ("SH7", 3.50, 5.30, 2.20, 0.00, 3.40, 750, 1800, 1600, 6.0, 15),
    148: ("SH8", 2.05, 3.40, 0.85, 0.00, 4.35, 750, 1800, 1600, 3.0, 40),
    149: ("SH9", 4.50, 2.45, 0.00, 1.55, 7.00, 750, 1800, 1500, 4.4, 40),
    161: ("TU1", 0.20, 0.90, 1.50, 0.20, 0.90, 2000, 1800, 1600, 0.6, 20),
    162: ("TU2", 0.95, 1.80, 1.25, 0.00, 0.20, 2000, 1800, 1600, 1.0, 30),
    163: ("TU3", 1.10, 0.15, 0.25, 0.65, 1.10, 1800, 1600, 1400, 1.3, 30),
    164: ("TU4", 4.50, 0.00, 0.00, 0.00, 2.00, 2300, 1800, 2000, 0.5, 12),
    165: ("TU5", 4.00, 4.00, 3.00, 0.00, 3.00, 1500, 1800, 750, 1.0, 25),
    181: ("TL1", 1.00, 2.20, 3.60, 0.00, 0.00, 2000, 1800, 1600, 0.2, 30),
    182: ("TL2", 1.40, 2.30, 2.20, 0.00, 0.00, 2000, 1800, 1600, 0.2, 25),
    183: ("TL3", 0.50, 2.20, 2.80, 0.00, 0.00, 2000, 1800, 1600, 0.3, 20),
    184: ("TL4", 0.50, 1.50, 4.20, 0.00, 0.00, 2000, 1800, 1600, 0.4, 25),
    185: ("TL5", 1.15, 2.50, 4.40, 0.00, 0.00, 2000, 1800, 1600, 0.6, 25),
    186: ("TL6", 2.40, 1.20, 1.20, 0.00, 0.00, 2000, 1800, 1600, 0.3, 25),
    187: ("TL7", 0.30, 1.40, 8.10, 0.00, 0.00, 2000, 1800, 1600, 0.4, 25),
    188: ("TL8", 5.80, 1.40, 1.10, 0.00, 0.00, 1800, 1800, 1600, 0.3, 35),
    189: ("TL9", 6.65, 3.30, 4.15, 0.00, 0.00, 1800, 1800, 1600, 0.6, 35),
    201: ("SB1", 1.50, 3.00, 11.00, 0.00, 0.00, 2000, 1800, 1600, 1.0, 25),
    202: ("SB2", 4.50, 4.25, 4.00, 0.00, 0.00, 2000, 1800, 1600, 1.0, 25),
    203: ("SB3", 5.50, 2.75, 3.00, 0.00, 0.00, 2000, 1800, 1600, 1.2, 25),
    204: ("SB4", 5.25, 3.50, 5.25, 0.00, 0.00, 2000, 1800, 1600, 2.7, 25),
}
_OTHER_HEAT_BTU_PER_LB = {106: 9000.0}


@dataclass(frozen=True)
class FuelModel:
    """One fuel model, in the units of the papers.

    Attributes:
        loads_lb_ft2: oven-dry loads: dead 1 h, dead 10 h, dead 100 h, live herbaceous, live woody.
        sav_per_ft: surface area to volume of the same five.
        dynamic: whether the herbaceous load moves from live to dead as it cures.
    """

    code: int
    name: str
    loads_lb_ft2: tuple[float, float, float, float, float]
    sav_per_ft: tuple[float, float, float, float, float]
    depth_ft: float
    extinction: float
    heat_btu_lb: float
    dynamic: bool


@dataclass(frozen=True, eq=False)
class FuelTable:
    """All fuel models as arrays by code, [256] or [256, 5]; rows that no model has, or that do not burn, are 0."""

    loads: NDArray[np.float64] = field(default_factory=lambda: np.zeros((MOST_CODES, 5)))
    sav: NDArray[np.float64] = field(default_factory=lambda: np.zeros((MOST_CODES, 5)))
    depth: NDArray[np.float64] = field(default_factory=lambda: np.zeros(MOST_CODES))
    extinction: NDArray[np.float64] = field(default_factory=lambda: np.zeros(MOST_CODES))
    heat: NDArray[np.float64] = field(default_factory=lambda: np.zeros(MOST_CODES))
    dynamic: NDArray[np.bool_] = field(default_factory=lambda: np.zeros(MOST_CODES, np.bool_))
    known: NDArray[np.bool_] = field(default_factory=lambda: np.zeros(MOST_CODES, np.bool_))


@cache
def fuel_models() -> dict[int, FuelModel]:
    """Return every model that burns, by code."""
    models = {}
    for code, (name, one, ten, hundred, live, sav_1h, sav_live, depth, extinction) in _ANDERSON.items():
        sav = (float(sav_1h), SAV_10H_PER_FT, SAV_100H_PER_FT, float(sav_live), 1500.0)
        loads = (one, ten, hundred, live, 0.0)
        models[code] = FuelModel(code, name, loads, sav, depth, extinction / 100, HEAT_BTU_PER_LB, dynamic=False)
    for code, (name, *loads_t_ac, sav_1h, sav_herb, sav_woody, depth, extinction) in _SCOTT_BURGAN.items():
        one, ten, hundred, herb, woody = (load * TON_PER_ACRE_IN_LB_PER_FT2 for load in loads_t_ac)
        sav = (float(sav_1h), SAV_10H_PER_FT, SAV_100H_PER_FT, float(sav_herb), float(sav_woody))
        heat = _OTHER_HEAT_BTU_PER_LB.get(code, HEAT_BTU_PER_LB)
        models[code] = FuelModel(
            code, name, (one, ten, hundred, herb, woody), sav, depth, extinction / 100, heat, dynamic=herb > 0
        )
    return models


@cache
def fuel_table() -> FuelTable:
    """Return the models as arrays by code."""
    table = FuelTable()
    for code, model in fuel_models().items():
        table.loads[code], table.sav[code] = model.loads_lb_ft2, model.sav_per_ft
        table.depth[code], table.extinction[code] = model.depth_ft, model.extinction
        table.heat[code], table.dynamic[code] = model.heat_btu_lb, model.dynamic
    table.known[list(fuel_models())] = True
    table.known[NOT_BURNABLE.start : NOT_BURNABLE.stop] = True
    return table


def burnable(codes: NDArray[np.integer]) -> NDArray[np.bool_]:
    """Return where fuel burns, in the shape of `codes`."""
    return fuel_table().depth[codes] > 0


def check_codes(codes: NDArray[np.integer], path: object = None) -> None:
    """Let only codes of fuel models pass.

    Raises:
        BadInput: names the codes that are none.
    """
    present = np.unique(codes)
    in_table = (present >= 0) & (present < MOST_CODES)
    unknown = [int(code) for code in present if not in_table[present == code][0] or not fuel_table().known[code]]
    if unknown:
        some = ", ".join(map(str, unknown[:5])) + (", ..." if len(unknown) > 5 else "")
        hint = "1-13 of Anderson, 101-204 of Scott & Burgan, 91-99 for what does not burn"
        raise BadInput(f"unknown fuel model {some}", path=path, hint=hint)
