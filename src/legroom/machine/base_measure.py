"""Measure the base figures: child processes that import the libraries, work a little, and report their memory.

Most predictions find the figures in the cache and need no subprocess, so backends import this only to measure.
"""

import json
import os
import subprocess
import sys
from pathlib import Path

from legroom.machine.patience import patiently

TIMEOUT_S = 120


def measure_base(child: Path, stage: str, wanted: set[str]) -> dict[str, int] | None:
    """Return the figures one stage of the child script reports, None where it cannot run or reports something else."""
    report = _read_child(_start_child(child, stage))
    return report if report is not None and set(report) == wanted else None


def _start_child(script: Path, stage: str) -> subprocess.Popen[bytes] | None:
    # the GPU context is an item of its own; of the working directory nothing is imported, by none of its processes
    environment = {**os.environ, "CUDA_VISIBLE_DEVICES": "", "PYTHONSAFEPATH": "1"}
    try:
        return subprocess.Popen(
            [sys.executable, "-P", str(script), stage],
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env=environment,
        )
    except OSError:
        return None


def _read_child(child: subprocess.Popen[bytes] | None) -> dict[str, int] | None:
    """Return what a child reports, None where it cannot run (no /proc, a library that does not import)."""
    if child is None:
        return None
    try:
        output, _ = patiently(child, TIMEOUT_S, lambda left: child.communicate(timeout=left))
        report = json.loads(output.splitlines()[-1])
    except (subprocess.SubprocessError, ValueError, IndexError):
        return None
    finally:
        child.kill()
        child.wait()
    return report if isinstance(report, dict) else None
