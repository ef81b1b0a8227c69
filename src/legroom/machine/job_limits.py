"""The job that this process is part of: which scheduler started it, and the memory it was given.

A scheduler's limit is enforced by a cgroup on most systems, and that is read anyway; its variables say whose limit it
is. Where the cgroup has none (Slurm without `ConstrainRAMSpace`, HTCondor's polling) the job is killed by someone who
looks every half minute, so the number in the variables is a limit as well.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from legroom.units import MIB

_CONDOR_MEMORY = re.compile(r"^\s*Memory\s*=\s*(\d+)\s*$", re.MULTILINE)


@dataclass(frozen=True)
class Job:
    """What started this process: `name` for people, and the limit that its variables name, None where they do not.

    Args:
        said: where the number is from: a variable, or a file.
    """

    name: str
    limit: int | None = None
    said: str = ""


def read_job(environ: Mapping[str, str], root: Path = Path("/")) -> Job | None:
    """Return the job, the innermost first: a Slurm job may run a container; None outside of all of them."""
    if environ.get("KUBERNETES_SERVICE_HOST"):
        return Job("this pod")
    if environ.get("SLURM_JOB_ID"):
        limit, said = _slurm_limit(environ)
        return Job(f"Slurm job {environ['SLURM_JOB_ID']}", limit, said)
    if environ.get("_CONDOR_MACHINE_AD"):
        return Job("this HTCondor job", _condor_limit(Path(environ["_CONDOR_MACHINE_AD"])), "its machine ad")
    if (root / ".dockerenv").exists() or (root / "run/.containerenv").exists():
        return Job("this container")
    return None


def _slurm_limit(environ: Mapping[str, str]) -> tuple[int | None, str]:
    """Return the job's memory on this node, and the option it was asked for with; Slurm counts in MiB."""
    if per_node := _number(environ.get("SLURM_MEM_PER_NODE")):
        return per_node * MIB, f"--mem={per_node}M"
    for option, each, count in (
        ("--mem-per-cpu", "SLURM_MEM_PER_CPU", "SLURM_CPUS_ON_NODE"),
        ("--mem-per-gpu", "SLURM_MEM_PER_GPU", "SLURM_GPUS_ON_NODE"),
    ):
        nbytes, number = _number(environ.get(each)), _number(environ.get(count))
        if nbytes and number:
            return nbytes * number * MIB, f"{option}={nbytes}M × {number}"
    return None, ""  # --mem=0: all of the node


def _condor_limit(ad: Path) -> int | None:
    try:
        found = _CONDOR_MEMORY.search(ad.read_text(errors="replace"))
    except OSError:
        return None
    return int(found[1]) * MIB if found and int(found[1]) else None


def _number(text: str | None) -> int | None:
    return int(text) if text is not None and text.isascii() and text.isdecimal() and int(text) else None
