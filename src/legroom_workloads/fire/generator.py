"""Generate landscapes in which the layers belong together, as they do outside.

Terrain is a fractal (noise whose power falls with frequency), tilted and exaggerated differently in every landscape;
slope and aspect are the terrain's own. Wetness follows from it: high and north-facing ground and valley floors are
moist, south-facing slopes dry. Fuel goes by bands of elevation and wetness, in patches and not in lines, from grass
over shrubs to timber, with water in the lowest hollows, rock on the steepest heights, and here and there a settlement
or field. Canopy stands where the fuel is timber, denser and taller where it is moist.

    python -m legroom_workloads.fire.generator --rasters 500 --out tiles/
    legroom train fire --rasters tiles/
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from legroom.extend import EXIT_BAD_INPUT, EXIT_GOOD, BadInput, LegroomError
from legroom_workloads.fire.rasters import LAYERS, Tile, write_tile

CELL_M = 30.0
LEAST_EDGE, MOST_EDGE = 4, 2048
WATER, ROCK, FIELD = 98, 99, 93
# Fuel by elevation (rows, low to high) and wetness (columns, dry to moist).
BANDS = np.array(
    [
        [101, 102, 104, 122, 161, 182],
        [102, 121, 122, 142, 161, 186],
        [121, 122, 145, 147, 165, 183],
        [141, 142, 147, 165, 184, 185],
        [121, 141, 165, 183, 185, 188],
    ]
)
FIRST_TIMBER = 161  # timber understory, litter and slash have a canopy above them
Field = NDArray[np.float64]


def generate(seed: int, shape: tuple[int, int] = (50, 50)) -> Tile:
    """Return the landscape of a seed, always the same.

    Raises:
        BadInput: a shape that is too small or too large.
    """
    if not all(LEAST_EDGE <= edge <= MOST_EDGE for edge in shape):
        raise BadInput(f"a landscape of {shape[0]}x{shape[1]}", hint=f"{LEAST_EDGE} to {MOST_EDGE} cells each way")
    rng = np.random.default_rng([seed, 0xF12E])
    rows, columns = np.indices(shape) / max(shape)
    tilt = rng.uniform(0, 2 * np.pi)
    terrain = _noise(rng, shape, 2.2) + rng.uniform(0.5, 2.0) * (np.cos(tilt) * rows + np.sin(tilt) * columns)
    height_m = rng.uniform(200, 1500) + _to_1(terrain) * rng.uniform(0.08, 0.35) * max(shape) * CELL_M
    to_south, to_east = np.gradient(height_m, CELL_M)
    steepness = np.hypot(to_south, to_east)
    slope = np.rint(np.degrees(np.arctan(steepness)))
    downhill = np.degrees(np.arctan2(-to_east, to_south)) % 360  # clockwise from north, where the slope looks
    aspect = np.where(slope == 0, -1, np.rint(downhill) % 360)

    elevation = _to_1(height_m)
    northness = np.cos(np.radians(downhill)) * np.minimum(steepness, 0.5)
    hollow = _blur(elevation, 5) - elevation
    wetness = _ranks(1.2 * northness + 4.0 * hollow + 0.6 * elevation + 0.35 * _noise(rng, shape, 1.6))
    band = _ranks(elevation + 0.15 * _noise(rng, shape, 1.6))
    low_to_high, dry_to_moist = ((x * n).astype(int) for x, n in ((band, len(BANDS)), (wetness, BANDS.shape[1])))
    fuel = BANDS[low_to_high, dry_to_moist]
    fuel = np.where(_ranks(hollow - elevation) > 1 - rng.uniform(0, 0.05), WATER, fuel)
    fuel = np.where(_ranks(elevation + steepness) > 1 - rng.uniform(0, 0.03), ROCK, fuel)
    fuel = np.where(_ranks(_noise(rng, shape, 2.4) - steepness) > 1 - rng.uniform(0, 0.05), FIELD, fuel)

    timber = fuel >= FIRST_TIMBER
    grown = _to_1(wetness + 0.3 * _noise(rng, shape, 1.4))
    cover = np.where(timber, np.rint(25 + 60 * grown), 0)
    canopy = np.where(timber, np.rint(80 + 220 * grown), 0)
    base = np.where(timber, np.rint(canopy * (0.15 + 0.25 * grown)), 0)
    density = np.where(timber, np.rint(5 + 20 * grown), 0)
    layers = dict(slp=slope, asp=aspect, cc=cover, fbfm40=fuel, cbd=density, cbh=base, ch=canopy, dem=np.rint(height_m))
    return Tile(f"landscape-{seed}", np.stack([layers[name] for name in LAYERS]).astype(np.int16), CELL_M)


def _noise(rng: np.random.Generator, shape: tuple[int, int], roughness: float) -> Field:
    """Return fractal noise of mean 0 and deviation 1 whose power falls as frequency^-2·roughness.

    It is cut out of a field of twice the size, which would repeat at its edges.
    """
    height, width = 2 * shape[0], 2 * shape[1]
    frequency = np.hypot(np.fft.fftfreq(height)[:, None], np.fft.rfftfreq(width)[None, :])
    frequency[0, 0] = np.inf
    spectrum = np.fft.rfft2(rng.standard_normal((height, width))) * frequency**-roughness
    field = np.fft.irfft2(spectrum, s=(height, width))[: shape[0], : shape[1]]
    return (field - field.mean()) / field.std()


def _blur(field: Field, reach: int) -> Field:
    """Return means over squares of 2·reach + 1 cells, cut off at the edges."""
    size = 2 * reach + 1
    padded = np.pad(field, ((reach + 1, reach), (reach + 1, reach)), mode="edge").cumsum(0).cumsum(1)
    total = padded[size:, size:] - padded[:-size, size:] - padded[size:, :-size] + padded[:-size, :-size]
    return total / size**2


def _to_1(field: Field) -> Field:
    return (field - field.min()) / (np.ptp(field) or 1.0)


def _ranks(field: Field) -> Field:
    """Return each value's rank as a number from 0 to under 1, so that a share of the cells is a share of the ranks."""
    order = np.argsort(np.argsort(field, axis=None, kind="stable"), kind="stable")
    return order.reshape(field.shape) / field.size


def write_landscapes(folder: Path, count: int, shape: tuple[int, int] = (50, 50), *, first_seed: int = 0) -> None:
    """Write the landscapes of `count` seeds as GeoTIFF, one file each, into a folder that is new or empty.

    Raises:
        BadInput: none at all, a shape that cannot be, or a folder that cannot be written to.
        MissingExtra: rasterio is not installed.
    """
    if count < 1 or first_seed < 0:
        raise BadInput(f"{count} landscapes from seed {first_seed} on", hint="1 or more, from 0 on")
    try:
        folder.mkdir(parents=True, exist_ok=True)
        if any(folder.iterdir()):
            raise BadInput("is not empty", path=folder, hint="choose another --out, so that tiles are not mixed")
        for seed in range(first_seed, first_seed + count):
            tile = generate(seed, shape)
            write_tile(folder / f"{tile.name}.tif", tile)
    except OSError as problem:
        raise BadInput(f"cannot be written: {problem.strerror or problem}", path=folder) from None


def main(arguments: Sequence[str]) -> int:
    """Carry out the command line and return the exit code."""
    parser = argparse.ArgumentParser(description="Write landscapes as GeoTIFF, a band per layer.")
    parser.add_argument("--rasters", type=int, default=500, metavar="N")
    parser.add_argument("--out", type=Path, required=True, metavar="DIR")
    parser.add_argument("--grid", type=int, nargs=2, default=(50, 50), metavar=("ROWS", "COLUMNS"))
    parser.add_argument("--first-seed", type=int, default=0, metavar="N", help="others than the trained ones: held out")
    options = parser.parse_args(arguments)
    try:
        write_landscapes(options.out, options.rasters, tuple(options.grid), first_seed=options.first_seed)
    except LegroomError as problem:
        sys.stderr.write(f"legroom: {problem}\n")
        return EXIT_BAD_INPUT
    size = f"{options.grid[0]}x{options.grid[1]}"
    sys.stdout.write(f"{options.rasters} landscapes of {size} cells in {options.out}\n")
    return EXIT_GOOD


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
