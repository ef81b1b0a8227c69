"""How long processes have to wait for memory: the kernel's pressure stall information (PSI), where it keeps it.

A container that is nearly full does not die at once. The kernel first takes back pages of programs and files, which are
read again a moment later; everything becomes slow, and this figure rises before the killing begins.
"""

from __future__ import annotations

import re
from pathlib import Path

from legroom.machine.cgroup import own_cgroups

OF_MACHINE = "proc/pressure/memory"
OF_CGROUP = "memory.pressure"  # v2 only
_AVG10 = re.compile(r"^full\b.*\bavg10=(\d+\.?\d*)(?!\S)", re.MULTILINE)


def read_pressure(root: Path = Path("/")) -> float | None:
    """Return the share of the last 10 s in which every process stood still for memory, None where nobody tells.

    That of the container where it has one of its own, else that of the machine.
    """
    for path in (*(folder / OF_CGROUP for _, folder, _ in own_cgroups(root)), root / OF_MACHINE):
        share = _full(path)
        if share is not None:
            return share
    return None


def _full(path: Path) -> float | None:
    """Return `avg10` of the line `full avg10=1.53 avg60=...`, in percent there."""
    try:
        found = _AVG10.search(path.read_text(encoding="ascii", errors="replace"))
    except OSError:  # a kernel without it, or with psi=0
        return None
    return None if found is None else float(found[1]) / 100
