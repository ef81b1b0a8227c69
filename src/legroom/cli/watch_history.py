"""Keep how far a prediction was off of a script that was watched: what it took is known, what it would be told, too."""

from __future__ import annotations

from pathlib import Path

from legroom.errors import LegroomError
from legroom.machine import probe
from legroom.machine.history import PastRun, remember_run
from legroom.model.trace import Watched
from legroom.predicting.predict import predict
from legroom.reading import read_all


def remember_watched(found: Watched) -> PastRun | None:
    """Keep the peak of a script beside its prediction by arithmetic, where it is one run and ended well; else None.

    A script with arguments of its own may be any run, and is left out.
    """
    if found.exit_code != 0 or not found.exact or len(found.command) != 2 or not found.trace.peak_host:
        return None
    python, script = found.command
    if not Path(python).name.startswith("python") or not script.endswith(".py"):
        return None
    try:
        (run,) = read_all(script)
        said = predict(run, probe(), mode="arithmetic")
    except (LegroomError, ValueError, OSError):  # no run, several, or one whose sizes are not known
        return None
    measured = found.trace.peak_host
    return remember_run(run.name, said.way, said.host, measured, scale=said.band_scale, seen_by="watch")
