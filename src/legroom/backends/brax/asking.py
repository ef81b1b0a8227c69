"""Whether XLA's compiler is asked about a run before it is predicted.

A brax run is one compiled program, so its compiler is asked instead of following networks: mode `trace` about the very
run, `auto` only where nothing is known of its environment yet, since that takes minutes; what it said is kept for all
settings (`calibration`).
"""

from __future__ import annotations

from collections.abc import Callable

from legroom.backends.brax.items import with_brax_spaces
from legroom.backends.brax.scaling import is_calibrated
from legroom.machine.versions import is_installed
from legroom.model.evidence import Mode
from legroom.model.run import Run
from legroom.predicting.constraints import broken_rules


def asked_of_compiler(run: Run, mode: Mode, progress: Callable[[str], None]) -> Run:
    """Have the compiler asked about a run where the mode wants it; return the run with its spaces, where known.

    Raises:
        MissingExtra, BadInput: mode `trace` without jax, or a run that brax refuses.
    """
    ask = mode == "trace"
    if mode == "auto" and not is_calibrated(run):
        refused = any(finding.severity == "error" for finding in broken_rules(run))
        ask = not refused and is_installed("jax") and is_installed("brax")
    if ask:
        from legroom.backends.brax.calibration import calibrate

        calibrate(run, progress=progress)
    return with_brax_spaces(run)
