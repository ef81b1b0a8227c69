"""Which files a block model is read from: none for the generated sample, a CSV file, or a MineLib instance's handful.

Kept apart from the readers, because whoever only wants to know whether something changed need not import them.
"""

from __future__ import annotations

import os
from pathlib import Path

from legroom.extend import BadInput

SAMPLE = "sample"
MINELIB_SUFFIXES = (".blocks", ".prec", ".upit", ".cpit")


def data_files(name_or_path: str | os.PathLike[str]) -> list[Path]:
    """Return the files of a model, the main one first; none for the generated sample.

    A MineLib instance goes by the path of any of its files or by their common stem; its main file is `.blocks`.

    Raises:
        BadInput: there are no such files.
    """
    if name_or_path == SAMPLE:
        return []
    path = Path(name_or_path).expanduser()
    is_minelib = path.suffix.lower() in MINELIB_SUFFIXES
    stem = path.with_suffix("") if is_minelib else path
    instance = [stem.with_name(stem.name + suffix) for suffix in MINELIB_SUFFIXES] if stem.name else [stem]
    if instance[0].is_file() and (is_minelib or not path.is_file()):
        return [file for file in instance if file.is_file()]
    if path.is_dir():
        raise BadInput("is a directory", path=path, hint="name a CSV file, or the stem of a MineLib instance in it")
    if is_minelib and path.is_file():
        raise BadInput("its .blocks file is not there", path=path, hint=f"put {instance[0].name} beside it")
    if path.is_file():
        return [path]
    raise BadInput(f"there is no block model {str(name_or_path)!r}", hint="sample, a CSV file, or a MineLib instance")
