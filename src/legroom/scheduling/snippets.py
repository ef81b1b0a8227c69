"""What to paste for a scheduler: the request in that system's words and units.

Rounding is the system's own. Slurm, Docker and Kubernetes take whole MiB (`4300M`, `4300m`, `4300Mi`); HTCondor rounds
what is asked for up to a multiple of 128 MiB, so that is printed. Slurm's whole GiB are printed where that adds little.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from legroom.errors import BadInput
from legroom.model.cluster import ActorRequests, NodeBill
from legroom.model.footprint import Phase, Place
from legroom.scheduling.requests import DEFAULT_SHM, Request, System, rounded, with_margin
from legroom.units import GIB, MIB, format_size

CONDOR_STEP = 128 * MIB  # MODIFY_REQUEST_EXPR_REQUESTMEMORY; its default, by the manual of HTCondor
WHOLE_GIB = 0.01  # what rounding up to whole GiB may add
SHM_PATH = "/dev/shm"
RAY_IMAGE = "rayproject/ray:VERSION"
RAY_SHARE = 0.95  # of a node's memory, above which Ray's monitor kills (memory_usage_threshold)
STORE_SHARE, LEAST_STORE = 1.25, 80_000_000  # pieces of an object store do not fill it; Ray takes none below 75 MiB


def granted(request: Request, system: System) -> int:
    """Return the bytes that the system gives where it is asked as the snippet asks."""
    if system is System.CONDOR:
        return rounded(request.host, CONDOR_STEP)
    whole = rounded(request.host, GIB)
    if system is System.SLURM and whole <= request.host * (1 + WHOLE_GIB):
        return whole
    return rounded(request.host, MIB)


def snippet(request: Request, system: System) -> str:
    """Return the lines to paste.

    Raises:
        BadInput: the system starts clusters, and this is one job.
    """
    if system is System.KUBERAY:
        hint = "--nodes 4 --node-ram 32GiB; one machine: --for kubernetes"
        raise BadInput("--for kuberay describes a cluster, and there is none", hint=hint)
    if request.nodes > 1 and system is not System.SLURM:
        raise BadInput(
            f"--for {system} starts one machine, and there are {request.nodes}", hint="--for kuberay or slurm"
        )
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
    if request.nodes > 1:
        yield f"#SBATCH --nodes={request.nodes}"
    yield f"#SBATCH --mem={nbytes // GIB}G" if nbytes % GIB == 0 else f"#SBATCH --mem={nbytes // MIB}M"
    if request.gpu is not None:
        yield "#SBATCH --gres=gpu:1"


def _kubernetes(request: Request, nbytes: int) -> Iterator[str]:
    yield from _remarks(request)
    yield from _pod(nbytes, container="train", shm=_shm(request), gpu=request.gpu is not None)


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


def _pod(
    nbytes: int, *, container: str, shm: int, gpu: bool, image: str = "", cpus: float | None = None
) -> Iterator[str]:
    """Yield a pod's spec; requests are the limits, so that the node keeps what the pod may take."""
    asked = f"memory: {nbytes // MIB}Mi" + ("" if cpus is None else f', cpu: "{cpus:g}"')
    yield "spec:"
    yield "  containers:"
    yield f"    - name: {container}"
    if image:
        yield f"      image: {image}"
    yield "      resources:"
    yield f"        requests: {{{asked}}}"
    yield f"        limits: {{{asked}{', nvidia.com/gpu: 1' if gpu else ''}}}"
    if shm:
        yield f"      volumeMounts: [{{name: shm, mountPath: {SHM_PATH}}}]"
        yield f"  volumes: [{{name: shm, emptyDir: {{medium: Memory, sizeLimit: {shm // MIB}Mi}}}}]"


def ray_cluster(name: str, bills: Sequence[NodeBill], requests: ActorRequests | None = None) -> str:
    """Return a RayCluster for KubeRay: the head, and a group per kind of the others.

    Where the run was fitted, each pod declares to Ray just what the runners that the plan puts there ask for, so that
    Ray can place them in no other way.

    Args:
        requests: of a plan; None for a run that was only predicted, whose runners ask for nothing.
    """
    lines = ["apiVersion: ray.io/v1", "kind: RayCluster", f"metadata: {{name: {_dns(name)}}}", "spec:"]
    for number, bill in enumerate(bills):
        pod = [f"  {line}" for line in _group(bill, requests, head=number == 0)]
        if number == 0:
            lines += ["  headGroupSpec:", *(f"  {line}" for line in pod)]
            continue
        count = len(bill.names)
        lines += [] if number > 1 else ["  workerGroupSpecs:"]
        lines += [f"    - groupName: workers-{number}", f"      replicas: {count}", f"      minReplicas: {count}"]
        lines += [f"      maxReplicas: {count}", *(f"    {line}" for line in pod)]
    return "\n".join(lines)


def _group(bill: NodeBill, requests: ActorRequests | None, *, head: bool) -> Iterator[str]:
    """Yield what a group's pods are started with."""
    node, need = bill.node, bill.footprint.host.high
    in_store = max(bill.footprint.band(phase, (Place.SHM,)).high for phase in Phase)
    store = rounded(max(int(STORE_SHARE * in_store), LEAST_STORE), MIB)
    nbytes = min(
        rounded(int(with_margin(need + store - in_store, bill.runners + 1) / RAY_SHARE), MIB), node.ram // MIB * MIB
    )
    yield f"# up to {format_size(need)} with {bill.runners} env runners; Ray kills above {RAY_SHARE:.0%} of the limit"
    declared = {"object-store-memory": store}
    if requests is not None:
        learner = requests.learner_nbytes or 0 if head else 0
        declared["memory"] = bill.runners * requests.runner_nbytes + learner
    given = ", ".join(f'{key}: "{size}"' for key, size in declared.items())
    yield f"rayStartParams: {{{given}}}"
    yield "template:"
    container, on_card = "ray-head" if head else "ray-worker", bill.footprint.gpu is not None
    for line in _pod(nbytes, container=container, shm=store, gpu=on_card, image=RAY_IMAGE, cpus=node.cpus):
        yield f"  {line}"


def _dns(name: str) -> str:
    """Return a name as Kubernetes takes it: lower-case letters, digits and hyphens."""
    text = "".join(letter if letter.isascii() and letter.isalnum() else "-" for letter in name.lower())
    return text.strip("-")[:50] or "training"
