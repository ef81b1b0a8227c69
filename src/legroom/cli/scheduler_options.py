"""`--for SYSTEM`: what to ask a scheduler for, printed after the answer or put into its document."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Annotated, Any

import typer

from legroom.cli.help import OUTPUT, rarely
from legroom.errors import BadInput
from legroom.model.cluster import ActorRequests, NodeBill
from legroom.model.facts import trained_by_legroom
from legroom.model.footprint import Footprint
from legroom.model.prediction import Prediction
from legroom.scheduling.requests import Request, System, request_for
from legroom.scheduling.snippets import granted, ray_cluster, snippet
from legroom.units import MIB

# The process of `legroom train` itself, beside the training's: 40 MiB (PSS) when the whole tree was at its peak,
# 2026-11-17, Python 3.11.7. It has more at the end, when the training's memory is free again.
SUPERVISOR_BYTES = 48 * MIB

For = Annotated[
    System | None,
    typer.Option(
        "--for",
        metavar="SYSTEM",
        rich_help_panel=rarely(OUTPUT),
        help="Print a request for slurm, kubernetes, kuberay, docker or condor.",
    ),
]


def check_system(system: System | None, *, cluster: bool) -> None:
    """Refuse a system that cannot start this, before anything slow.

    Raises:
        BadInput: it starts clusters and there is none, or one machine and there is a cluster.
    """
    if system is not None and not (cluster and system is System.KUBERAY):
        snippet(Request("", 0, nodes=2 if cluster else 1), system)


def job_of(footprint: Footprint, system: System, *, by_legroom: bool) -> dict[str, Any]:
    """Return what one job asks for, for a document: numbers, and the text to paste.

    Args:
        by_legroom: `legroom train` starts it, which is a process of its own.
    """
    request = request_for(footprint, supervisor=SUPERVISOR_BYTES if by_legroom else 0)
    return _told(request, system, snippet(request, system))


def jobs_of(predictions: Sequence[Prediction], system: System) -> Iterator[dict[str, Any] | None]:
    """Yield what each prediction asks for, None where it is unknown what it needs."""
    for each in predictions:
        if each.footprint.unseen or each.footprint.unknown:
            yield None
        elif each.cluster is not None:
            yield nodes_of(each.footprint.name, each.bills, system)
        else:
            yield job_of(each.footprint, system, by_legroom=trained_by_legroom(each.run))


def nodes_of(
    name: str, bills: Sequence[NodeBill], system: System, requests: ActorRequests | None = None
) -> dict[str, Any]:
    """Return what a run on a cluster asks for.

    Raises:
        BadInput: the system starts one machine.
    """
    largest = max(bills, key=lambda bill: bill.footprint.host.high).footprint
    asked = request_for(largest)
    runners, nodes = max(bill.runners for bill in bills), sum(len(bill.names) for bill in bills)
    request = Request(name, asked.need, asked.shm, _card(bills), nodes=nodes, processes=1 + runners)
    text = ray_cluster(name, bills, requests) if system is System.KUBERAY else snippet(request, system)
    return _told(request, system, text)


def _card(bills: Sequence[NodeBill]) -> int | None:
    return max((bill.footprint.gpu.high for bill in bills if bill.footprint.gpu is not None), default=None)


def _told(request: Request, system: System, text: str) -> dict[str, Any]:
    return {
        "for": system.value, "name": request.name, "need": request.need, "memory": granted(request, system),
        "shm": request.shm, "gpu": request.gpu, "nodes": request.nodes, "text": text,
    }  # fmt: skip


def job_text(jobs: Sequence[dict[str, Any] | None]) -> str:
    """Return what to paste, of all jobs.

    Raises:
        BadInput: none of them is known.
    """
    texts = [job["text"] for job in jobs if job is not None]
    if not texts:
        raise BadInput("--for: what it needs is unknown", hint="see above; --trust imports code that the run names")
    return "\n\n".join(texts)
