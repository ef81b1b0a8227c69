"""Generated landscapes: always the same, written once, and layers that belong together."""

from __future__ import annotations

import json

import numpy as np
import pytest

from legroom.errors import BadInput
from legroom_workloads.fire import landscapes
from legroom_workloads.fire.fuels import burnable, check_codes
from legroom_workloads.fire.generator import generate
from legroom_workloads.fire.rasters import read_tile

TILES = [generate(seed) for seed in range(40)]


def correlation(a, b):
    return float(np.corrcoef(np.ravel(a), np.ravel(b))[0, 1])


def test_a_seed_is_always_the_same_landscape_and_another_one_is_not():
    assert (generate(7).layers == TILES[7].layers).all()
    assert (generate(8).layers != TILES[7].layers).any()


def test_slope_and_aspect_are_those_of_the_terrain():
    for tile in TILES[:10]:
        down, right = np.gradient(tile["dem"].astype(float), 30.0)
        slope = np.degrees(np.arctan(np.hypot(down, right)))
        assert abs(slope - tile["slp"]).max() < 3  # heights are whole metres
        steep = tile["slp"] > 10
        uphill_row, uphill_column = -np.cos(np.radians(tile["asp"] + 180)), np.sin(np.radians(tile["asp"] + 180))
        assert (down[steep] * uphill_row[steep] + right[steep] * uphill_column[steep] > 0).all()


def test_neighbours_are_alike_and_landscapes_are_not_one_colour():
    heights = np.mean([correlation(t["dem"][:, 1:], t["dem"][:, :-1]) for t in TILES])
    same_fuel = np.mean([(t["fbfm40"][:, 1:] == t["fbfm40"][:, :-1]).mean() for t in TILES])
    assert heights > 0.98
    assert same_fuel > 0.5
    assert min(len(np.unique(t["fbfm40"])) for t in TILES) >= 8


def test_northern_slopes_carry_more_timber_and_trees_have_all_of_a_tree():
    north = np.concatenate([(t["fbfm40"] >= 161)[np.cos(np.radians(t["asp"])) > 0.7].ravel() for t in TILES])
    south = np.concatenate([(t["fbfm40"] >= 161)[np.cos(np.radians(t["asp"])) < -0.7].ravel() for t in TILES])
    assert north.mean() > 1.3 * south.mean()
    for tile in TILES:
        trees = tile["cc"] > 0
        assert (trees == (tile["ch"] > 0)).all() and (trees == (tile["cbd"] > 0)).all()
        assert (tile["cbh"] <= tile["ch"]).all()
        assert (tile["fbfm40"][trees] >= 161).all()


def test_fuels_are_fuel_models_and_most_of_it_burns():
    for tile in TILES:
        check_codes(tile["fbfm40"])
        assert 0.8 < burnable(tile["fbfm40"]).mean() <= 1.0


@pytest.mark.parametrize("shape", [(3, 50), (50, 5000)])
def test_a_shape_that_cannot_be(shape):
    with pytest.raises(BadInput, match="a landscape of"):
        generate(0, shape)


def test_they_are_written_as_geotiff_once_and_then_only_read(tmp_path, monkeypatch):
    pytest.importorskip("rasterio")
    monkeypatch.setattr(landscapes, "cache_folder", lambda: tmp_path)
    found = landscapes.generated(3, (12, 10), first_seed=77_001)
    assert found.layers.shape == (3, 8, 12, 10) and not found.layers.flags.writeable
    request = json.dumps({"count": 3, "shape": [12, 10], "first_seed": 77_001})
    folder = landscapes.generated_folder(request)
    assert sorted(path.name for path in folder.iterdir())[:-1] == [f"landscape-{77_001 + i}.tif" for i in range(3)]
    for index in range(3):
        assert (read_tile(folder / f"landscape-{77_001 + index}.tif").layers == found.layers[index]).all()
    written = folder.stat().st_mtime_ns
    again = landscapes._cached(request, folder)
    assert (again == found.layers).all() and folder.stat().st_mtime_ns == written
    (folder / "layers.npy").write_bytes(b"damaged")
    assert (landscapes._cached(request, folder) == found.layers).all()  # mended


def test_without_a_place_to_write_to_they_are_the_same(tmp_path, monkeypatch):
    (tmp_path / "file").write_text("in the way")
    monkeypatch.setattr(landscapes, "cache_folder", lambda: tmp_path / "file")
    found = landscapes.generated(2, (6, 6), first_seed=77_010)
    assert (found.layers[1] == generate(77_011, (6, 6)).layers).all()


@pytest.mark.parametrize("count", [0, -1, True, 2.5, 10**9])
def test_a_number_of_rasters_that_cannot_be(count):
    with pytest.raises(BadInput, match="rasters"):
        landscapes.generated(count)
