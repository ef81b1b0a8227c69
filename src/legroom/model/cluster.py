"""A cluster: machines that one training is spread over, on paper or as Ray sees them, and what each will hold.

Nodes that are alike are kept once, with a count, wherever something is computed for them: a thousand equal nodes cost
as much as one.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from legroom.model.footprint import Footprint
from legroom.model.machine import Gpu
from legroom.model.plan import Price
from legroom.model.run import Run


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
    """What Ray is asked for: bytes per actor, and the size of the object stores.

    Args:
        learner_nbytes: None where the learner is in the driver, which is no actor.
        object_store_nbytes: of the head, which gets all samples.
        node_store_nbytes: of every other node.
    """

    runner_nbytes: int
    learner_nbytes: int | None
    object_store_nbytes: int
    node_store_nbytes: int


@dataclass(frozen=True)
class ClusterTurn:
    """One setting of a run that a plan for a cluster changed."""

    key: str
    before: Any
    after: Any
    price: Price
    say: str


@dataclass(frozen=True)
class ClusterPlan:
    """A run fitted to a cluster.

    Args:
        asked: the run as it was given; `run`: as it trains, with the requests in `memory`.
        cluster: with what every node has to declare to Ray (`Node.memory`, `Node.object_store`).
        needed: where nothing fits, the RAM that the head and another node would need at least.
    """

    asked: Run
    run: Run
    cluster: Cluster
    bills: tuple[NodeBill, ...]
    requests: ActorRequests
    runners: int
    envs_per_runner: int
    fits: bool
    turns: tuple[ClusterTurn, ...] = ()
    needed: Mapping[str, int] = field(default_factory=dict)
    notes: tuple[str, ...] = ()
