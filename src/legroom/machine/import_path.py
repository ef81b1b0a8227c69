"""Where a child process finds the modules that a run names."""

from __future__ import annotations

import sys
from pathlib import Path

from legroom.model.run import Run


def import_path(run: Run) -> list[str]:
    """Return the child's sys.path: modules beside the run file, then the working directory, then ours."""
    file = run.source or ""
    while file and not Path(file).is_file():
        file = file.rpartition(":")[0]  # `ppo.yml:ALE/Pong-v5` is an entry of a file
    here = str(Path.cwd())
    beside = str(Path(file).absolute().parent) if file else here
    return [beside, here, *(entry or here for entry in sys.path)]
