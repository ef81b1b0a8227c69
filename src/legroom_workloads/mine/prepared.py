"""Everything an environment needs to know about a deposit, computed once per machine instead of once per worker.

Reading 200,000 blocks, pricing them and finding the ultimate pit takes seconds and, for the pit's maximum flow, scipy:
20 MB of code that a worker process would keep for the rest of its life. So the first environment that wants a deposit
has it prepared in a child process, under a lock, into plain .npy files in the user's cache directory. From there the
first process of a run shares it with all others (`legroom.share`): one copy for everyone, also where no cache directory
can be written to.

The name of a cache entry is a digest of all that went into it: the file's or generator's content, the grid, the
prices, and the source of this package. So no entry is ever out of date, and none is changed once it is there; the
oldest go.
"""

from __future__ import annotations

import dataclasses
import fcntl
import hashlib
import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from legroom.extend import BadInput, cache_folder, share
from legroom_workloads.mine.blocks import COLUMNS, BlockModel
from legroom_workloads.mine.economics import Economics, block_values
from legroom_workloads.mine.files import data_files
from legroom_workloads.mine.precedence import Depths, Slopes, close_upwards, depths_of, slopes

UPL = COLUMNS.index("upl")
ARRAYS = ("ground", "values", "destination")
ENTRIES_KEPT = 16  # 13 MB each at 49x71x58


@dataclass(frozen=True, eq=False)
class Prepared:
    """A deposit, priced and with its pit.

    Attributes:
        name: what messages and pictures call it.
        ground: float32 [14, nx, ny, nz], the block model's channels; `upl` is the pit of *these* prices.
        values: float64 [nx, ny, nz], $ if mined today at the better destination.
        destination: uint8 [nx, ny, nz], 0 dump, 1 mill.
        size_m: the edges of one block, metres.
    """

    name: str
    ground: NDArray[np.float32]
    values: NDArray[np.float64]
    destination: NDArray[np.uint8]
    size_m: tuple[float, float, float]

    @property
    def shape(self) -> tuple[int, int, int]:
        """Blocks along x, y and z."""
        nx, ny, nz = self.values.shape
        return nx, ny, nz

    @property
    def tonnes(self) -> NDArray[np.float32]:
        """Tonnes per block, [nx, ny, nz]; 0 is air."""
        return self.ground[COLUMNS.index("ton")]

    @property
    def pit(self) -> NDArray[np.bool_]:
        """The blocks of the ultimate pit, [nx, ny, nz]."""
        return self.ground[UPL] > 0

    def surface(self) -> Depths:
        """Return the depth at which each column's ground begins, [nx, ny]: blocks without tonnes over it are air."""
        return np.argmin(np.pad(self.tonnes == 0, ((0, 0), (0, 0), (0, 1))), axis=2).astype(np.int32)

    def pit_depths(self) -> Depths:
        """Return how deep each column of the pit reaches, [nx, ny].

        A pit drawn by hand in a file may be steeper than 45 degrees; it is widened until its floor can be reached.
        """
        return close_upwards(depths_of(self.pit), self.slopes)

    @property
    def slopes(self) -> Slopes:
        """Which blocks over a block must be gone before it."""
        return slopes(self.shape, self.size_m)


def prepare(model: BlockModel, economics: Economics | None = None) -> Prepared:
    """Return the deposit priced and with its pit; imports scipy where the pit has to be found.

    A model that says itself where the pit ends (a file's `upl` column) keeps its own under the default prices; under
    other prices, or when it says nothing, the pit is the one that is worth most.
    """
    prices = economics or Economics()
    values, destination = block_values(model, prices)
    ground = model.channels
    if prices != Economics() or not ground[UPL].any():
        from legroom_workloads.mine.pit import ultimate_pit  # brings scipy

        ground = ground.copy()
        ground[UPL] = ultimate_pit(values, model.size_m)
    return Prepared(model.name, ground, values, destination, model.size_m)


def prepared(model: str, grid: tuple[int, int, int] | None = None, economics: Economics | None = None) -> Prepared:
    """Return a deposit by the name of a generator or the path of a file, from the cache or prepared into it.

    Args:
        grid: the number of blocks along x, y, z; None takes the deposit's own.

    Raises:
        BadInput: what `load_model` says about a model that cannot be used.
    """
    request = {"model": model, "grid": grid, "economics": dataclasses.asdict(economics or Economics())}
    return _get(json.dumps(request), cache_folder() / "mine" / _digest(request))


@lru_cache(maxsize=8)
def _get(request: str, folder: Path) -> Prepared:
    cached = _cached(request, folder)  # looked at in every process, so that a damaged entry is mended
    arrays = share(f"mine {folder}", lambda: _as_arrays(cached or _compute(json.loads(request))))
    fields: dict[str, Any] = {name: arrays[name] for name in ARRAYS}
    return Prepared(str(arrays["name"]), size_m=tuple(arrays["size_m"].tolist()), **fields)


def _as_arrays(found: Prepared) -> dict[str, np.ndarray]:
    # copies: with sharing switched off they are to be this process's own, and not those of the cache's file
    arrays = {name: np.array(getattr(found, name)) for name in ARRAYS}
    return {"name": np.array(found.name), "size_m": np.array(found.size_m), **arrays}


def _cached(request: str, folder: Path) -> Prepared | None:
    """Return the cache's entry, prepared if it is not there; None where there is no place to keep it."""
    if (found := _read(folder)) is not None:
        return found
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        with _alone(folder.with_suffix(".lock")):
            if _read(folder) is None:
                shutil.rmtree(folder, ignore_errors=True)  # damaged, if it is there at all
                _prepare_in_child(request, folder)
        return _read(folder)
    except OSError:
        return None


def _digest(request: dict[str, Any]) -> str:
    """Return a name for all that the result depends on."""
    digest = hashlib.sha256(json.dumps(request, sort_keys=True).encode())
    for path in data_files(request["model"]):
        try:
            with path.open("rb") as file:
                digest.update(hashlib.file_digest(file, "sha256").digest())
        except OSError as problem:
            raise BadInput(f"cannot be read: {problem.strerror}", path=path) from None
    for module in sorted(Path(__file__).parent.glob("*.py")):  # all, lest a new one be forgotten
        digest.update(module.read_bytes())
    return digest.hexdigest()[:24]


def _compute(request: dict[str, Any]) -> Prepared:
    from legroom_workloads.mine.models import load_model  # the readers are not needed where the cache has it

    grid = request["grid"]
    model = load_model(request["model"], grid=None if grid is None else tuple(grid))
    return prepare(model, Economics(**request["economics"]))


def _prepare_in_child(request: str, folder: Path) -> None:
    """Have a child process fill `folder`, so that neither scipy nor the peak of the work stays in this one."""
    command = [sys.executable, "-P", "-m", "legroom_workloads.mine.prepared", request, str(folder)]
    child = subprocess.run(command, capture_output=True, text=True, check=False)
    if child.returncode == BadInput.exit_code:
        raise BadInput(child.stderr.strip())
    if child.returncode:
        raise OSError(
            child.stderr.strip()
        )  # killed, disk full, …: the caller tries without a cache and sees for itself


def _write(found: Prepared, folder: Path) -> None:
    """Write the cache entry in one step, so that no reader sees half of it."""
    temporary = Path(tempfile.mkdtemp(prefix=f"{folder.name}.", dir=folder.parent))
    try:
        for name in ARRAYS:
            np.save(temporary / f"{name}.npy", getattr(found, name))
        (temporary / "deposit.json").write_text(json.dumps({"name": found.name, "size_m": found.size_m}))
        temporary.rename(folder)
    except OSError:
        shutil.rmtree(temporary, ignore_errors=True)
        raise
    # a process that has an old entry mapped keeps it; one that is about to map it prepares it again
    entries = sorted((path for path in folder.parent.iterdir() if path.is_dir()), key=lambda path: path.stat().st_mtime)
    for old in entries[:-ENTRIES_KEPT]:
        shutil.rmtree(old, ignore_errors=True)


def _read(folder: Path) -> Prepared | None:
    """Return a cache entry, mapped; None when there is none or it is damaged."""
    try:
        about = json.loads((folder / "deposit.json").read_bytes())
        # asarray: a view as a plain array, which is quicker to index than a memmap
        arrays = {name: np.asarray(np.load(folder / f"{name}.npy", mmap_mode="r")) for name in ARRAYS}
        return Prepared(about["name"], size_m=tuple(about["size_m"]), **arrays)
    except (OSError, ValueError, KeyError):
        return None


@contextmanager
def _alone(path: Path) -> Iterator[None]:
    """Hold the lock file: of several workers that start at once, one prepares and the others wait for it."""
    with path.open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def main(request: str, folder: str) -> int:
    """Prepare what `request` says into `folder`; what is wrong with it goes to stderr as one line."""
    try:
        _write(_compute(json.loads(request)), Path(folder))
    except BadInput as problem:
        sys.stderr.write(f"{problem}\n")
        return BadInput.exit_code
    return 0


if __name__ == "__main__":
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    sys.exit(main(*sys.argv[1:]))
