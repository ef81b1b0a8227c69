"""`--for SYSTEM`: what to ask a scheduler for, printed after the answer or put into its document."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Annotated, Any

import typer

from legroom.cli.help import OUTPUT, rarely
from legroom.errors import BadInput
from legroom.model.facts import trained_by_legroom
from legroom.model.footprint import Footprint
from legroom.model.plan import Prediction
from legroom.scheduling.requests import System, request_for
from legroom.scheduling.snippets import granted, snippet
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
        help="Print a request for slurm, kubernetes, docker or condor.",
    ),
]


def job_of(footprint: Footprint, system: System, *, by_legroom: bool) -> dict[str, Any]:
    """Return what one job asks for, for a document: numbers, and the text to paste.

    Args:
        by_legroom: `legroom train` starts it, which is a process of its own.
    """
    request = request_for(footprint, supervisor=SUPERVISOR_BYTES if by_legroom else 0)
    return {
        "for": system.value, "name": request.name, "need": request.need, "memory": granted(request, system),
        "shm": request.shm, "gpu": request.gpu, "text": snippet(request, system),
    }  # fmt: skip


def jobs_of(predictions: Sequence[Prediction], system: System) -> Iterator[dict[str, Any] | None]:
    """Yield what each prediction asks for, None where it is unknown what it needs."""
    for each in predictions:
        if each.footprint.unseen or each.footprint.unknown:
            yield None
        else:
            yield job_of(each.footprint, system, by_legroom=trained_by_legroom(each.run))


def job_text(jobs: Sequence[dict[str, Any] | None]) -> str:
    """Return what to paste, of all jobs.

    Raises:
        BadInput: none of them is known.
    """
    texts = [job["text"] for job in jobs if job is not None]
    if not texts:
        raise BadInput("--for: what it needs is unknown", hint="see above; --trust imports code that the run names")
    return "\n\n".join(texts)
