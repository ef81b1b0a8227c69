"""Get a block model by what a run file calls it: `sample`, a CSV file, or a MineLib instance; on any grid.

A model comes as its data are, `upl` all 0 where they do not say where the pit ends: the pit depends on prices, which
are the environment's affair.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from importlib import import_module

from legroom_workloads.mine.blocks import BlockModel
from legroom_workloads.mine.coarser import resample
from legroom_workloads.mine.csv_file import read_csv
from legroom_workloads.mine.deposit import sample
from legroom_workloads.mine.files import data_files


def load_model(name_or_path: str | os.PathLike[str], grid: Sequence[int] | None = None) -> BlockModel:
    """Return the block model of that name, on `grid` = (nx, ny, nz) blocks if given, else on its own.

    Raises:
        BadInput: there is no such model, or its files are not in order.
    """
    files = data_files(name_or_path)
    if not files:
        model = sample()
    elif files[0].suffix == ".blocks":
        minelib = import_module("legroom_workloads.mine.minelib")  # brings scipy, which no other model needs
        model = minelib.to_block_model(minelib.read_minelib(files[0]))
    else:
        model = read_csv(files[0])
    return model if grid is None else resample(model, grid)
