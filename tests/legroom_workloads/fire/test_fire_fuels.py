"""The fuel tables: each published characteristic of a Scott & Burgan model follows from our row of it."""

from __future__ import annotations

import numpy as np
import pytest

from legroom.errors import BadInput
from legroom_workloads.fire.fuels import check_codes, fuel_models

# Scott & Burgan (2005): characteristic surface area to volume [1/ft], packing ratio. That of GS4 is not given here: the
# value at hand does not agree with its row, on which two other implementations agree with ours.
CHARACTERISTIC = {
    "GR1": (2054, 0.00143), "GR2": (1820, 0.00158), "GR3": (1290, 0.00143), "GR4": (1826, 0.00154),
    "GR5": (1631, 0.00277), "GR6": (2006, 0.00335), "GR7": (1834, 0.00306), "GR8": (1302, 0.00316),
    "GR9": (1612, 0.00316), "GS1": (1832, 0.00215), "GS2": (1827, 0.00249), "GS3": (1614, 0.00259),
    "GS4": (None, 0.00874), "SH1": (1674, 0.00280), "SH2": (1672, 0.01198), "SH3": (1371, 0.00577),
    "SH4": (1682, 0.00227), "SH5": (1252, 0.00206), "SH6": (1144, 0.00412), "SH7": (1233, 0.00344),
    "SH8": (1386, 0.00509), "SH9": (1378, 0.00505), "TU1": (1606, 0.00885), "TU2": (1767, 0.00603),
    "TU3": (1611, 0.00359), "TU4": (2216, 0.01865), "TU5": (1224, 0.02009), "TL1": (1716, 0.04878),
    "TL2": (1806, 0.04232), "TL3": (1532, 0.02630), "TL4": (1568, 0.02224), "TL5": (1713, 0.01925),
    "TL6": (1936, 0.02296), "TL7": (1229, 0.03515), "TL8": (1770, 0.03969), "TL9": (1733, 0.03372),
    "SB1": (1653, 0.02224), "SB2": (1884, 0.01829), "SB3": (1935, 0.01345), "SB4": (1907, 0.00744),
}  # fmt: skip


def test_there_are_13_and_40_models():
    codes = list(fuel_models())
    assert [code for code in codes if code < 100] == list(range(1, 14))
    assert sum(code > 100 for code in codes) == 40
    assert {model.name for model in fuel_models().values() if model.code > 100} == set(CHARACTERISTIC)


@pytest.mark.parametrize("name", CHARACTERISTIC)
def test_published_characteristics_follow_from_the_row(name):
    model = next(model for model in fuel_models().values() if model.name == name)
    sav, packing = CHARACTERISTIC[name]
    dead = [s * w for s, w in zip(model.sav_per_ft[:3], model.loads_lb_ft2[:3], strict=True)]
    live = [s * w for s, w in zip(model.sav_per_ft[3:], model.loads_lb_ft2[3:], strict=True)]
    surface = sum(dead) + sum(live)  # times area over area: σ = Σσ²w / Σσw
    ours = sum(a * s for a, s in zip(dead + live, model.sav_per_ft, strict=True)) / surface
    assert sav is None or ours == pytest.approx(sav, abs=1.0)
    assert sum(model.loads_lb_ft2) / 32 / model.depth_ft == pytest.approx(packing, abs=1.0e-5)


@pytest.mark.parametrize("code", [0, 14, 90, 100, 110, 205, 255, 256, -9999, 32767])
def test_a_code_that_is_no_model_is_named_in_one_line(code):
    with pytest.raises(BadInput, match=f"^tile.tif: unknown fuel model {code} ") as problem:
        check_codes(np.array([101, code]), "tile.tif")
    assert "\n" not in str(problem.value)
