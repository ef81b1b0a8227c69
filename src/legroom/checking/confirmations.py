"""What is right about a run, and why: the other half of a check.

People who were told wrongly that something is critical want to hear that it is not, with the numbers.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

from legroom.backends.base import backend_of, hyper
from legroom.checking.rule_helpers import counts_known, of_ram, of_vram
from legroom.errors import BadInput
from legroom.model.facts import episode_limit
from legroom.model.rule import Subject, SubjectRun
from legroom.model.verdict import gpu_fits, host_fits
from legroom.units import format_fine_size as size

Sentence = tuple[str, str]


def confirmations(subject: Subject, one: SubjectRun, *, algo_known: bool = True) -> Iterator[Sentence]:
    """Yield (what, why it is fine) for one run."""
    looks = LOOKS if algo_known else LOOKS[:1]
    for look in looks:
        try:
            yield from look(subject, one)
        except BadInput:  # something it would need is not known
            continue


def _of_the_library(subject: Subject, one: SubjectRun) -> Iterable[Sentence]:
    return backend_of(one.run).checker.confirmations(one)


def _epochs(subject: Subject, one: SubjectRun) -> Iterator[Sentence]:
    found = backend_of(one.run).checker.counts(one.run)
    if found is not None and "n_epochs" in found.depends_on and one.knows("hyperparams", "n_epochs"):
        yield f"n_epochs {hyper(one.run, 'n_epochs')}", "costs time, not memory: every epoch uses the same rollout"


def _host(subject: Subject, one: SubjectRun) -> Iterator[Sentence]:
    if one.footprint is None or not host_fits(one.footprint, subject.budget):
        return
    host, detail = one.footprint.host, ""
    stored = backend_of(one.run).checker.stored_data(one.run, one.footprint)
    if stored is not None:
        copy = f", {size(stored.peak)} {stored.peak_when}" if stored.peak else ""
        detail = f"{stored.name} {size(stored.nbytes)} {stored.when}{copy}; "
    yield "host memory", f"{detail}peak {size(host.nbytes)}, at most {size(host.high)}, of {of_ram(subject)}"


def _gpu(subject: Subject, one: SubjectRun) -> Iterator[Sentence]:
    gpu = one.footprint.gpu if one.footprint else None
    if one.footprint is None or gpu is None or not gpu_fits(one.footprint, subject.budget):
        return
    yield "GPU memory", f"peak {size(gpu.nbytes)}, at most {size(gpu.high)}, of {of_vram(subject)}"


def _total(subject: Subject, one: SubjectRun) -> Iterator[Sentence]:
    found, total = counts_known(one), one.run.total_timesteps
    if found and total and found.steps == total:
        yield f"total of {total:,}", f"exactly {found.iterations:,} iterations of {found.samples:,}"


def _episodes(subject: Subject, one: SubjectRun) -> Iterator[Sentence]:
    storage, limit = backend_of(one.run).predictor.storage(one.run), episode_limit(one.run)
    rows = storage.steps if storage.kind == "rollout" else 0
    if rows and limit and limit >= rows and one.knows("hyperparams", "n_steps"):
        yield (
            f"n_steps {rows:,}",
            f"an episode of up to {limit:,} steps spans several rollouts; the value function stands in for the rest",
        )


LOOKS: tuple[Callable[[Subject, SubjectRun], Iterable[Sentence]], ...] = (
    _of_the_library, _epochs, _host, _gpu, _total, _episodes,
)  # fmt: skip
