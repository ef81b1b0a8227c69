"""A plan for a cluster: for people, for programs, and as the run file that trains so."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict
from typing import Any

from legroom.model.cluster import ClusterPlan, Node
from legroom.rendering.cluster_text import cluster_verdict, nodes_data, nodes_table
from legroom.rendering.console import document
from legroom.rendering.layout import Part, Styled, Table, verdict
from legroom.rendering.plan_text import PRICE_STYLES
from legroom.rendering.run_file import run_file
from legroom.units import format_size


def cluster_plan_json(plan: ClusterPlan, notes: Sequence[str] = (), **more: Any) -> str:
    """Return the plan as JSON, with notes before its own and keys beside its own."""
    data = {
        "fits": plan.fits,
        "runners": plan.runners if plan.fits else None,
        "envs_per_runner": plan.envs_per_runner if plan.fits else None,
        "n_envs": plan.runners * plan.envs_per_runner if plan.fits else None,
        "requests": asdict(plan.requests),
        "nodes": [
            entry | {"memory": node.memory, "object_store_size": node.object_store}
            for entry, node in zip(nodes_data(plan.cluster, plan.bills), plan.cluster.nodes, strict=True)
        ],
        "knobs": [
            {"name": turn.key, "from": turn.before, "to": turn.after, "price": turn.price, "say": turn.say}
            for turn in plan.turns
        ],
        "run": plan.run.model_dump(exclude_defaults=True),
        "needed": dict(plan.needed) or None,
        "notes": [*notes, *plan.notes],
    }
    return document(data | more)


def cluster_plan_text(plan: ClusterPlan) -> Iterator[Part]:
    """Yield the verdict, the division, what is asked of Ray, and the nodes."""
    if not plan.fits:
        yield from _refusal(plan)
        return
    envs, runners = plan.runners * plan.envs_per_runner, plan.runners
    yield cluster_verdict(plan.cluster, plan.bills)
    yield Styled(f"{plan.asked.name}: {plan.run.algo} with RLlib, {envs:,} envs", "bold")
    many = "s" if runners != 1 else ""
    each = f"{plan.envs_per_runner:,} env{'s' if plan.envs_per_runner != 1 else ''} each"
    yield f"{runners:,} env runner{many} with {each}"
    yield ""
    table = Table(["setting", "from", "to", "price", ""], "lrrlw")
    for turn in plan.turns:
        table.add(turn.key, _value(turn.key, turn.before), _value(turn.key, turn.after),
                  Styled(turn.price, PRICE_STYLES[turn.price]), turn.say)  # fmt: skip
    yield table
    yield ""
    yield f"each runner asks for {format_size(plan.requests.runner_nbytes)}" + (
        f", each learner for {format_size(plan.requests.learner_nbytes)}" if plan.requests.learner_nbytes else ""
    )
    if plan.cluster.origin == "given":
        head, *others = plan.cluster.nodes
        yield f"start the head with:   ray start --head {_declared(head)}"
        if others:
            alike = "" if len({node.memory for node in others}) == 1 else "   (the smallest; see --json for each)"
            smallest = min(others, key=lambda node: node.memory or 0)
            yield f"and the others with:   ray start --address=HEAD:6379 {_declared(smallest)}{alike}"
    yield ""
    yield nodes_table(plan.cluster, plan.bills)
    for note in plan.notes:
        yield Styled(f"note: {note}", "dim")


def cluster_plan_file(plan: ClusterPlan, command: str) -> str:
    """Return the fitted run as a file, with the division at its head and comments where a setting was changed."""
    head = [
        f"{plan.run.name}, fitted to {len(plan.cluster.nodes):,} nodes: {command}",
        f"{plan.runners:,} env runners with {plan.envs_per_runner:,} envs each; every node's peak is at most "
        f"{format_size(max(bill.footprint.host.high for bill in plan.bills))}",
    ]
    comments = {turn.key: f"{turn.price}: was {_value(turn.key, turn.before)}; {turn.say}" for turn in plan.turns}
    return run_file(plan.run, head=head, comments=comments)


def _declared(node: Node) -> str:
    return f"--memory={node.memory} --object-store-memory={node.object_store}"


def _refusal(plan: ClusterPlan) -> Iterator[Part]:
    needed = dict(plan.needed)
    parts = [f"{format_size(needed['head'])} on the head"]
    if len(plan.cluster.nodes) > 1:
        parts.append(f"{format_size(needed['node'])} on a node with a runner")
    if "gpu" in needed:
        parts.append(f"{format_size(needed['gpu'])} of GPU memory on the head")
    largest = format_size(max(node.ram for node in plan.cluster.nodes))
    yield verdict(
        f"does not fit: one runner with one env needs {' and '.join(parts)}; the head has "
        f"{format_size(plan.cluster.head.ram)}, the largest node {largest}",
        "bold red",
    )


def _value(key: str, value: Any) -> str:
    if value is None:
        return "–"
    return format_size(value) if key.endswith("_bytes") else f"{value:,}"
