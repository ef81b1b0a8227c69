"""Many landscapes as one array, which all environments of a run share.

Generated ones are written as GeoTIFF, once per machine, into the user's cache directory: they can be looked at in any
GIS, and are read like anybody else's. That is done by a child process, since rasterio is 60 MB of code that a worker
would keep for the rest of its life. It leaves the stacked layers beside the tiles, and the first process of a run
shares those with all others (`legroom.share`): 500 landscapes of 50x50 are 20 MB, not 20 MB per worker.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import shutil
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from legroom.extend import BadInput, cache_folder, share
from legroom_workloads.fire.generator import CELL_M, generate
from legroom_workloads.fire.rasters import Tile, read_tile, tile_paths, write_tile

STACK = "layers.npy"
MOST_LANDSCAPES = 100_000


@dataclass(frozen=True, eq=False)
class Landscapes:
    """int16 [N, 8, H, W], read-only and shared."""

    layers: NDArray[np.int16]
    cell_m: float

    def __len__(self) -> int:
        return len(self.layers)

    def __getitem__(self, index: int) -> Tile:
        return Tile(f"landscape {index}", self.layers[index], self.cell_m)


def generated(count: int, shape: tuple[int, int] = (50, 50), *, first_seed: int = 0) -> Landscapes:
    """Return the landscapes of `count` seeds from `first_seed` on.

    Raises:
        BadInput: none or too many, or a shape that cannot be.
    """
    if isinstance(count, bool) or not isinstance(count, int | np.integer) or not 1 <= count <= MOST_LANDSCAPES:
        raise BadInput(f"{count!r} rasters", hint=f"1 to {MOST_LANDSCAPES:,}")
    generate(first_seed, shape)  # complains of the shape here, and not in the child
    request = json.dumps({"count": int(count), "shape": list(shape), "first_seed": int(first_seed)})
    folder = generated_folder(request)
    arrays = share(f"fire {folder}", lambda: {"layers": _cached(request, folder)})
    return Landscapes(arrays["layers"], CELL_M)


def from_files(path: str | Path) -> Landscapes:
    """Return the tiles of a folder, or the one tile that `path` is.

    Raises:
        BadInput: what `read_tile` says of one of them, or tiles of differing shape.
    """

    def build() -> dict[str, np.ndarray]:
        tiles = [read_tile(tile) for tile in tile_paths(path)]
        for tile, file in zip(tiles, tile_paths(path), strict=True):
            if tile.layers.shape != tiles[0].layers.shape or tile.cell_m != tiles[0].cell_m:
                sizes = ["x".join(map(str, each.layers.shape[1:])) for each in (tile, tiles[0])]
                raise BadInput(f"{sizes[0]} cells, where {tiles[0].name} has {sizes[1]}", path=file)
        return {"layers": np.stack([tile.layers for tile in tiles]), "cell_m": np.array(tiles[0].cell_m)}

    # a run keeps what it has read; a file that changes is read by the next run
    arrays = share(f"fire {Path(path).resolve()}", build)
    return Landscapes(arrays["layers"], float(arrays["cell_m"]))


def generated_folder(request: str) -> Path:
    """Return where the GeoTIFFs of a request are, named by it and by what generates them."""
    digest = hashlib.sha256(request.encode())
    for module in ("generator.py", "rasters.py"):
        digest.update(Path(__file__).with_name(module).read_bytes())
    return cache_folder() / "fire" / digest.hexdigest()[:24]


def _cached(request: str, folder: Path) -> NDArray[np.int16]:
    """Return the stacked layers from the cache, generated into it; in memory where there is no place for it."""
    try:
        if (found := _read(folder)) is not None:
            return found
        folder.parent.mkdir(parents=True, exist_ok=True)
        with folder.with_suffix(".lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)  # of several runs that start at once, one generates
            if (found := _read(folder)) is None:
                shutil.rmtree(folder, ignore_errors=True)  # damaged, if it is there at all
                command = [sys.executable, "-P", "-m", "legroom_workloads.fire.landscapes", request, str(folder)]
                subprocess.run(command, capture_output=True, check=True)
                found = _read(folder)
        if found is not None:
            return found
    except (OSError, subprocess.CalledProcessError):
        pass  # no cache, or no rasterio: the landscapes are the same
    return np.stack([tile.layers for tile in _tiles(request)])


def _read(folder: Path) -> NDArray[np.int16] | None:
    try:
        return np.load(folder / STACK)
    except (OSError, ValueError, EOFError):
        return None


def _tiles(request: str) -> list[Tile]:
    wanted = json.loads(request)
    first, (height, width) = wanted["first_seed"], wanted["shape"]
    return [generate(seed, (height, width)) for seed in range(first, first + wanted["count"])]


def main(request: str, folder: str) -> int:
    """Write the landscapes of `request` into `folder`, in one step, so that no reader sees half of it."""
    target = Path(folder)
    temporary = Path(tempfile.mkdtemp(prefix=f"{target.name}.", dir=target.parent))
    try:
        tiles = _tiles(request)
        for tile in tiles:
            write_tile(temporary / f"{tile.name}.tif", tile)
        np.save(temporary / STACK, np.stack([tile.layers for tile in tiles]))
        temporary.rename(target)
    except BaseException:
        shutil.rmtree(temporary, ignore_errors=True)
        raise
    return 0


if __name__ == "__main__":
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    sys.exit(main(*sys.argv[1:]))
