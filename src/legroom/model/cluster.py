"""A cluster: machines that one training is spread over, on paper or as Ray sees them, and what each will hold.

Nodes that are alike are kept once, with a count, wherever something is computed for them: a thousand equal nodes cost
as much as one.
"""

from __future__ import annotations

from dataclasses import dataclass

from legroom.model.footprint import Footprint
from legroom.model.machine import Gpu


@dataclass(frozen=True)
class Node:
    """One machine of a cluster, in bytes.

    Args:
        ram: what processes on it may use together.
        cpus: None: not known, and no reason to put fewer runners there.
        shm: what its /dev/shm may hold, where the object store lives; None: not known, taken to be enough.
        memory: what it declares to Ray for actors to ask for; None: nobody has declared anything yet.
        object_store: bytes that its object store may take; None: not decided.
    """

    name: str
    ram: int
    cpus: float | None = None
    shm: int | None = None
    gpu: Gpu | None = None
    memory: int | None = None
    object_store: int | None = None

    @property
    def kind(self) -> tuple[int, float | None, int | None, Gpu | None, int | None, int | None]:
        """What makes two nodes alike."""
        return (self.ram, self.cpus, self.shm, self.gpu, self.memory, self.object_store)


@dataclass(frozen=True)
class Cluster:
    """The nodes, the head first: the driver runs there, and with it a local learner."""

    nodes: tuple[Node, ...]
    origin: str = "given"

    @property
    def head(self) -> Node:
        return self.nodes[0]


@dataclass(frozen=True)
class NodeBill:
    """What one node, or several that are alike, will hold.

    Args:
        names: of all nodes that this is the bill of.
        runners: env runners on each of them.
        fits: whether the upper end of the band is within what the node has.
    """

    names: tuple[str, ...]
    node: Node
    runners: int
    footprint: Footprint
    fits: bool


@dataclass(frozen=True)
class ActorRequests:
    """What Ray is asked for: bytes per actor, and the size of every node's object store.

    Args:
        head_memory, node_memory: what the nodes have to declare (`ray start --memory`) for the requests to bound how
            many actors they get; by name where nodes differ.
    """

    runner_nbytes: int
    learner_nbytes: int | None
    object_store_nbytes: int
