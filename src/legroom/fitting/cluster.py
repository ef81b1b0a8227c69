"""Fit an RLlib run to a cluster: how many runners, how many environments in each, and what Ray is asked for.

A runner is one process with the same number of environments as every other; it is never split, so the environments of a
run are runners x envs per runner. As many runners as the CPUs and the memory of the nodes allow are tried first: fewer
runners that each hold more environments learn the same and are slower. Only where no such division fits, there are
fewer environments, which changes the learning.

Every runner asks Ray for the upper end of what it is predicted to hold, and every node declares what is left of its
memory beside Ray's services, the libraries, the object store and, on the head, the driver. So Ray can put no more
runners on a node than fit there, wherever it begins. The bills are those of the placement that Ray is known to choose.

All of it is arithmetic on bills by role: nodes that are alike are computed once.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from legroom.model.cluster import ActorRequests, Cluster, ClusterPlan, ClusterTurn, Node
from legroom.model.evidence import Evidence
from legroom.model.footprint import Footprint
from legroom.model.rllib import RllibPlan, rllib_plan
from legroom.model.run import Run
from legroom.predicting.rllib import RoleItems, role_items
from legroom.predicting.rllib_nodes import RESERVED_SHARE, bills, node_footprint, place, store_need, usable
from legroom.units import GIB, format_size

RAM_PER_CPU = 4 * GIB  # taken where CPUs are not said; what general-purpose machines for rent have
STORE_MARGIN = 1.25  # object stores are cut into pieces; what is left between them holds nothing
LEAST_STORE = 80_000_000  # Ray refuses object stores below 75 MiB


@dataclass(frozen=True)
class Needs:
    """Bills of the head and of another node without runners; one runner's bytes, and of those its sample's."""

    head: Footprint
    bare: Footprint
    runner: int
    sample: int

    def beside_runners(self, is_head: bool) -> int:
        """Return what a node needs before its first runner: its own processes, and the least object store."""
        if not is_head:
            return self.bare.host.high + LEAST_STORE
        in_store = store_need(self.head)
        return self.head.host.high - in_store + max(int(STORE_MARGIN * in_store), LEAST_STORE)


@dataclass(frozen=True)
class Division:
    """A run divided into runners, with the bills of its roles and what it asks of Ray."""

    run: Run
    plan: RllibPlan
    roles: RoleItems
    cluster: Cluster  # with declared memory
    requests: ActorRequests
    needs: Needs
    room: int  # runners that the cluster holds

    @property
    def fits(self) -> bool:
        return self.room >= self.plan.runners


def fit_to_cluster(run: Run, cluster: Cluster, evidence: Evidence, *, reserve: float = 0.0) -> ClusterPlan:
    """Return the run divided so that it fits on every node, or the least memory with which one runner would.

    Raises:
        BadInput: RLlib has no such algorithm.
    """
    notes, known = [], cluster
    if any(node.cpus is None for node in cluster.nodes):
        known = replace(cluster, nodes=tuple(_with_cpus(node) for node in cluster.nodes))
        notes.append(f"CPUs were not said: one per {format_size(RAM_PER_CPU)} of RAM is taken (--node-cpus)")
    seeker = _Seeker(run, known, evidence, reserve)
    found = seeker.same_envs() or seeker.fewer_envs()
    if found is None:
        return _refused(seeker, notes)
    placed = place(found.cluster, found.plan, found.requests.runner_nbytes)
    bill = tuple(bills(found.run, found.cluster, found.roles, evidence, placed, reserve=reserve))
    return ClusterPlan(
        asked=run,
        run=found.run,
        cluster=found.cluster,
        bills=bill,
        requests=found.requests,
        runners=found.plan.runners,
        envs_per_runner=found.plan.envs_per_runner,
        fits=all(one.fits for one in bill),
        turns=tuple(_turns(run, found)),
        notes=(*notes, *evidence.notes, *found.plan.said),
    )


class _Seeker:
    """Tries divisions of one run over one cluster."""

    def __init__(self, run: Run, cluster: Cluster, evidence: Evidence, reserve: float) -> None:
        self.run, self.cluster, self.evidence, self.reserve = run, cluster, evidence, reserve
        self.asked = rllib_plan(run)
        self.envs = self.asked.n_envs
        each = self.asked.cpus_per_runner or 1
        self.most = max(sum(int((node.cpus or 0) / each) for node in cluster.nodes), 1)

    def same_envs(self) -> Division | None:
        """Return the division with the most runners that holds exactly the environments asked for."""
        fewest_each = self.asked.envs_per_runner if _says_runners(self.run) else 1
        for each in _divisors(self.envs):
            if each < fewest_each or self.envs // each > self.most:
                continue
            found = self.divided(self.envs // each, each)
            if found.fits:
                return found
        return None

    def fewer_envs(self) -> Division | None:
        """Return the division with the most environments that fits, and of those the one with the most runners."""
        best: Division | None = None
        runners = min(self.most, self.envs)
        while runners >= 1:
            low, high = 0, max(self.envs // runners, 1)
            while low < high:
                middle = (low + high + 1) // 2
                if self.divided(runners, middle).fits:
                    low = middle
                else:
                    high = middle - 1
            if low and (best is None or runners * low > best.plan.n_envs):
                best = self.divided(runners, low)
            runners //= 2
        return best

    def divided(self, runners: int, each: int) -> Division:
        """Return the run with so many runners of so many environments, and how many the cluster would hold."""
        hyperparams = self.run.hyperparams | {"num_env_runners": runners, "num_envs_per_env_runner": each}
        env = self.run.env.model_copy(update={"n_envs": runners * each})
        run = self.run.replace(backend="rllib", env=env, hyperparams=hyperparams)
        plan = rllib_plan(run)
        assert self.evidence.ray is not None
        roles = role_items(run, plan, self.evidence, self.evidence.ray)
        only = len(self.cluster.nodes) == 1
        head = node_footprint(run, roles, self.evidence, head=True, runners=0, alone=only)
        other = node_footprint(run, roles, self.evidence, head=False, runners=1)
        alone = replace(other, items=roles.runner)
        bare = replace(other, items=tuple(item for item in other.items if item not in roles.runner))
        needs = Needs(head, bare, alone.host.high, store_need(alone))
        offers = [self._offer(number == 0, node, needs) for number, node in enumerate(self.cluster.nodes)]
        runner_nbytes = _bounding_request(needs.runner, offers)
        nodes = tuple(_declaring(offer) for offer in offers)
        room = sum(self._holds(node, plan, runner_nbytes) for node in nodes)
        requests = ActorRequests(
            runner_nbytes=runner_nbytes,
            learner_nbytes=_learner_nbytes(roles) if plan.learners else None,
            object_store_nbytes=offers[0].store,
            node_store_nbytes=max((offer.store for offer in offers[1:]), default=offers[0].store),
        )
        asked = {
            "runner_bytes": requests.runner_nbytes,
            "learner_bytes": requests.learner_nbytes,
            "object_store_bytes": requests.object_store_nbytes,
        }
        fitted = run.replace(memory=run.memory.model_copy(update=asked))
        held = room if self._driver_fits(head, offers[0]) else 0
        return Division(fitted, plan, roles, replace(self.cluster, nodes=nodes), requests, needs, held)

    def _offer(self, is_head: bool, node: Node, needs: Needs) -> _Offer:
        """Return what a node has left for runners, and the object store it needs."""
        in_store = store_need(needs.head) if is_head else 0
        free = usable(node, self.reserve) - needs.beside_runners(is_head)
        store = max(int(STORE_MARGIN * in_store), LEAST_STORE)
        if not is_head:
            samples = max(free, 0) // needs.runner * needs.sample
            store = max(int(STORE_MARGIN * (samples + store_need(needs.bare))), LEAST_STORE)
        limit = min((size for size in (node.shm, node.object_store) if size is not None), default=store)
        return _Offer(node, free, min(store, limit), holds_objects=in_store <= limit)

    def _driver_fits(self, head: Footprint, offer: _Offer) -> bool:
        card = self.cluster.head.gpu
        on_card = head.gpu is None or (card is not None and head.gpu.high <= card.free * (1 - self.reserve))
        return on_card and offer.free >= 0 and offer.holds_objects

    def _holds(self, node: Node, plan: RllibPlan, runner_nbytes: int) -> int:
        by_cpus = int((node.cpus or 0) / plan.cpus_per_runner) if plan.cpus_per_runner else plan.runners
        return min((node.memory or 0) // runner_nbytes, by_cpus)


@dataclass(frozen=True)
class _Offer:
    """What a node has for runners; below 0 where not even its own processes fit."""

    node: Node
    free: int
    store: int
    holds_objects: bool


def _declaring(offer: _Offer) -> Node:
    node = offer.node
    memory = node.memory if node.memory is not None else max(offer.free, 0)
    return replace(node, memory=memory, object_store=node.object_store or offer.store)


def _bounding_request(runner_nbytes: int, offers: Sequence[_Offer]) -> int:
    """Return the bytes to ask for so that nodes that run already, whatever they declared, get what fits on them."""
    running = (offer for offer in offers if offer.node.memory is not None)
    bounds = (offer.node.memory // (max(offer.free, 0) // runner_nbytes + 1) + 1 for offer in running)  # type: ignore[operator]
    return max(runner_nbytes, *bounds, 0)


def _learner_nbytes(roles: RoleItems) -> int:
    return sum(item.total + item.error for item in roles.head if item.name.startswith("learner."))


def _with_cpus(node: Node) -> Node:
    return node if node.cpus is not None else replace(node, cpus=max(node.ram // RAM_PER_CPU, 1))


def _says_runners(run: Run) -> bool:
    given = {"num_env_runners", "num_envs_per_env_runner"} & set(run.hyperparams)
    return bool(given) or run.env.envs_per_worker > 1


def _divisors(number: int) -> list[int]:
    small = [n for n in range(1, int(number**0.5) + 1) if number % n == 0]
    return sorted({*small, *(number // n for n in small)})


def _turns(asked: Run, found: Division) -> Iterator[ClusterTurn]:
    before, after = rllib_plan(asked), found.plan
    if after.n_envs != before.n_envs:
        yield ClusterTurn(
            "env.n_envs", before.n_envs, after.n_envs, "changes-learning",
            f"{after.n_envs:,} environments instead of {before.n_envs:,}: no division of more fits the nodes; "
            "less data per iteration, or the same with other statistics",
        )  # fmt: skip
    if after.runners != before.runners:
        slower = after.runners < before.runners
        says = "fewer processes that each step more environments: the same learning, slower sampling"
        if not slower:
            says = "more processes that each step fewer environments: the same environments, side by side"
        price = "slower" if slower else "free"
        yield ClusterTurn("hyperparams.num_env_runners", before.runners, after.runners, price, says)  # type: ignore[arg-type]
    if after.envs_per_runner != before.envs_per_runner:
        price = "slower" if after.envs_per_runner > before.envs_per_runner else "free"
        says = "environments that one runner steps one after the other"
        yield ClusterTurn(
            "hyperparams.num_envs_per_env_runner", before.envs_per_runner, after.envs_per_runner, price, says  # type: ignore[arg-type]
        )  # fmt: skip
    size = format_size(found.requests.runner_nbytes)
    says = f"each runner asks Ray for {size}, so that no node gets more of them than fit"
    yield ClusterTurn("memory.runner_bytes", asked.memory.runner_bytes, found.requests.runner_nbytes, "free", says)


def _refused(seeker: _Seeker, notes: list[str]) -> ClusterPlan:
    """Return the plan that says how little would do: one runner with one environment."""
    least = seeker.divided(1, 1)
    share, needs = 1 - max(RESERVED_SHARE, seeker.reserve), least.needs
    only = len(seeker.cluster.nodes) == 1  # else the runner may be elsewhere than on the head
    needed = {
        "head": math.ceil((needs.beside_runners(True) + (needs.runner if only else 0)) / share),
        "node": math.ceil((needs.beside_runners(False) + needs.runner) / share),
    }
    if needs.head.gpu is not None:
        needed["gpu"] = needs.head.gpu.high
    placed = [1 if number == len(seeker.cluster.nodes) - 1 else 0 for number in range(len(seeker.cluster.nodes))]
    found = bills(least.run, least.cluster, least.roles, seeker.evidence, placed, reserve=seeker.reserve)
    return ClusterPlan(
        asked=seeker.run, run=seeker.run, cluster=least.cluster, bills=tuple(found), requests=least.requests,
        runners=1, envs_per_runner=1, fits=False, needed=needed, notes=tuple(notes),
    )  # fmt: skip
