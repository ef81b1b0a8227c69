"""Generated landscapes: always the same, written once, and layers that belong together."""

from __future__ import annotations

import json

import numpy as np
import pytest

from legroom.errors import BadInput
from legroom_workloads.fire import landscapes
from legroom_workloads.fire.generator import generate
from legroom_workloads.fire.rasters import read_tile

TILES = [generate(seed) for seed in range(40)]


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
