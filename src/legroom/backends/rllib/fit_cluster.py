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
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from legroom.backends.rllib.items import RoleItems, role_items
from legroom.backends.rllib.nodes import RESERVED_SHARE, bills, node_footprint, place, store_need, usable
from legroom.backends.rllib.translation import RllibPlan, rllib_plan
from legroom.fitting.rungs import divisors_below, halves
from legroom.model.cluster import ActorRequests, Cluster, ClusterPlan, ClusterTurn, Node
from legroom.model.evidence import Evidence
from legroom.model.footprint import Footprint
from legroom.model.run import Run
from legroom.units import GIB, format_size

RAM_PER_CPU = 4 * GIB  # taken where CPUs are not said; what general-purpose machines for rent have
STORE_MARGIN = 1.25  # object stores are cut into pieces; what is left between them holds nothing
NEARLY = 0.9  # of the most environments that fit: from there on, more runners count for more
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
    offers: Mapping[Any, _Offer]  # by whether it is the head, and the kind of node
    requests: ActorRequests
    needs: Needs
    room: int  # runners that the cluster holds; 0 where the driver does not fit on the head
    driver_fits: bool

    @property
    def fits(self) -> bool:
        return self.room >= self.plan.runners

    def declared(self, cluster: Cluster) -> Cluster:
        """Return the cluster with what each node declares."""
        each = ((node, self.offers[number == 0, node.kind]) for number, node in enumerate(cluster.nodes))
        return replace(cluster, nodes=tuple(offer.declared_by(node) for node, offer in each))


def fit_to_cluster(run: Run, cluster: Cluster, evidence: Evidence, *, reserve: float = 0.0) -> ClusterPlan:
    """Return the run divided so that it fits on every node, or the least memory with which one runner would.

    Raises:
        BadInput: RLlib has no such algorithm.
    """
    notes, known = [], cluster
    if any(node.cpus is None for node in cluster.nodes):
        known = replace(cluster, nodes=tuple(_with_cpus(node) for node in cluster.nodes))
        notes.append(f"--node-cpus not given: assuming one per {format_size(RAM_PER_CPU)} of RAM")
    seeker = _Seeker(run, known, evidence, reserve)
    found = seeker.same_envs() or seeker.fewer_envs()
    if found is None:
        return _refused(seeker, notes)
    declared = found.declared(known)
    placed = place(declared, found.plan, found.requests.runner_nbytes)
    bill = tuple(bills(found.run, declared, found.roles, evidence, placed, reserve=reserve))
    return ClusterPlan(
        asked=run,
        run=found.run,
        cluster=declared,
        bills=bill,
        requests=found.requests,
        runners=found.plan.runners,
        envs_per_runner=found.plan.envs_per_runner,
        fits=all(one.fits for one in bill),
        turns=tuple(_turns(run, found, head_binds=seeker.head_binds(found))),
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
        kinds = Counter((number == 0, node.kind) for number, node in enumerate(cluster.nodes))
        known = {(number == 0, node.kind): node for number, node in enumerate(cluster.nodes)}
        self.kinds = [(key, known[key], count) for key, count in kinds.items()]

    def same_envs(self) -> Division | None:
        """Return the division with the most runners that holds exactly the environments asked for."""
        fewest_each = self.asked.envs_per_runner if _says_runners(self.run) else 1
        for each in (*reversed(divisors_below(self.envs)), self.envs):
            if each < fewest_each or self.envs // each > self.most:
                continue
            found = self.divided(self.envs // each, each)
            if found.fits:
                return found
        return None

    def fewer_envs(self) -> Division | None:
        """Return a division with nearly the most environments that fit; of those the one with the most runners.

        Runners have whole numbers of environments, so that many of them seldom add up to the most that a single one
        could have; a runner that steps them all would be far slower, and hardly more would be learned from.
        """
        most = min(self.most, self.envs)
        tried = (self._most_envs(runners) for runners in (most, *halves(most)))
        found = [each for each in tried if each is not None]
        if not found:
            return None
        most = max(each.plan.n_envs for each in found)
        if most <= self.most and (single := self.divided(most, 1)).fits:  # a runner for every environment
            return single
        return max((each for each in found if each.plan.n_envs >= NEARLY * most), key=lambda each: each.plan.runners)

    def _most_envs(self, runners: int) -> Division | None:
        """Return so many runners with as many environments each as fit."""
        low, high = 0, max(self.envs // runners, 1)
        while low < high:
            middle = (low + high + 1) // 2
            if self.divided(runners, middle).fits:
                low = middle
            else:
                high = middle - 1
        return self.divided(runners, low) if low else None

    def head_binds(self, found: Division) -> bool:
        """Return whether it is the head, where all samples arrive, that allows no more environments."""
        return not self.divided(found.plan.runners, found.plan.envs_per_runner + 1).driver_fits

    def divided(self, runners: int, each: int) -> Division:
        """Return the run with so many runners of so many environments, and how many the cluster would hold."""
        hyperparams = self.run.hyperparams | {"num_env_runners": runners, "num_envs_per_env_runner": each}
        env = self.run.env.model_copy(update={"n_envs": runners * each})
        run = self.run.replace(backend="rllib", env=env, hyperparams=hyperparams)
        plan = rllib_plan(run)
        roles = role_items(run, plan, self.evidence, self.evidence.base)
        only = len(self.cluster.nodes) == 1
        head = node_footprint(run, roles, self.evidence, head=True, runners=0, alone=only)
        other = node_footprint(run, roles, self.evidence, head=False, runners=1)
        alone = replace(other, items=roles.runner)
        bare = replace(other, items=tuple(item for item in other.items if item not in roles.runner))
        needs = Needs(head, bare, alone.host.high, store_need(alone))
        offers = {key: self._offer(key[0], node, needs) for key, node, _ in self.kinds}
        on_head = next(offer for (is_head, _), offer in offers.items() if is_head)
        elsewhere = [offer.store for (is_head, _), offer in offers.items() if not is_head]
        runner_nbytes = _bounding_request(needs.runner, [*offers.values()])
        declared = ((offers[key].declared_by(node), count) for key, node, count in self.kinds)
        room = sum(count * self._holds(node, plan, runner_nbytes) for node, count in declared)
        learner = sum(item.total + item.error for item in roles.head if item.name.startswith("learner."))
        requests = ActorRequests(
            runner_nbytes=runner_nbytes,
            learner_nbytes=learner if plan.learners else None,
            object_store_nbytes=on_head.store,
            node_store_nbytes=max(elsewhere, default=on_head.store),
        )
        asked = {
            "runner_bytes": requests.runner_nbytes,
            "learner_bytes": requests.learner_nbytes,
            "object_store_bytes": requests.object_store_nbytes,
        }
        fitted = run.replace(memory=run.memory.model_copy(update=asked))
        driver_fits = self._driver_fits(head, on_head)
        held = room if driver_fits else 0
        return Division(fitted, plan, roles, offers, requests, needs, held, driver_fits)

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

    def declared_by(self, node: Node) -> Node:
        """Return the node, one of this kind, with what it declares to Ray."""
        memory = node.memory if node.memory is not None else max(self.free, 0)
        return replace(node, memory=memory, object_store=node.object_store or self.store)


def _bounding_request(runner_nbytes: int, offers: Sequence[_Offer]) -> int:
    """Return the bytes to ask for so that nodes that run already, whatever they declared, get what fits on them."""
    running = (offer for offer in offers if offer.node.memory is not None)
    bounds = (offer.node.memory // (max(offer.free, 0) // runner_nbytes + 1) + 1 for offer in running)  # type: ignore[operator]
    return max(runner_nbytes, *bounds, 0)


def _with_cpus(node: Node) -> Node:
    return node if node.cpus is not None else replace(node, cpus=max(node.ram // RAM_PER_CPU, 1))


def _says_runners(run: Run) -> bool:
    given = {"num_env_runners", "num_envs_per_env_runner"} & set(run.hyperparams)
    return bool(given) or run.env.envs_per_worker > 1


def _turns(asked: Run, found: Division, *, head_binds: bool) -> Iterator[ClusterTurn]:
    before, after = rllib_plan(asked), found.plan
    if after.n_envs != before.n_envs:
        why = "more environments do not fit the nodes; less data per iteration"
        if head_binds:
            batch = f"{after.train_batch_size:,} steps of one iteration"
            way = "shorter rollouts make room for more" if after.algo == "PPO" else "a smaller replay buffer makes room"
            why = f"the head receives the {batch} and has no room for more; {way}"
        yield ClusterTurn(
            "env.n_envs", before.n_envs, after.n_envs, "changes-learning",
            f"{after.n_envs:,} environments instead of {before.n_envs:,}: {why}",
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
    declared = least.declared(seeker.cluster)
    found = bills(least.run, declared, least.roles, seeker.evidence, placed, reserve=seeker.reserve)
    return ClusterPlan(
        asked=seeker.run, run=seeker.run, cluster=declared, bills=tuple(found), requests=least.requests,
        runners=1, envs_per_runner=1, fits=False, needed=needed, notes=tuple(notes),
    )  # fmt: skip
