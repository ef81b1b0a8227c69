"""Landscapes from files: what is written is read again, and what is wrong with a file is said in one line."""

from __future__ import annotations

import re

import numpy as np
import pytest

from legroom.errors import BadInput
from legroom_workloads.fire.ascii_grid import read_ascii, write_ascii
from legroom_workloads.fire.generator import generate
from legroom_workloads.fire.landscapes import from_files
from legroom_workloads.fire.rasters import LAYERS, read_tile, tile_paths, write_tile

rasterio = pytest.importorskip("rasterio")
TILE = generate(3, (9, 12))


def write_layer(path, values, *, nodata=-9999, cell=30.0, crs=None):
    transform = rasterio.Affine(cell, 0, 0, 0, -cell, 0)
    height, width = values.shape
    form = dict(driver="GTiff", height=height, width=width, count=1, dtype=values.dtype, nodata=nodata, crs=crs)
    with rasterio.open(path, "w", **form, transform=transform) as file:
        file.write(values, 1)


@pytest.fixture
def folder(tmp_path):
    """A tile as a folder with one GeoTIFF per layer."""
    place = tmp_path / "tile"
    place.mkdir()
    for layer in LAYERS:
        write_layer(place / f"US_220_{layer}.tif", TILE[layer])
    return place


def test_a_folder_of_geotiffs_one_geotiff_and_ascii_grids_are_the_same_tile(folder, tmp_path):
    write_tile(tmp_path / "one.tif", TILE)
    grids = tmp_path / "grids"
    grids.mkdir()
    for layer in LAYERS:
        write_ascii(grids / f"{layer}.asc", TILE[layer], cell_m=30.0)
    for path in (folder, tmp_path / "one.tif", grids):
        tile = read_tile(path)
        assert tile.cell_m == 30.0
        np.testing.assert_array_equal(tile.layers, TILE.layers)


@pytest.fixture
def by_layer(tmp_path):
    """Tiles 2, 10 and 11 as the original project downloads them: a folder per layer, and other folders beside them."""
    place = tmp_path / "cropped_raster"
    for layer in LAYERS:
        short = layer.removesuffix("40")
        (place / short).mkdir(parents=True)
        for number in (2, 10, 11):
            write_layer(place / short / f"cropped_raster_{number}_{short}.tif", generate(number, (9, 12))[layer])
    (place / "fireline").mkdir()
    (place / "fireline" / "fireline_north_2.txt").write_text("0 0\n")
    (place / "domirank").mkdir()
    return place


def test_a_folder_per_layer_is_as_many_tiles_as_it_has_files(by_layer):
    paths = tile_paths(by_layer)
    assert [path.name for path in paths] == ["cropped_raster_2", "cropped_raster_10", "cropped_raster_11"]
    for path, number in zip(paths, (2, 10, 11), strict=True):
        tile = read_tile(path)
        assert tile.name == path.name
        np.testing.assert_array_equal(tile.layers, generate(number, (9, 12)).layers)
    found = from_files(by_layer)
    assert (len(found), found.cell_m) == (3, 30.0)


def spoil(folder, layer, change, **form):
    values = TILE[layer].copy()
    values = change(values) if callable(change) else values
    write_layer(folder / f"US_220_{layer}.tif", values, **form)


def with_cell(value):
    def change(values):
        values[2, 5] = value
        return values

    return change


@pytest.mark.parametrize(
    ("layer", "change", "form", "message"),
    [
        ("slp", with_cell(-9999), {}, "slp has no data in 1 of 108 cells, the first in row 2, column 5"),
        ("fbfm40", with_cell(-9999), {}, "fbfm40 has no data in 1 of 108 cells"),
        ("fbfm40", with_cell(150), {}, "unknown fuel model 150"),
        ("fbfm40", with_cell(32767), {}, "unknown fuel model 32767"),
        ("fbfm40", lambda v: v + np.float32(0.5), {}, "fbfm40 has fractions"),
        ("asp", lambda v: v[:-1], {}, "asp has 8x12 cells, slp has 9x12"),
        ("cc", lambda v: v, {"cell": 20.0}, "cc has cells of 20 m, slp of 30 m"),
        ("slp", with_cell(91), {}, "slp is 91 somewhere"),
        ("cc", with_cell(-5), {}, "cc is -5 somewhere"),
        ("slp", lambda v: v, {"crs": "EPSG:4326"}, "cells in degrees"),
        ("cc", lambda v: np.where(v == v[0, 0], np.nan, v).astype(np.float32), {}, "cc has no data"),
    ],
)
def test_what_is_wrong_with_a_layer_is_said_with_its_file(folder, layer, change, form, message):
    spoil(folder, layer, change, **form)
    with pytest.raises(BadInput, match=re.escape(f"US_220_{layer}.tif: {message}")) as problem:
        read_tile(folder)
    assert "\n" not in str(problem.value)


def test_files_that_are_not_there_or_not_geotiff(folder, tmp_path):
    with pytest.raises(BadInput, match="no such file or folder"):
        read_tile(tmp_path / "nowhere")
    (folder / "US_220_slp.tif").write_bytes(b"II*\0 but nothing after it")
    with pytest.raises(BadInput, match="not a GeoTIFF"):
        read_tile(folder)
    (folder / "US_220_slp.tif").unlink()
    with pytest.raises(BadInput, match="no layer slp"):
        read_tile(folder)
    write_layer(folder / "cc.tif", TILE["cc"])
    with pytest.raises(BadInput, match=r"two files for cc: US_220_cc.tif and cc.tif"):
        read_tile(folder)


ASCII = "ncols 3\nnrows 2\nxllcorner 0\nyllcorner 0\ncellsize 30\nNODATA_value -1\n1 2 3\n4 -1 6\n"


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("1 2 3\n", "1 two 3\n", ":7: not a number: 'two'"),
        ("4 -1 6\n", "4 -1\n", ": 5 values where the header says 2x3"),
        ("4 -1 6\n", "4 -1 6 7\n", ":8: more than 2x3 values"),
        ("ncols 3\n", "", ": not an ASCII grid: no ncols"),
        ("ncols 3\n", "ncols three\n", ":1: ncols is 'three'"),
        ("nrows 2\n", "nrows 1.5\n", ": nrows is 1.5"),
        ("nrows 2\n", "nrows nan\n", ": nrows is nan"),
        ("cellsize 30", "cellsize 0", ": cellsize 0"),
        ("ncols 3", "ncols 99999999", ": 2x99,999,999 cells"),
    ],
)
def test_what_is_wrong_with_an_ascii_grid_is_said_with_its_line(tmp_path, old, new, message):
    path = tmp_path / "slp.asc"
    path.write_text(ASCII.replace(old, new))
    with pytest.raises(BadInput, match=re.escape(f"slp.asc{message}")):
        read_ascii(path)
