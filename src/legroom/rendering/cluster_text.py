"""Nodes of a cluster as a table and as JSON; nodes that are alike share a row."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from legroom.model.cluster import Cluster, NodeBill
from legroom.model.footprint import Phase, Place
from legroom.rendering.layout import Styled, Table, verdict
from legroom.units import format_size


def nodes_data(cluster: Cluster, bills: Sequence[NodeBill]) -> list[dict[str, Any]]:
    """Return an entry per node, in the order of the cluster."""
    by_name = {name: bill for bill in bills for name in bill.names}
    return [_node_data(node.name, by_name[node.name]) for node in cluster.nodes]


def _node_data(name: str, bill: NodeBill) -> dict[str, Any]:
    peak, gpu = bill.footprint.host, bill.footprint.gpu
    return {
        "name": name,
        "peak": peak.nbytes,
        "band": [peak.low, peak.high],
        "fits": bill.fits,
        "runners": bill.runners,
        "ram": bill.node.ram,
        "object_store": _store(bill),
        "gpu": None if gpu is None else {"peak": gpu.nbytes, "band": [gpu.low, gpu.high]},
    }


def nodes_table(cluster: Cluster, bills: Sequence[NodeBill]) -> Table:
    """Return a row per group of nodes that are alike."""
    cards = any(bill.footprint.gpu for bill in bills)
    title = ["GPU"] if cards else []
    table = Table(
        ["nodes", "runners each", "peak", "at most", "of RAM", "object store", *title, "fits"],
        "lrrrrr" + "r" * cards + "l",
    )
    for bill in bills:
        peak, gpu = bill.footprint.host, bill.footprint.gpu
        table.add(
            names_text(cluster, bill.names) + (", the head" if cluster.head.name in bill.names else ""),
            f"{bill.runners:,}",
            format_size(peak.nbytes),
            format_size(peak.high),
            format_size(bill.node.ram),
            format_size(_store(bill)),
            *([format_size(gpu.high) if gpu else "–"] if cards else []),
            Styled("yes", "green") if bill.fits else Styled("no", "red"),
        )
    return table


def cluster_verdict(cluster: Cluster, bills: Sequence[NodeBill]) -> Styled:
    """Return in a line whether the run fits the cluster, and where it does not."""
    return verdict(_verdict_text(cluster, bills), "green" if all(bill.fits for bill in bills) else "bold red")


def _verdict_text(cluster: Cluster, bills: Sequence[NodeBill]) -> str:
    short = [bill for bill in bills if not bill.fits]
    count = f"{len(cluster.nodes):,} node{'s' if len(cluster.nodes) > 1 else ''}"
    if not short:
        runners = sum(len(bill.names) * bill.runners for bill in bills)
        return f"fits the cluster: {runners:,} env runner{'s' if runners != 1 else ''} on {count} ({cluster.origin})"
    where = "; ".join(f"{names_text(cluster, bill.names)}: {_shortage(bill)}" for bill in short[:3])
    return f"does not fit the cluster of {count}: {where}"


def names_text(cluster: Cluster, names: Sequence[str]) -> str:
    """Return `node 1`, `nodes 2–8` or `a, b, c and 5 more`."""
    if len(names) == 1:
        return names[0]
    numbers = [int(name.removeprefix("node ")) for name in names if name.removeprefix("node ").isdecimal()]
    if len(numbers) == len(names) and max(numbers) - min(numbers) == len(numbers) - 1:
        return f"nodes {min(numbers)}–{max(numbers)}"
    return ", ".join(names) if len(names) <= 3 else f"{', '.join(names[:2])} and {len(names) - 2:,} more"


def _shortage(bill: NodeBill) -> str:
    peak, gpu, node = bill.footprint.host, bill.footprint.gpu, bill.node
    if gpu is not None and (node.gpu is None or gpu.high > node.gpu.free):
        has = "no GPU is known there" if node.gpu is None else f"{format_size(node.gpu.free)} on a {node.gpu.name}"
        return f"the learner needs up to {format_size(gpu.high)} of GPU memory, {has}"
    limits = [size for size in (node.shm, node.object_store) if size is not None]
    if limits and _store(bill) > min(limits):
        return f"up to {format_size(_store(bill))} in an object store of {format_size(min(limits))}"
    return f"up to {format_size(peak.high)} of {format_size(node.ram)}, of which Ray's memory monitor leaves 95 %"


def _store(bill: NodeBill) -> int:
    return max(bill.footprint.band(phase, (Place.SHM,)).high for phase in Phase)
