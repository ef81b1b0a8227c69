"""A Ray cluster that runs, as a Cluster: what its nodes declare.

Ray says what a node offers to actors (`memory`) and to objects (`object_store_memory`), not its RAM. By default both
come from what was available when the node started, so their sum is what a run may use there.
"""

from __future__ import annotations

import ray

from legroom.cluster.session import NodeFacts, cluster_of, ray_session
from legroom.errors import BadInput
from legroom.model.cluster import Cluster, Node


def read_cluster(address: str) -> Cluster:
    """Return the living nodes of the cluster at the address, the one that a driver started here is on first.

    Raises:
        BadInput: there is no cluster, or none of its nodes is alive.
    """
    if address == "local":
        raise BadInput("--cluster local starts a Ray of its own, which has no nodes yet", hint="drop --cluster")
    with ray_session(address) as session:
        alive = [node for node in cluster_of(session) if node.is_alive and node.memory_nbytes]
        here = ray.get_runtime_context().get_node_id()
    alive.sort(key=lambda node: node.node_id != here)
    if not alive:
        raise BadInput(f"no node of the Ray cluster at {address} is alive", hint="ray status")
    names = [node.name for node in alive]
    nodes = [_node(each, f"{each.name} {n}" if names.count(each.name) > 1 else each.name)
             for n, each in enumerate(alive, 1)]  # fmt: skip
    return Cluster(tuple(nodes), f"the Ray cluster at {session.address}")


def _node(facts: NodeFacts, name: str) -> Node:
    return Node(
        name=name,
        ram=facts.memory_nbytes + facts.object_store_nbytes,
        cpus=facts.cpus,
        memory=facts.memory_nbytes,
        object_store=facts.object_store_nbytes,
    )
