"""What every node of a cluster will hold: where Ray puts the runners, and the bills that follow.

Ray places an actor by what it asks for, one CPU each if nothing else is said. Its hybrid policy takes the driver's node
until half of it is in use, then the next one, and once all are half full, the emptiest. Where a plan was made for the
cluster, its own numbers are taken.

Nodes that are alike and get as many runners have one bill: the bills of a thousand nodes are two or three.
"""

import heapq
import math
from collections.abc import Sequence
from dataclasses import replace

from legroom.backends.rllib.items import RoleItems, role_items
from legroom.backends.rllib.translation import RllibPlan, rllib_plan
from legroom.errors import BadInput
from legroom.model.cluster import Cluster, Node, NodeBill
from legroom.model.evidence import Evidence
from legroom.model.footprint import AllocatorPeaks, Footprint, Phase, Place
from legroom.model.run import Run
from legroom.predicting.gpu import gpu_items

HALF = 0.5  # Ray's scheduler_spread_threshold
RESERVED_SHARE = 0.05  # of a node's RAM: Ray's memory monitor kills above 95 % (memory_usage_threshold)


def usable(node: Node, reserve: float = 0.0) -> int:
    """Return the bytes of a node that a run may use: Ray's memory monitor begins to kill before the RAM is full."""
    return int(node.ram * (1 - max(RESERVED_SHARE, reserve)))


def node_footprint(
    run: Run,
    roles: RoleItems,
    evidence: Evidence,
    *,
    head: bool,
    runners: int,
    alone: bool = False,
    notes: tuple[str, ...] = (),
) -> Footprint:
    """Return the bill of one node; `alone`: there is no other."""
    items = list(roles.node)
    items.append(roles.files if head or runners else roles.bare_files)
    if head:
        items += roles.head
    elif runners:
        items += roles.crewed
    if not alone and (head or runners):
        items += roles.transfers
    # the driver reads in place what runners of its own node wrote, and that is on the head's bill already
    items += [replace(item, count=runners) for item in roles.runner if not (head and item.place is Place.SHM)]
    allocator: AllocatorPeaks | None = None
    device = evidence.device if head else "cpu"
    if device == "cuda" and evidence.net is not None:
        on_gpu, allocator = gpu_items(roles.shadow, evidence.net, evidence.machine)
        items += [*on_gpu, *roles.gpu]
    kept = tuple(item for item in items if item.total)
    return Footprint(run.name, kept, device, roles.findings if head else (), allocator, notes)


def on_one_machine(run: Run, evidence: Evidence) -> Footprint:
    """Return the bill of a run whose Ray is started on this machine alone."""
    plan = rllib_plan(run)
    roles = role_items(run, plan, evidence, evidence.base)
    notes = (*evidence.notes, *plan.said)
    return node_footprint(run, roles, evidence, head=True, runners=plan.runners, alone=True, notes=notes)


def runner_request(run: Run, evidence: Evidence) -> int:
    """Return the bytes that one env runner should ask Ray for: the upper end of what it is predicted to need."""
    roles = role_items(run, rllib_plan(run), evidence, evidence.base)
    return Footprint(run.name, tuple(item for item in roles.runner if item.total), "cpu").host.high


def bills(
    run: Run,
    cluster: Cluster,
    roles: RoleItems,
    evidence: Evidence,
    placed: Sequence[int],
    *,
    reserve: float = 0.0,
) -> list[NodeBill]:
    """Return a bill per group of nodes that are alike, in the order of the cluster."""
    groups: dict[tuple[bool, int, object], list[Node]] = {}
    for number, (node, runners) in enumerate(zip(cluster.nodes, placed, strict=True)):
        groups.setdefault((number == 0, runners, node.kind), []).append(node)
    found = []
    for (head, runners, _), nodes in groups.items():
        alone = len(cluster.nodes) == 1
        footprint = node_footprint(run, roles, evidence, head=head, runners=runners, alone=alone)
        names = tuple(node.name for node in nodes)
        found.append(NodeBill(names, nodes[0], runners, footprint, bill_fits(footprint, nodes[0], reserve)))
    return found


def bill_fits(footprint: Footprint, node: Node, reserve: float = 0.0) -> bool:
    """Return whether the upper end of every band is inside what the node has: RAM, object store, GPU."""
    gpu = footprint.gpu
    on_card = gpu is None or (node.gpu is not None and gpu.high <= node.gpu.free * (1 - reserve))
    return footprint.host.high <= usable(node, reserve) and store_fits(footprint, node) and on_card


def store_need(footprint: Footprint) -> int:
    """Return the most that a node's object store has to hold."""
    return max(footprint.band(phase, (Place.SHM,)).high for phase in Phase)


def store_fits(footprint: Footprint, node: Node) -> bool:
    """Return whether the object store, where its size is said, holds what is in it at once; Ray would spill to disk."""
    limits = [size for size in (node.shm, node.object_store) if size is not None]
    return store_need(footprint) <= min(limits, default=store_need(footprint))


def place(cluster: Cluster, plan: RllibPlan, runner_nbytes: int | None = None) -> list[int]:
    """Return how many runners Ray puts on each node, in the order of the nodes.

    Args:
        runner_nbytes: memory that each asks for, of what the nodes declare; None: they ask for CPUs alone.

    Raises:
        BadInput: the nodes have too few CPUs, where they are known; Ray would wait for ever.
    """
    rooms = [_room(node, plan, runner_nbytes) for node in cluster.nodes]
    if all(room is None for room in rooms):
        return spread(plan.runners, len(cluster.nodes))
    most = [plan.runners if room is None else room for room in rooms]
    if sum(map(int, most)) < plan.runners:
        raise BadInput(
            f"{plan.runners:,} runners of {plan.cpus_per_runner:g} CPU each, and the cluster has room for "
            f"{sum(map(int, most)):,}",
            hint="fewer runners with more envs each: num_env_runners; legroom fit finds them",
        )
    placed, left = [0] * len(most), plan.runners
    for number, room in enumerate(most):  # each as long as less than half of it is in use
        first = min(left, int(room), math.ceil(HALF * room))
        placed[number], left = first, left - first
    queue = [(placed[n] / room, n) for n, room in enumerate(most) if placed[n] < int(room)]
    heapq.heapify(queue)
    while left:  # then the emptiest
        _, number = heapq.heappop(queue)
        placed[number], left = placed[number] + 1, left - 1
        if placed[number] < int(most[number]):
            heapq.heappush(queue, (placed[number] / most[number], number))
    return placed


def _room(node: Node, plan: RllibPlan, runner_nbytes: int | None) -> float | None:
    """Return how many runners a node holds by what it declares, with the fraction of the last; None: unlimited."""
    rooms = []
    if node.cpus is not None and plan.cpus_per_runner:
        rooms.append(node.cpus / plan.cpus_per_runner)
    if node.memory is not None and runner_nbytes:
        rooms.append(node.memory / runner_nbytes)
    return min(rooms, default=None)


def spread(runners: int, nodes: int) -> list[int]:
    """Return the runners spread evenly; the head, which has the driver, is never among those with one more."""
    each, more = divmod(runners, nodes)
    return [each + (number > nodes - 1 - more) for number in range(nodes)]


def predict_nodes(run: Run, evidence: Evidence, cluster: Cluster, *, reserve: float = 0.0) -> list[NodeBill]:
    """Return the bills of all nodes for the run as it is written.

    Raises:
        BadInput: it has more runners than the cluster has CPUs for.
    """
    plan = rllib_plan(run)
    roles = role_items(run, plan, evidence, evidence.base)
    return bills(run, cluster, roles, evidence, place(cluster, plan), reserve=reserve)
