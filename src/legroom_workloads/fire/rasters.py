"""Read landscapes from files: eight layers per tile, as GeoTIFF or ASCII grids, the way LANDFIRE hands them out.

A tile is a folder with one file per layer (`slp.tif`, `US_220_slp.tif` or `slp.asc`), or one GeoTIFF with a band per
layer, named in its description. A folder may also have a folder per layer, with a file of every tile in each, as
QNetFires downloads them (`slp/cropped_raster_7_slp.tif`, `fbfm/cropped_raster_7_fbfm.tif`, …). Slope, aspect, canopy
cover and fuel must be there; the others are 0 where they are not. All layers are whole numbers in LANDFIRE's units,
which fit 16 bits; other numbers are rounded to them, but fuel.

A cell without data is an error and not "does not burn": filled in silently, a hole in one layer would be a lake.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from legroom.extend import BadInput, MissingExtra
from legroom_workloads.fire.ascii_grid import Grid, read_ascii
from legroom_workloads.fire.fuels import check_codes

LAYERS = ("slp", "asp", "cc", "fbfm40", "cbd", "cbh", "ch", "dem")
NEEDED = ("slp", "asp", "cc", "fbfm40")
# What the numbers of a layer mean, and between which they must lie.
UNITS: dict[str, tuple[str, int, int]] = {
    "slp": ("degrees", 0, 90),
    "asp": ("degrees clockwise from north, -1 where it is flat", -1, 360),
    "cc": ("percent", 0, 100),
    "fbfm40": ("code of a fuel model", -32768, 32767),  # the codes themselves are checked
    "cbd": ("kg/m³ × 100", 0, 100),
    "cbh": ("m × 10", 0, 1000),
    "ch": ("m × 10", 0, 2000),
    "dem": ("m", -500, 9000),
}
ALSO_CALLED = {"fbfm": "fbfm40"}
SUFFIXES = (".tif", ".tiff", ".asc")


@dataclass(frozen=True, eq=False)
class Tile:
    """A landscape: int16 [8, H, W] in the order of `LAYERS`, and the edge of its cells in metres."""

    name: str
    layers: NDArray[np.int16]
    cell_m: float

    def __getitem__(self, layer: str) -> NDArray[np.int16]:
        return self.layers[LAYERS.index(layer)]


def read_tile(path: str | Path) -> Tile:
    """Return the tile of a folder of layers, of a GeoTIFF with a band for each, or a name that `tile_paths` gives.

    Raises:
        BadInput: a file that is missing or none of these; layers of differing shape or cells; no data; values that
            cannot be; unknown fuel codes.
        MissingExtra: a GeoTIFF without rasterio.
    """
    path = Path(path)
    if path.is_dir():
        files = _layer_files(path)
        grids = {layer: (file, _read_layer(file)) for layer, file in files.items()}
    elif path.is_file():
        grids = {layer: (path, grid) for layer, grid in _read_bands(path).items()}
    elif files := _by_layer(path.parent).get(path.name, {}):
        grids = {layer: (file, _read_layer(file)) for layer, file in files.items()}
    else:
        raise BadInput("no such file or folder", path=path)
    missing = [layer for layer in NEEDED if layer not in grids]
    if missing:
        raise BadInput(f"no layer {', '.join(missing)}", path=path, hint="slp.tif or slp.asc, one file per layer")
    first = grids["slp"][1]
    layers = np.zeros((len(LAYERS), *first.values.shape), np.int16)
    for layer, (file, grid) in grids.items():
        if grid.values.shape != first.values.shape:
            raise BadInput(
                f"{layer} has {_size(grid)} cells, slp has {_size(first)}",
                path=file,
                hint="all layers of one size",
            )
        if not np.isclose(grid.cell_m, first.cell_m, rtol=1e-6):
            raise BadInput(f"{layer} has cells of {grid.cell_m:g} m, slp of {first.cell_m:g} m", path=file)
        layers[LAYERS.index(layer)] = _checked(layer, grid, file)
    return Tile(path.stem, layers, first.cell_m)


def tile_paths(folder: str | Path) -> list[Path]:
    """Return the tiles of a folder by name: GeoTIFFs or folders of layers; the folder itself where it is a tile.

    Where it has a folder per layer, a tile is what its files are called before the layer, `cropped_raster_7`.

    Raises:
        BadInput: there is none.
    """
    folder = Path(folder)
    if not folder.is_dir():
        return [folder]
    if tiles := _by_layer(folder):
        return [folder / name for name in sorted(tiles, key=_in_order)]
    if _layer_files(folder):
        return [folder]
    found = [
        p for p in sorted(folder.iterdir()) if p.suffix.lower() in SUFFIXES[:2] or (p.is_dir() and _layer_files(p))
    ]
    if not found:
        raise BadInput("no tiles", path=folder, hint="GeoTIFFs with a band per layer, or folders with slp.tif, ...")
    return found


def write_tile(path: Path, tile: Tile) -> None:
    """Write a tile as one GeoTIFF with a band per layer, compressed without loss.

    Raises:
        MissingExtra: rasterio is not installed.
    """
    rasterio = _rasterio()
    _, height, width = tile.layers.shape
    transform = rasterio.Affine(tile.cell_m, 0.0, 0.0, 0.0, -tile.cell_m, height * tile.cell_m)
    form = dict(driver="GTiff", height=height, width=width, count=len(LAYERS), dtype="int16", nodata=-9999)
    with rasterio.open(path, "w", **form, transform=transform, compress="deflate") as file:
        file.write(tile.layers)
        file.descriptions = LAYERS


def _layer_files(folder: Path) -> dict[str, Path]:
    files: dict[str, Path] = {}
    for file in sorted(folder.iterdir()):
        layer = _layer_of(file.stem)
        if file.suffix.lower() in SUFFIXES and layer:
            if layer in files:
                raise BadInput(f"two files for {layer}: {files[layer].name} and {file.name}", path=folder)
            files[layer] = file
    return files


def _by_layer(folder: Path) -> dict[str, dict[str, Path]]:
    """Return the files of each tile by layer, where a folder has a folder per layer."""
    tiles: dict[str, dict[str, Path]] = {}
    for inner in sorted(folder.iterdir() if folder.is_dir() else ()):
        layer = _layer_of(inner.name) if inner.is_dir() else None
        for file in sorted(inner.iterdir() if layer else ()):
            tile = file.stem.rpartition("_")[0]
            if layer and tile and file.suffix.lower() in SUFFIXES and _layer_of(file.stem) == layer:
                files = tiles.setdefault(tile, {})
                if layer in files:
                    raise BadInput(f"two files for {layer} of {tile}: {files[layer].name} and {file.name}", path=inner)
                files[layer] = file
    return tiles


def _layer_of(name: str) -> str | None:
    """Return the layer that the end of a name says."""
    end = name.lower().rpartition("_")[2]
    layer = ALSO_CALLED.get(end, end)
    return layer if layer in LAYERS else None


def _in_order(name: str) -> list[tuple[int, str]]:
    """Return what sorts tile 2 before tile 10."""
    return [(int(part), "") if part.isdecimal() else (-1, part) for part in re.split(r"(\d+)", name)]


def _read_layer(file: Path) -> Grid:
    if file.suffix.lower() == ".asc":
        return read_ascii(file)
    bands = _read_geotiff(file)
    if len(bands) != 1:
        raise BadInput(f"{len(bands)} bands in the file of one layer", path=file)
    return bands[0][1]


def _read_bands(file: Path) -> Mapping[str, Grid]:
    grids: dict[str, Grid] = {}
    for number, (description, grid) in enumerate(_read_geotiff(file), start=1):
        layer = (description or "").lower()
        if layer not in LAYERS:
            raise BadInput(
                f"band {number} is called {description!r}", path=file, hint=f"descriptions {', '.join(LAYERS)}"
            )
        grids[layer] = grid
    return grids


def _read_geotiff(file: Path) -> list[tuple[str | None, Grid]]:
    rasterio = _rasterio()
    try:
        with rasterio.open(file) as source:
            if source.crs is not None and source.crs.is_geographic:
                raise BadInput("cells in degrees", path=file, hint="reproject to metres, such as EPSG:5070")
            width_m, height_m = abs(source.transform.a), abs(source.transform.e)
            if not np.isclose(width_m, height_m, rtol=1e-3):
                raise BadInput(f"cells of {width_m:g}x{height_m:g} m", path=file, hint="square ones are needed")
            values, masks = source.read(), source.read_masks()
            found = []
            for description, band, mask in zip(source.descriptions, values, masks, strict=True):
                numbers = band.astype(np.float64)
                found.append((description, Grid(numbers, width_m, (mask == 0) | ~np.isfinite(numbers))))
            return found
    except rasterio.errors.RasterioError as problem:
        raise BadInput(f"not a GeoTIFF: {problem}", path=file) from None


def _checked(layer: str, grid: Grid, file: Path) -> NDArray[np.int16]:
    if grid.missing.any():
        row, column = (int(i) for i in np.argwhere(grid.missing)[0])
        count = int(grid.missing.sum())
        where = f"the first in row {row}, column {column}"
        raise BadInput(f"{layer} has no data in {count} of {grid.values.size} cells, {where}", path=file)
    unit, least, most = UNITS[layer]
    rounded = np.rint(grid.values)
    low, high = float(rounded.min()), float(rounded.max())
    if low < least or high > most:
        wrong = low if low < least else high
        raise BadInput(f"{layer} is {wrong:g} somewhere", path=file, hint=f"{unit}, {least} to {most}")
    if layer == "fbfm40":
        if (rounded != grid.values).any():
            raise BadInput("fbfm40 has fractions", path=file, hint="codes of fuel models are whole numbers")
        check_codes(rounded.astype(np.int64), file)
    if layer == "asp":
        rounded[rounded == 360] = 0
    return rounded.astype(np.int16)


def _size(grid: Grid) -> str:
    return "x".join(map(str, grid.values.shape))


def _rasterio() -> Any:
    try:
        import rasterio
        import rasterio.errors
    except ImportError:
        raise MissingExtra("fire", "rasterio", what="reading GeoTIFF") from None
    return rasterio
