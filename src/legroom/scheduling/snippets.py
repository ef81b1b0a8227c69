"""What to paste for a scheduler: the request in that system's words and units.

Rounding is the system's own. Slurm, Docker and Kubernetes take whole MiB (`4300M`, `4300m`, `4300Mi`); HTCondor rounds
what is asked for up to a multiple of 128 MiB, so that is printed. Slurm's whole GiB are printed where that adds little.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from legroom.scheduling.requests import DEFAULT_SHM, Request, System, rounded
from legroom.units import GIB, MIB, format_size

CONDOR_STEP = 128 * MIB  # MODIFY_REQUEST_EXPR_REQUESTMEMORY; its default, by the manual of HTCondor
WHOLE_GIB = 0.01  # what rounding up to whole GiB may add
SHM_PATH = "/dev/shm"


def granted(request: Request, system: System) -> int:
    """Return the bytes that the system gives where it is asked as the snippet asks."""
    if system is System.CONDOR:
        return rounded(request.host, CONDOR_STEP)
    whole = rounded(request.host, GIB)
    if system is System.SLURM and whole <= request.host * (1 + WHOLE_GIB):
        return whole
    return rounded(request.host, MIB)


def snippet(request: Request, system: System) -> str:
    """Return the lines to paste."""
    return "\n".join(_SNIPPETS[system](request, granted(request, system)))


def request_words(nbytes: int) -> list[str]:
    """Return the same number of bytes as Slurm and Kubernetes take it."""
    return [f"--mem={rounded(nbytes, MIB) // MIB}M (Slurm)", f"memory: {rounded(nbytes, MIB) // MIB}Mi (Kubernetes)"]


def _remarks(request: Request) -> Iterator[str]:
    yield f"# {request.said}"
    if request.remark:
        yield f"# {request.remark}"
    if request.gpu is not None:
        yield f"# GPU: at least {format_size(request.gpu)} free"


def _slurm(request: Request, nbytes: int) -> Iterator[str]:
    yield from _remarks(request)
    yield f"#SBATCH --mem={nbytes // GIB}G" if nbytes % GIB == 0 else f"#SBATCH --mem={nbytes // MIB}M"
    if request.gpu is not None:
        yield "#SBATCH --gres=gpu:1"


def _kubernetes(request: Request, nbytes: int) -> Iterator[str]:
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


def _docker(request: Request, nbytes: int) -> Iterator[str]:
    yield from _remarks(request)
    options = [f"--memory={nbytes // MIB}m"]
    if shm := _shm(request):
        options.append(f"--shm-size={shm // MIB}m")
    if request.gpu is not None:
        options.append("--gpus=1")
    yield f"docker run {' '.join(options)} IMAGE COMMAND"


def _condor(request: Request, nbytes: int) -> Iterator[str]:
    yield from _remarks(request)
    yield f"request_memory = {nbytes // MIB}MB"
    if request.gpu is not None:
        yield "request_gpus = 1"
        yield f"gpus_minimum_memory = {rounded(request.gpu, MIB) // MIB}"


_SNIPPETS: dict[System, Callable[[Request, int], Iterator[str]]] = {
    System.SLURM: _slurm, System.KUBERNETES: _kubernetes, System.DOCKER: _docker, System.CONDOR: _condor,
}  # fmt: skip


def _shm(request: Request) -> int:
    """Return what /dev/shm has to be given, 0 where a container's default does."""
    return rounded(request.shm, MIB) if request.shm > DEFAULT_SHM else 0
