"""Whether a cluster can hold the actors of a plan, asked before any is started: Ray itself would wait for ever."""

import os
from collections.abc import Sequence
from dataclasses import dataclass

from legroom.backends.rllib.translation import RllibPlan
from legroom.cluster.session import ray_nodes
from legroom.errors import BadInput
from legroom.units import format_size


@dataclass(frozen=True)
class Room:
    """What one node has for actors."""

    cpus: float
    memory_nbytes: int
    gpus: float = 0

    def holds(self, cpus: float, nbytes: int | None, gpus: float = 0) -> int:
        """Return how many such actors the node could hold."""
        shares = [self.cpus / cpus if cpus else None, self.memory_nbytes / nbytes if nbytes else None]
        shares.append(self.gpus / gpus if gpus else None)
        return int(min((share for share in shares if share is not None), default=10**6))


def local_cpus(plan: RllibPlan) -> int:
    """Return how many CPUs a Ray of our own should say it has: actors on one machine share its cores anyway."""
    asked = plan.runners * plan.cpus_per_runner + plan.learners * plan.cpus_per_learner
    return max(os.cpu_count() or 1, int(-(-asked // 1)) + 1)


def rooms_of_cluster() -> list[Room]:
    """Return what the living nodes of the connected cluster have in all."""
    nodes = [node["Resources"] for node in ray_nodes() if node["Alive"]]
    return [Room(n.get("CPU", 0.0), int(n.get("memory", 0)), n.get("GPU", 0.0)) for n in nodes]


def refuse_what_cannot_be_placed(plan: RllibPlan, rooms: Sequence[Room]) -> None:
    """Refuse a plan whose actors the cluster could not hold even when nothing else runs on it.

    Raises:
        BadInput: with what one actor needs and what there is.
    """
    for what, count, cpus, nbytes, gpus in (
        ("env runner", plan.runners, plan.cpus_per_runner, plan.runner_nbytes, 0.0),
        ("learner", plan.learners, plan.cpus_per_learner, plan.learner_nbytes, plan.gpus_per_learner),
    ):
        held = sum(room.holds(cpus, nbytes, gpus) for room in rooms)
        if held >= count:
            continue
        needs = (
            f"{cpus:g} CPU" + (f" and {format_size(nbytes)}" if nbytes else "") + (f" and {gpus:g} GPU" if gpus else "")
        )
        largest = max((room.memory_nbytes for room in rooms), default=0)
        has = f"{sum(room.cpus for room in rooms):g} CPU, at most {format_size(largest)} on one"
        raise BadInput(
            f"the cluster has room for {held} of {count} {what}{'s' if count > 1 else ''} of {needs} each: "
            f"{len(rooms)} node{'s' if len(rooms) != 1 else ''} with {has}",
            hint=f"fewer of them (num_{what.replace(' ', '_')}s), or a larger cluster",
        )
