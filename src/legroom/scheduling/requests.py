"""What a job asks its scheduler for: the upper end of the band, a stated margin, rounded as that system rounds.

A scheduler kills by its cgroup, which counts a little more than the processes' own pages: page tables, stacks of the
kernel, sockets, the shell of the job. The band says nothing of that, so a margin is added to its upper end. Nothing is
added for page cache: the kernel gives that up before it kills.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from legroom.model.footprint import Footprint, Phase, Place
from legroom.units import MIB, format_size

# Page tables are 0.2 % of what is resident; a job's shell, the kernel's stacks and sockets are a few MiB. The rest of
# the margin is for what a band of 95 % leaves out. bench/scheduler_limits.py runs jobs under what comes out.
MARGIN_SHARE, MARGIN_BYTES = 0.02, 16 * MIB
MEASURED_SHARE = 0.1  # on top of a measured peak: samples miss moments, and no two runs are alike
DEFAULT_SHM = 64 * MIB  # what Docker and Kubernetes give a container that asks for nothing


class System(StrEnum):
    """A system that starts jobs under a memory limit."""

    SLURM = "slurm"
    KUBERNETES = "kubernetes"
    KUBERAY = "kuberay"
    DOCKER = "docker"
    CONDOR = "condor"


@dataclass(frozen=True)
class Request:
    """What one job asks for.

    Args:
        need: upper end of the band of host memory; `host` is that with the margin, not rounded yet.
        shm: what /dev/shm has to hold, in `host` too; 0 where nothing is there.
        gpu: bytes that a card has to have; None where none is used.
        nodes: machines of `host` bytes each.
    """

    name: str
    need: int
    shm: int = 0
    gpu: int | None = None
    nodes: int = 1
    remark: str = ""

    @property
    def host(self) -> int:
        return with_margin(self.need)

    @property
    def said(self) -> str:
        """How the number came about, in a line."""
        margin = f"{MARGIN_SHARE:.0%} and {format_size(MARGIN_BYTES)} for the kernel's own"
        each = " per node" if self.nodes > 1 else ""
        return f"{self.name}: up to {format_size(self.need)}{each}, plus {margin}"


def with_margin(nbytes: int) -> int:
    """Return what to ask for where a job needs so many bytes."""
    return int(nbytes * (1 + MARGIN_SHARE)) + MARGIN_BYTES


def request_for(footprint: Footprint, *, supervisor: int = 0) -> Request:
    """Return what a job with this footprint asks for.

    Args:
        supervisor: bytes of the process beside it that the footprint does not count.
    """
    shared = max(footprint.band(phase, (Place.SHM,)).high for phase in Phase)
    remark = f"without the environment, which was not built: {footprint.not_built}" if footprint.not_built else ""
    return Request(
        name=footprint.name,
        need=footprint.host.high + supervisor,
        shm=with_margin(shared) if shared else 0,
        gpu=footprint.gpu.high if footprint.gpu is not None else None,
        remark=remark,
    )


def measured_request(peak: int) -> int:
    """Return what to ask for where a job took so many bytes at its peak."""
    return int(peak * (1 + MEASURED_SHARE)) + MARGIN_BYTES


def rounded(nbytes: int, step: int) -> int:
    """Return the next multiple of `step` that is not below."""
    return -(-nbytes // step) * step
