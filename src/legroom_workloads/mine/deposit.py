"""Generate a copper-molybdenum porphyry deposit of any size: a stand-in for data that nobody may publish.

The geology is the textbook one, because a scheduler only faces the real difficulty when the good rock lies where it
lies in real mines. From the top down: a *leached cap* whose copper rain has carried away; the *supergene blanket* where
that copper came down again as chalcocite, the richest rock of the mine; and *hypogene* ore around a tilted stock, a
shell of chalcopyrite with bornite towards the core, molybdenite in a wider shell and pyrite in a halo outside.
Tennantite comes in late veins and carries the arsenic. Clays follow the weathering and two faults; the rock gets harder
with depth. Over the ore and beside it lies waste, so that digging is an investment.

Every field is smooth noise, so neighbours are alike, and stretched along the strike as deposits are. The shapes are
fractions of the grid's extent, so a grid of 3×3×2 blocks is such a deposit too, seen very coarsely. Minerals come first
and grades follow from them by stoichiometry, hence the columns never contradict each other. Values are rounded as
assays are, which also hides the last bits in which platforms differ.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from legroom.extend import BadInput
from legroom_workloads.mine.blocks import BLOCK_SIZE_M, COLUMNS, BlockModel, checked_grid
from legroom_workloads.mine.coarser import resample

Field = NDArray[np.float64]

# Shares of the element in the mineral, by weight.
COPPER_IN = {"chalcocite": 0.799, "bornite": 0.633, "chalcopyrite": 0.346, "tennantite": 0.516}
MOLYBDENUM_IN_MOLYBDENITE = 0.599
ARSENIC_IN_TENNANTITE = 0.203

# Share of the copper that flotation recovers from each mineral, %.
RECOVERY_OF = {"chalcocite": 86.0, "bornite": 92.0, "chalcopyrite": 90.0, "tennantite": 80.0}

SAMPLE_SHAPE = (49, 71, 58)
SAMPLE_SEED = 4
FEWEST_BLOCKS = 16  # along an axis; a coarser grid is made finer and averaged
DECIMALS = {"ton": 0, "bwi": 2, "rec": 2, "clays": 3}  # all others: four, in percent, 1 g/t


@dataclass(frozen=True)
class Geology:
    """What kind of deposit: lengths are fractions of the grid's extent, grades are percent.

    Attributes:
        peak_cu: hypogene copper in the middle of the ore shell.
        peak_mo: molybdenum in the middle of its shell.
        depth: of the centre of the ore body, 0 the surface, 1 the bottom.
        height: how far the body reaches up and down from its centre.
        stock: radius of the barren-cored stock around which the ore shell lies.
        cap: thickness of the leached cap.
        blanket: thickness of the chalcocite blanket under it.
        unevenness: standard deviation of the logarithm of grades; 0 is a smooth body.
    """

    peak_cu: float = 0.75
    peak_mo: float = 0.03
    depth: float = 0.34
    height: float = 0.18
    stock: float = 0.28
    cap: float = 0.08
    blanket: float = 0.08
    unevenness: float = 0.45

    def __post_init__(self) -> None:
        for name, value in vars(self).items():
            if not (np.isfinite(value) and value >= 0):
                raise BadInput(f"geology: {name} is {value}", hint="give a number that is 0 or more")
        if min(self.height, self.stock) == 0:
            raise BadInput("geology: height and stock must be over 0")


def sample() -> BlockModel:
    """Return the sample deposit, 49×71×58 blocks, the same on every machine."""
    return generate(SAMPLE_SHAPE, SAMPLE_SEED, name="sample")


def generate(
    shape: tuple[int, int, int],
    seed: int,
    *,
    geology: Geology | None = None,
    size_m: tuple[float, float, float] = BLOCK_SIZE_M,
    name: str | None = None,
) -> BlockModel:
    """Return a deposit of nx, ny, nz blocks; the same seed gives the same deposit. `upl` is left at 0.

    Raises:
        BadInput: a shape or seed that cannot be.
    """
    shape = checked_grid(shape)
    if not isinstance(seed, int | np.integer) or seed < 0:
        raise BadInput(f"seed {seed!r} of a deposit", hint="give a whole number, 0 or more")
    parts = [-(-FEWEST_BLOCKS // n) for n in shape]
    if max(parts) > 1:  # a block of a coarse grid is an average of its rock, not the rock at its centre
        fine, edges = (_product(shape, parts), _product(size_m, [1 / part for part in parts]))
        return resample(generate(fine, seed, geology=geology, size_m=edges, name=name), shape)
    geology = geology or Geology()
    noise = _Noise(shape, np.random.default_rng(seed))
    minerals, alteration = _minerals(shape, geology, noise)
    minerals = {mineral: np.round(share, 4) for mineral, share in minerals.items()}
    fields = minerals | _grades(minerals) | _rock(alteration, minerals, noise)
    fields["ton"] = fields.pop("density") * float(np.prod(size_m))
    fields["upl"] = np.zeros(shape)
    channels = np.stack([np.round(fields[column], DECIMALS.get(column, 4)) for column in COLUMNS])
    return BlockModel(channels.astype(np.float32), name or f"deposit-{seed}", size_m)


@dataclass(frozen=True)
class _Alteration:
    """Where in the deposit a block lies, each [nx, ny, nz], shares from 0 to 1 unless said otherwise."""

    depth: Field
    leached: Field
    enriched: Field
    radius: Field  # from the axis of the stock; 1 is its contact
    fault: Field  # 1 on a fault


def _minerals(shape: tuple[int, int, int], geology: Geology, noise: _Noise) -> tuple[dict[str, Field], _Alteration]:
    """Return the percentage of every mineral, and where each block lies in the alteration."""
    where = _alteration(shape, geology, noise)
    uneven = geology.unevenness

    shell = np.exp(-(((where.radius - 0.75) / 0.55) ** 2))
    vertical = np.exp(-(((where.depth - geology.depth) / geology.height) ** 2))
    hypogene_cu = geology.peak_cu * shell * vertical * np.exp(uneven * noise.smooth() - uneven**2 / 2)
    # what the rain took from the cap it left in the blanket, more than the blanket can hold being lost
    copper = hypogene_cu * (1 - 0.9 * where.leached) * (1 + 0.9 * where.enriched) + 0.012

    arsenic_veins = 0.010 * np.exp(0.9 * noise.smooth(range_share=0.05) - 0.4) * (0.4 + where.radius.clip(0, 2))
    in_tennantite = np.minimum(arsenic_veins, 0.3)
    in_chalcocite = (1 - in_tennantite) * (0.85 * np.maximum(where.enriched, where.leached) + 0.02)
    left = 1 - in_tennantite - in_chalcocite
    core = 1 / (1 + np.exp((where.radius - 0.55) / 0.12))  # bornite is the mineral of the hot core
    in_bornite = left * (0.06 + 0.5 * core)
    in_chalcopyrite = left - in_bornite

    molybdenum_shell = np.exp(-(((where.radius - 1.0) / 0.5) ** 2)) * vertical**0.7
    molybdenum = geology.peak_mo * molybdenum_shell * np.exp(1.2 * uneven * noise.smooth() - uneven**2 / 2)
    molybdenum = molybdenum * (1 - 0.5 * where.leached) + 0.0005

    halo = np.exp(-(((where.radius - 1.5) / 0.6) ** 2))
    pyrite = (0.4 + 4.0 * halo * np.exp(0.4 * noise.smooth())) * (1 - 0.9 * where.leached) * (1 - 0.3 * where.enriched)
    minerals = {
        "chalcocite": copper * in_chalcocite / COPPER_IN["chalcocite"],
        "bornite": copper * in_bornite / COPPER_IN["bornite"],
        "chalcopyrite": copper * in_chalcopyrite / COPPER_IN["chalcopyrite"],
        "tennantite": copper * in_tennantite / COPPER_IN["tennantite"],
        "molibdenite": molybdenum / MOLYBDENUM_IN_MOLYBDENITE,
        "pyrite": pyrite,
    }
    return {mineral: share.clip(0, 15) for mineral, share in minerals.items()}, where


def _alteration(shape: tuple[int, int, int], geology: Geology, noise: _Noise) -> _Alteration:
    """Return where each block lies: in which weathering zone, how far from the stock and the faults."""
    x, y, depth = np.meshgrid(*((np.arange(n) + 0.5) / n for n in shape), indexing="ij")
    x, y = 2 * x - 1, 2 * y - 1  # -1 to 1
    tilt = depth - geology.depth
    along = (y - 0.25 * tilt) / (1.25 * geology.stock)
    across = (x + 0.15 * tilt) / geology.stock
    radius = np.sqrt(along**2 + across**2) * np.exp(0.22 * noise.smooth(range_share=0.12))
    fault = np.maximum(
        np.exp(-(((0.8 * x + 0.6 * y - 0.35 + 0.3 * tilt) / 0.07) ** 2)),
        np.exp(-(((-0.35 * x + 0.94 * y + 0.30) / 0.06) ** 2)),
    )
    # rain goes deeper along faults and where the pyrite halo made it acid; the two surfaces undulate together
    cap_base = geology.cap * (1 + 0.25 * noise.surface() + 0.4 * fault)
    blanket_base = cap_base + geology.blanket * np.exp(0.3 * noise.surface())
    edge = 0.012
    leached = _sigmoid((cap_base - depth) / edge)
    enriched = (1 - leached) * _sigmoid((blanket_base - depth) / (2 * edge))
    return _Alteration(depth, leached, enriched, radius, fault)


def _grades(minerals: dict[str, Field]) -> dict[str, Field]:
    """Return the grades that the minerals amount to."""
    copper = {mineral: share * minerals[mineral] for mineral, share in COPPER_IN.items()}
    return {
        "cu": sum(copper.values(), np.zeros(1)),
        "mo": MOLYBDENUM_IN_MOLYBDENITE * minerals["molibdenite"],
        "as": ARSENIC_IN_TENNANTITE * minerals["tennantite"],
    }


def _rock(where: _Alteration, minerals: dict[str, Field], noise: _Noise) -> dict[str, Field]:
    """Return what the mill and the trucks feel: clays, hardness, recovery and density (t/m³)."""
    halo = np.exp(-(((where.radius - 1.4) / 0.5) ** 2))
    clays = 0.7 + 3.0 * where.leached + 1.6 * where.enriched + 2.5 * where.fault + 0.8 * halo
    clays = clays * np.exp(0.30 * noise.smooth())
    hardness = 10.5 + 7.0 * where.depth - 1.5 * where.leached - 1.2 * where.fault + 0.9 * noise.smooth()

    copper = {mineral: share * minerals[mineral] for mineral, share in COPPER_IN.items()}
    total = sum(copper.values(), np.zeros(1))
    floats = sum((RECOVERY_OF[mineral] * part for mineral, part in copper.items()), np.zeros(1)) / np.maximum(
        total, 1e-9
    )
    oxidised = 38.0 * where.leached  # what is left of the cap's copper hardly floats
    recovery = floats - oxidised - 1.2 * np.maximum(clays - 2.0, 0.0) + 0.8 * noise.smooth()

    density = 2.62 - 0.28 * where.leached - 0.012 * (clays - 1.0) + 0.022 * minerals["pyrite"]
    return {
        "clays": clays.clip(0, 25),
        "bwi": hardness.clip(6, 25),
        "rec": np.where(total > 1e-9, recovery, 0.0).clip(0, 95),
        "density": density.clip(2.0, 3.2),
    }


class _Noise:
    """Draws smooth noise of mean 0 and variance 1, one field after another from one stream."""

    STRETCH = (0.8, 1.2, 0.7)  # longest along the strike (y), shortest across the benches

    def __init__(self, shape: tuple[int, int, int], rng: np.random.Generator) -> None:
        self._shape, self._rng = shape, rng

    def smooth(self, *, range_share: float = 0.07) -> Field:
        """Return noise [nx, ny, nz] that keeps its value over about `range_share` of the grid."""
        kernels = [_kernel(n, range_share * stretch * n) for n, stretch in zip(self._shape, self.STRETCH, strict=True)]
        field = self._rng.standard_normal(tuple(kernel.shape[1] for kernel in kernels))
        for axis, kernel in enumerate(kernels):
            field = np.moveaxis(np.tensordot(kernel, field, axes=(1, axis)), 0, axis)
        return field

    def surface(self) -> Field:
        """Return noise [nx, ny, 1]: an undulating surface."""
        flat = _Noise((*self._shape[:2], 1), self._rng)
        return flat.smooth(range_share=0.15)


def _kernel(n: int, sigma: float) -> Field:
    """Return [n, n + margins], a Gaussian moving average of white noise along one axis.

    The rows have length 1, so the variance of what comes out is 1 whatever the size of the grid; the margins keep the
    two ends of the axis independent, which a filter by FFT would tie together.
    """
    margin = int(np.ceil(3 * sigma))
    offset = np.arange(n + 2 * margin)[None, :] - margin - np.arange(n)[:, None]
    weights = np.where(np.abs(offset) <= margin, np.exp(-0.5 * (offset / max(sigma, 1e-9)) ** 2), 0.0)
    return weights / np.linalg.norm(weights, axis=1, keepdims=True)


def _product(triple: tuple[Any, Any, Any], factors: list[Any]) -> tuple[Any, Any, Any]:
    return triple[0] * factors[0], triple[1] * factors[1], triple[2] * factors[2]


def _sigmoid(x: Field) -> Field:
    return 1 / (1 + np.exp(-x.clip(-60, 60)))
