"""What a job asks its scheduler for: the upper end of the band, a stated margin, rounded as that system rounds.

A scheduler kills by its cgroup, which counts a little more than the processes' own pages: page tables, stacks of the
kernel, pipes, inodes, the shell of the job. The band says nothing of that, so a margin is added to its upper end, by
the number of processes. Nothing is added for page cache, and mapped files of libraries, which the band counts, are page
cache too: the kernel gives them up before it kills.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from enum import StrEnum

from legroom.model.footprint import Footprint, Phase, Place
from legroom.units import GIB, MIB, format_size

# The kernel's own at its peak, in jobs of two processes: 10.2 MiB of 0.8 GiB, 14.1 of 1.3, 22.9 of 2.6; in one of
# seven: 16.8 MiB of 1.6 GiB (2026-11-18, `bench.scheduler_limits` of d63e92e7). With half of this margin a job
# whose peak lay at the upper end of its band failed under its limit.
MARGIN_SHARE, MARGIN_BYTES, MARGIN_PER_PROCESS = 0.02, 10 * MIB, 3 * MIB
# On top of a measured peak: samples miss moments, and no two runs are alike.
MEASURED_SHARE, MEASURED_BYTES = 0.1, 16 * MIB
DEFAULT_SHM = 64 * MIB  # what Docker and Kubernetes give a container that asks for nothing
CONDOR_STEP = 128 * MIB  # MODIFY_REQUEST_EXPR_REQUESTMEMORY; its default, by the manual of HTCondor
WHOLE_GIB = 0.01  # what rounding up to whole GiB may add
SHM_PATH = "/dev/shm"


class System(StrEnum):
    """A system that starts jobs under a memory limit."""

    SLURM = "slurm"
    KUBERNETES = "kubernetes"
    DOCKER = "docker"
    CONDOR = "condor"


@dataclass(frozen=True)
class JobRequest:
    """What one job asks for."""

    name: str
    need: int  # upper end of the band of host memory; `host` is that with the margin, not rounded yet
    shm: int = 0  # what /dev/shm has to hold, in `host` too; 0 where nothing is there
    gpu: int | None = None  # bytes that a card has to have; None where none is used
    remark: str = ""
    processes: int = 1  # of the job

    @property
    def host(self) -> int:
        return with_margin(self.need, self.processes)

    @property
    def said(self) -> str:
        """How the number came about, in a line."""
        margin = f"{format_size(self.host - self.need)} for kernel memory"
        return f"{self.name}: up to {format_size(self.need)}, plus {margin}"


def with_margin(nbytes: int, processes: int = 0) -> int:
    """Return what to ask for where so many processes need so many bytes."""
    return nbytes + int(nbytes * MARGIN_SHARE) + MARGIN_BYTES + processes * MARGIN_PER_PROCESS


def request_for(footprint: Footprint, *, supervisor: int = 0) -> JobRequest:
    """Return what a job with this footprint asks for.

    Args:
        supervisor: bytes of the process beside it that the footprint does not count.
    """
    shared = max(footprint.band(phase, (Place.SHM,)).high for phase in Phase)
    workers = max((item.count for item in footprint.items if item.place is Place.WORKER), default=0)
    remark = f"without the environment, which was not built: {footprint.not_built}" if footprint.not_built else ""
    return JobRequest(
        name=footprint.name,
        need=footprint.host.high + supervisor,
        shm=with_margin(shared) if shared else 0,
        gpu=footprint.gpu.high if footprint.gpu is not None else None,
        remark=remark,
        processes=1 + workers + (supervisor > 0),
    )


def measured_request(peak: int) -> int:
    """Return what to ask for where a job took so many bytes at its peak."""
    return int(peak * (1 + MEASURED_SHARE)) + MEASURED_BYTES


def rounded(nbytes: int, step: int) -> int:
    """Return the next multiple of `step` that is not below."""
    return -(-nbytes // step) * step


def granted(request: JobRequest, system: System) -> int:
    """Return the bytes that the system gives where it is asked as the snippet asks."""
    if system is System.CONDOR:
        return rounded(request.host, CONDOR_STEP)
    whole = rounded(request.host, GIB)
    if system is System.SLURM and whole <= request.host * (1 + WHOLE_GIB):
        return whole
    return rounded(request.host, MIB)


def snippet(request: JobRequest, system: System) -> str:
    """Return the lines to paste."""
    return "\n".join(_SNIPPETS[system](request, granted(request, system)))


def request_words(nbytes: int) -> list[str]:
    """Return the same number of bytes as Slurm and Kubernetes take it."""
    return [f"--mem={rounded(nbytes, MIB) // MIB}M (Slurm)", f"memory: {rounded(nbytes, MIB) // MIB}Mi (Kubernetes)"]


def _remarks(request: JobRequest) -> Iterator[str]:
    yield f"# {request.said}"
    if request.remark:
        yield f"# {request.remark}"
    if request.gpu is not None:
        yield f"# GPU: at least {format_size(request.gpu)} free"


def _slurm(request: JobRequest, nbytes: int) -> Iterator[str]:
    yield from _remarks(request)
    yield f"#SBATCH --mem={nbytes // GIB}G" if nbytes % GIB == 0 else f"#SBATCH --mem={nbytes // MIB}M"
    if request.gpu is not None:
        yield "#SBATCH --gres=gpu:1"


def _kubernetes(request: JobRequest, nbytes: int) -> Iterator[str]:
    """Yield a pod's spec; requests are the limits, so that the node keeps what the pod may take."""
    yield from _remarks(request)
    yield "spec:"
    yield "  containers:"
    yield "    - name: train"
    yield "      resources:"
    yield f"        requests: {{memory: {nbytes // MIB}Mi}}"
    yield f"        limits: {{memory: {nbytes // MIB}Mi{', nvidia.com/gpu: 1' if request.gpu is not None else ''}}}"
    if shm := _shm(request):
        yield f"      volumeMounts: [{{name: shm, mountPath: {SHM_PATH}}}]"
        yield f"  volumes: [{{name: shm, emptyDir: {{medium: Memory, sizeLimit: {shm // MIB}Mi}}}}]"


def _docker(request: JobRequest, nbytes: int) -> Iterator[str]:
    yield from _remarks(request)
    options = [f"--memory={nbytes // MIB}m"]
    if shm := _shm(request):
        options.append(f"--shm-size={shm // MIB}m")
    if request.gpu is not None:
        options.append("--gpus=1")
    yield f"docker run {' '.join(options)} IMAGE COMMAND"


def _condor(request: JobRequest, nbytes: int) -> Iterator[str]:
    yield from _remarks(request)
    yield f"request_memory = {nbytes // MIB}MB"
    if request.gpu is not None:
        yield "request_gpus = 1"
        yield f"gpus_minimum_memory = {rounded(request.gpu, MIB) // MIB}"


_SNIPPETS: dict[System, Callable[[JobRequest, int], Iterator[str]]] = {
    System.SLURM: _slurm, System.KUBERNETES: _kubernetes, System.DOCKER: _docker, System.CONDOR: _condor,
}  # fmt: skip


def _shm(request: JobRequest) -> int:
    """Return what /dev/shm has to be given, 0 where a container's default does."""
    return rounded(request.shm, MIB) if request.shm > DEFAULT_SHM else 0
