"""Options that describe a cluster: on paper (`--nodes 8 --node-ram 64GiB`, `--node 2x64GiB`), or one that runs."""

from __future__ import annotations

import re
from typing import Annotated

import typer

from legroom.cli.help import CLUSTER, WHAT, rarely
from legroom.errors import BadInput
from legroom.extras import needs
from legroom.model.cluster import Cluster, Node
from legroom.model.machine import Gpu
from legroom.units import format_size, parse_size

Nodes = Annotated[
    int | None,
    typer.Option(
        "--nodes", rich_help_panel=CLUSTER, metavar="N", help="Nodes of a cluster, each with --node-ram SIZE."
    ),
]
NodeRam = Annotated[
    str | None,
    typer.Option("--node-ram", rich_help_panel=rarely(CLUSTER), metavar="SIZE", help="RAM of each node, e.g. 64GiB."),
]
NodeCpus = Annotated[
    float | None, typer.Option("--node-cpus", rich_help_panel=rarely(CLUSTER), metavar="N", help="CPUs of each node.")
]
NodeGpu = Annotated[
    str | None,
    typer.Option("--node-gpu", rich_help_panel=rarely(CLUSTER), metavar="NAME", help="GPU of each node, e.g. A10."),
]
NodeKinds = Annotated[
    list[str] | None,
    typer.Option(
        "--node",
        rich_help_panel=rarely(CLUSTER),
        metavar="NxSIZE",
        help="Nodes that differ: --node 2x64GiB --node 6x32GiB.",
    ),
]
RayCluster = Annotated[
    str | None,
    typer.Option(
        "--cluster",
        rich_help_panel=rarely(CLUSTER),
        metavar="auto|ADDRESS",
        help="Use the nodes of a running Ray cluster.",
    ),
]
Backend = Annotated[
    str | None,
    typer.Option(metavar="NAME", rich_help_panel=rarely(WHAT), help="Predict as if the run used this backend."),
]

_KIND = re.compile(r"(?:(\d+)\s*[x×*]\s*)?(.+)")
MOST_NODES = 100_000
LEAST_RAM, MOST_RAM = 1 << 28, 1 << 46  # 256 MiB: Ray's own services take as much; 64 TiB


def chosen_cluster(
    nodes: int | None,
    node_ram: str | None,
    node_cpus: float | None,
    node_gpu: str | None,
    kinds: list[str] | None,
    address: str | None,
) -> Cluster | None:
    """Return the cluster the options describe, None where they describe none.

    Raises:
        BadInput: they contradict each other, something is missing, or a size is silly.
    """
    if address is not None:
        if nodes or kinds or node_ram:
            raise BadInput("--cluster reads the nodes from the cluster", hint="drop --nodes, --node and --node-ram")
        with needs("ray", what="reading a cluster"):
            from legroom.cluster.nodes import read_cluster
        return read_cluster(address)
    if not nodes and not kinds:
        if nodes is not None:
            raise BadInput(f"--nodes {nodes} is not a number of nodes", hint="--nodes 8 --node-ram 64GiB")
        of_nodes = {"--node-ram": node_ram, "--node-cpus": node_cpus, "--node-gpu": node_gpu}
        if alone := next((option for option, value in of_nodes.items() if value), None):
            raise BadInput(f"{alone} needs --nodes", hint="--nodes 8 says how many")
        return None
    if nodes and kinds:
        raise BadInput("--nodes is for equal nodes, --node for different ones", hint="give one of them")
    if node_cpus is not None and not 0 < node_cpus < 1e6:
        raise BadInput(f"--node-cpus {node_cpus:g} is out of range", hint="--node-cpus 16")
    card = _card(node_gpu) if node_gpu else None
    sizes = enumerate(_sizes(nodes, node_ram, kinds), 1)
    return Cluster(tuple(Node(f"node {n}", ram, node_cpus, gpu=card) for n, ram in sizes), "given")


def _sizes(nodes: int | None, node_ram: str | None, kinds: list[str] | None) -> list[int]:
    """Return the RAM of each node."""
    if not kinds:
        if node_ram is None:
            raise BadInput(f"--nodes {nodes} needs the memory of each node", hint="--node-ram 64GiB")
        return [_ram(node_ram, "--node-ram")] * _count(nodes or 0, "--nodes")
    if node_ram is not None:
        raise BadInput("--node already gives the RAM of its nodes", hint="drop --node-ram")
    sizes = [one for text in kinds for one in _kind(text)]
    _count(len(sizes), "--node")
    return sizes


def _card(name: str) -> Gpu:
    from legroom.machine.gpu_table import find_gpu

    return find_gpu(name).as_gpu()


def _kind(text: str) -> list[int]:
    match = _KIND.fullmatch(text.strip())
    count = int(match[1]) if match and match[1] else 1
    return [_ram(match[2] if match else text, f"--node {text}")] * _count(count, f"--node {text}")


def _count(count: int, what: str) -> int:
    if not 0 < count <= MOST_NODES:
        raise BadInput(f"{what}: {count:,} nodes", hint=f"1 to {MOST_NODES:,}")
    return count


def _ram(text: str, what: str) -> int:
    nbytes = parse_size(text, what=what)
    if not LEAST_RAM <= nbytes <= MOST_RAM:
        raise BadInput(
            f"{what}: a node with {format_size(nbytes)} of RAM", hint="write it as 64GiB; a bare number is bytes"
        )
    return nbytes
