"""LR031: XLA taking three quarters of a GPU that somebody else uses too."""

from collections.abc import Iterator

from legroom.checking.rule_helpers import per_run
from legroom.model.rule import Found, Rule
from legroom.model.subject import Key, Subject, SubjectRun
from legroom.units import format_fine_size as size

KEY: Key = ("memory", "xla_preallocate")
SHARE = 0.75  # of the card's whole memory: XLA_PYTHON_CLIENT_MEM_FRACTION's default


def look(subject: Subject, one: SubjectRun) -> Iterator[Found]:
    run = one.run
    if run.memory.xla_preallocate is False:
        return
    if run.memory.xla_preallocate and run.env.workers != "dummy":
        message = "xla_preallocate with worker processes: each that touches JAX takes 75 % of the GPU for itself"
        yield Found(message, "xla_preallocate: false", one.line(*KEY))
        return
    for gpu in subject.machine.gpus[:1]:
        if gpu.free < SHARE * gpu.total and one.footprint is not None and one.footprint.device == "cuda":
            message = (
                f"XLA preallocates 75 % of the GPU, {size(SHARE * gpu.total)}, and only {size(gpu.free)} of the "
                f"{gpu.name} are free: another process holds the rest"
            )
            yield Found(message, "memory: {xla_preallocate: false}", one.line(*KEY) or one.line("algo"))


RULE = Rule(
    code="LR031",
    name="xla-preallocation",
    severity="warning",
    what="JAX's preallocation on a shared GPU.",
    why="XLA takes 75 % of the GPU's memory when it starts, needed or not; the second process then fails at once.",
    example="memory: {xla_preallocate: true}\nenv: {workers: subproc}",
    remedy="xla_preallocate: false, or XLA_PYTHON_CLIENT_PREALLOCATE=false.",
    look=per_run(look),
)
