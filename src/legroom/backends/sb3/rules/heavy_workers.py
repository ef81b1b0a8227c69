"""LR029: SB3's worker processes, each of which imports PyTorch."""

from collections.abc import Iterator

from legroom.checking.rule_helpers import N_ENVS, per_run
from legroom.model.facts import n_workers
from legroom.model.footprint import Place
from legroom.model.rule import Found, Rule
from legroom.model.subject import Subject, SubjectRun
from legroom.predicting.predict import add_up
from legroom.units import format_fine_size as size


def look(subject: Subject, one: SubjectRun) -> Iterator[Found]:
    run = one.run
    if subject.kind != "run" or run.env.workers != "subproc" or one.footprint is None:
        return
    assert one.evidence is not None
    light = add_up(run.replace(env=run.env.model_copy(update={"workers": "light"})), one.evidence)
    now, then = (sum(i.total for i in bill.items if i.place is Place.WORKER) for bill in (one.footprint, light))
    if now <= then:
        return
    message = f"{n_workers(run):,} worker processes import PyTorch, which they do not use: {size(now)} together"
    hint = f"workers: light takes {size(then)}, steps the same environments and gives the same results"
    yield Found(message, hint, one.line("env", "workers"))


RULE = Rule(
    code="LR029",
    name="heavy-workers",
    severity="info",
    what="A run file with workers: subproc.",
    why="SB3's SubprocVecEnv unpickles SB3's own classes in each worker, and with them PyTorch: 165 MB per "
    "process, 284 MB with a CUDA build.",
    example="env: {n_envs: 100, workers: subproc}",
    remedy="workers: light.",
    look=per_run(look, needs=(N_ENVS,)),
)
