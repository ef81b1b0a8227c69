"""What every run of the installed libraries needs: interpreter, torch, SB3 and the processes around them.

These bytes depend on versions and builds (a CUDA build of torch doubles them), not on the run, and no arithmetic gives
them. So a child process (`base_child.py`) imports the libraries, makes a first tiny update, starts a worker if
the run has any, and reports; the figures are kept as JSON under the user's cache directory, one file per set of
versions. A prediction by arithmetic never measures: it takes the cached figures, or shipped ones with a wider error.

Measured in anonymous pages plus all pages of mapped libraries: in the sum of PSS of a lone process tree the libraries'
pages count once, whereas the child's own PSS would shrink whenever some other process on the machine has torch loaded.
"""

import json
import os
import subprocess
import sys
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from legroom.machine.cache import cache_folder, digest, read_figures, write_json
from legroom.machine.versions import read_versions
from legroom.model.footprint import Known

LIBRARIES = ("torch", "stable-baselines3", "gymnasium", "numpy")
# What SB3 imports where it is installed, and what that brings: part of what a process holds, so of the figures' name.
IMPORTED_IF_THERE = (
    "tensorboard", "opencv-python", "opencv-python-headless", "pandas", "matplotlib", "tqdm", "rich", "protobuf",
    "pygame", "pygame-ce", "sympy",
)  # fmt: skip
CHILD = Path(__file__).with_name("base_child.py")
TIMEOUT_S = 120

# Measured 2026-11-17, Linux x86-64, Python 3.11, torch 2.13.0+cpu, SB3 2.9.2, gymnasium 1.2.2, numpy 2.4.6, by
# `python src/legroom/backends/sb3/base_child.py forkserver` (and `fork`, `light`); it repeats within 1 MB. Of what SB3
# imports where it is installed, nothing was; OPTIONAL is what each of these adds, by the same.
SHIPPED_CPU = {
    "trainer": 334_000_000, "worker": 157_000_000, "light_worker": 23_000_000, "light_forked": 4_900_000,
    "fork_worker": 3_000_000, "fork_shared": 61_000_000, "helpers": 12_600_000, "without_updates": 244_000_000,
    "without_compiler": 261_000_000, "libraries": 103_000_000,
}  # fmt: skip
OPENCV = {
    "trainer": 16_400_000, "without_compiler": 16_400_000, "without_updates": 16_400_000, "worker": 4_100_000,
}  # fmt: skip
OPTIONAL = {
    "opencv-python": OPENCV,
    "opencv-python-headless": OPENCV,
    "tensorboard": {
        "trainer": 6_600_000, "without_compiler": 6_500_000, "without_updates": 6_500_000, "worker": 5_800_000,
        "fork_shared": 4_000_000,
    },
    "rich": {
        "trainer": 2_300_000, "without_compiler": 2_700_000, "without_updates": 2_700_000, "worker": 2_600_000,
    },
}  # fmt: skip
# torch 2.14.1 with CUDA 13: a worker has 284 MB of its own; the trainer has the same 175 MB on top of a worker's as
# above, and 120 MB more of mapped libraries; without updates or compiler it is taken to be less by as much as above.
SHIPPED_CUDA = SHIPPED_CPU | {
    "trainer": 582_000_000, "worker": 284_000_000, "without_updates": 492_000_000, "without_compiler": 509_000_000,
    "libraries": 223_000_000,
}  # fmt: skip

# Measured on this machine: what a repetition, page-cache state and the neighbours' share of libc and libpython change.
MEASURED_ERRORS = {
    "trainer": 15_000_000, "worker": 4_000_000, "light_worker": 4_000_000, "light_forked": 1_500_000,
    "fork_worker": 3_000_000, "fork_shared": 10_000_000, "helpers": 4_000_000, "without_updates": 15_000_000,
    "without_compiler": 15_000_000, "libraries": 0,
}  # fmt: skip
DEFAULT_ERRORS = {
    "trainer": 40_000_000, "worker": 15_000_000, "light_worker": 6_000_000, "light_forked": 2_000_000,
    "fork_worker": 4_000_000, "fork_shared": 20_000_000, "helpers": 5_000_000, "without_updates": 40_000_000,
    "without_compiler": 40_000_000, "libraries": 0,
}  # fmt: skip


# What each stage of the child tells; `forkserver` includes what `trainer` does.
STAGES = {
    "trainer": {"trainer", "without_compiler", "without_updates", "libraries"},
    "forkserver": {"trainer", "without_compiler", "without_updates", "libraries", "worker", "helpers"},
    "fork": {"fork_worker", "fork_shared"},
    "light": {"light_worker", "light_forked"},
}


@dataclass(frozen=True)
class BaseFigures:
    """Memory that any run of these library versions needs, measured in child processes or a shipped default."""

    trainer: int  # PSS of a process that has imported the libraries and made its first (tiny) update
    worker: int  # what one more SB3 worker process adds to the tree's PSS, its environment apart
    light_worker: int  # the same for a torch-free worker, or for the template that several are forked from
    errors: Mapping[str, int]  # ± bytes for each of those names
    known: Known
    versions: Mapping[str, str] = field(default_factory=dict)
    fork_worker: int = 0  # the same for a forked worker, which shares the trainer's pages until it writes to them
    fork_shared: int = 0  # what forked workers keep alive together: pages the trainer has replaced since it forked them
    helpers: int = 0  # the processes multiprocessing itself starts beside forkserver workers, together
    without_updates: int = 0  # as `trainer`, of an algorithm without gradients: no optimizer imports torch's compiler
    # as `trainer`, where the optimizer does not import torch's compiler, as in `legroom train`
    without_compiler: int = 0
    # the same for a torch-free worker that was forked from a template; 0: unknown, as a fresh one
    light_forked: int = 0
    # how much of `trainer` is pages of library files, which other processes with the same ones share
    libraries: int = 0


def base_figures(*, needed: Collection[str] = (), device: str = "cpu") -> BaseFigures:
    """Return the base figures of the installed versions: cached ones, and shipped ones where none are.

    A run on a GPU needs a CUDA build of torch; where another is installed, the shipped figures for one are taken.

    Args:
        needed: figures to measure now if they are not in the cache; by default none is.
    """
    versions = read_versions(LIBRARIES)
    cpu_build = versions.get("torch", "+cpu").endswith("+cpu")
    if device == "cuda" and cpu_build:
        return BaseFigures(
            **shipped(cpu=False), errors=DEFAULT_ERRORS, known=Known.DEFAULT, versions={"torch": "with CUDA"}
        )
    path = _cache_path(versions)
    measured = read_figures(path, SHIPPED_CPU)
    missing = set(needed) - set(measured)
    if missing and "torch" in versions and "stable-baselines3" in versions:
        # One stage after the other: side by side they would be quicker, and take a gigabyte.
        for stage in _stages_for(missing):
            measured |= _measure(stage) or {}
        write_json(path, {"figures": measured, "versions": versions})
    errors = {name: (MEASURED_ERRORS if name in measured else DEFAULT_ERRORS)[name] for name in SHIPPED_CPU}
    known = Known.MEASURED if "trainer" in measured else Known.DEFAULT
    return BaseFigures(**(shipped(cpu=cpu_build) | measured), errors=errors, known=known, versions=versions)


def shipped(*, cpu: bool) -> dict[str, int]:
    """Return the shipped figures, with what SB3 imports of the packages that are installed here."""
    figures = dict(SHIPPED_CPU if cpu else SHIPPED_CUDA)
    added = {id(OPTIONAL[name]): OPTIONAL[name] for name in read_versions(OPTIONAL) if name in OPTIONAL}
    for each in added.values():
        for name, nbytes in each.items():
            figures[name] += nbytes
    return figures


def figures_for(workers: Collection[str], start_method: str | None) -> set[str]:
    """Return the figures that matter to a run with these kinds of workers; a light alternative is always weighed."""
    if not {"subproc", "light"} & set(workers):
        return {"trainer"}
    forked = STAGES["fork"] if start_method == "fork" else set()
    return STAGES["forkserver"] | STAGES["light"] | forked


def _stages_for(missing: set[str]) -> list[str]:
    stages = [stage for stage in ("forkserver", "fork", "light") if (STAGES[stage] - STAGES["trainer"]) & missing]
    return stages if "forkserver" in stages or not STAGES["trainer"] & missing else ["trainer", *stages]


def _cache_path(versions: Mapping[str, str]) -> Path:
    # The child's own text is part of the key: figures measured in another way are other figures.
    others = read_versions(IMPORTED_IF_THERE)
    key = digest(sorted(versions.items()), sorted(others.items()), _system(), CHILD.read_bytes())
    return cache_folder() / f"base-{key}.json"


def _system() -> str:
    # platform.machine() says the same and takes 4 ms to import
    return " ".join((os.uname().sysname, os.uname().machine)) if hasattr(os, "uname") else os.name


def _measure(stage: str) -> dict[str, int] | None:
    """Return the figures one stage of the child reports, None where it cannot run or reports something else.

    The GPU context is an item of its own; of the working directory nothing is imported, by none of its processes.
    """
    from legroom.machine.child_process import patiently  # most commands do without it

    environment = {**os.environ, "CUDA_VISIBLE_DEVICES": "", "PYTHONSAFEPATH": "1"}
    command, nowhere = [sys.executable, "-P", str(CHILD), stage], subprocess.DEVNULL
    try:
        with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=nowhere, env=environment) as running:
            try:
                output, _ = patiently(running, TIMEOUT_S, lambda left: running.communicate(timeout=left))
            finally:
                running.kill()
        report = json.loads(output.splitlines()[-1])
    except (OSError, subprocess.SubprocessError, ValueError, IndexError):
        return None
    return report if isinstance(report, dict) and set(report) == STAGES[stage] else None
