"""LR015: a run that needs more GPU memory than there is."""

from __future__ import annotations

from collections.abc import Iterator

from legroom.backends.base import backend_of
from legroom.checking.rule_helpers import BATCH_SIZE, of_vram, per_run
from legroom.model.rule import Found, Rule
from legroom.model.subject import Subject, SubjectRun
from legroom.model.verdict import gpu_fits
from legroom.units import format_fine_size as size


def look(subject: Subject, one: SubjectRun) -> Iterator[Found]:
    vram, footprint = subject.budget.vram, one.footprint
    gpu = footprint.gpu if footprint else None
    if footprint is None or gpu is None or vram is None:
        return
    if gpu_fits(footprint, subject.budget) is None:
        message = f"unknown whether it fits {of_vram(subject)}: {'; '.join(footprint.unknown)}"
        yield Found(message, "legroom predict --trust traces it", one.line("policy") or one.line("algo"), "warning")
        return
    if gpu.high <= subject.budget.usable(vram):
        return
    certain = gpu.low > subject.budget.usable(vram)
    message = (
        f"predicted GPU peak {size(gpu.nbytes)} (between {size(gpu.low)} and {size(gpu.high)}) "
        f"{'is' if certain else 'may be'} over {of_vram(subject)}"
    )
    hint = backend_of(one.run).advice_for_full_gpu(one.run)
    yield Found(message, hint, one.line(*BATCH_SIZE) or one.line("algo"), "error" if certain else "warning")


RULE = Rule(
    code="LR015",
    name="vram-exceeded",
    severity="error",
    what="The predicted GPU memory is over the GPU's.",
    why="CUDA out of memory, at the first update at the earliest. Activations of a minibatch dominate; weights "
    "rarely do, "
    "buffers of SB3 never.",
    example="batch_size: 2048   # 7.4 GB reserved for a Game Boy's NatureCNN, on a GPU of 6 GB",
    remedy="Micro-batches, then a smaller minibatch or network.",
    look=per_run(look),
)
