"""LR024: a machine that could run many more environments."""

from collections.abc import Iterator

from legroom.backends.base import algorithm_of, hyper
from legroom.backends.sb3.ladders import ways_to_grow
from legroom.checking.rule_helpers import ROLLOUT, of_ram, per_run, ram_limit
from legroom.fitting.grow import largest
from legroom.model.rule import Found, Rule
from legroom.model.run import Run
from legroom.model.subject import Subject, SubjectRun
from legroom.model.verdict import fits
from legroom.predicting.predict import add_up
from legroom.units import format_fine_size as size

LITTLE = 0.4  # of the RAM
CORES = 4  # a machine with fewer has little to share out
FEW = 4  # environments, where the number of cores is not known
MOST = 16


def look(subject: Subject, one: SubjectRun) -> Iterator[Found]:
    limit, run = ram_limit(subject), one.run
    if subject.kind == "zoo":  # tuned for n_envs, whatever machine it runs on
        return
    if limit is None or one.footprint is None or algorithm_of(run).family != "on-policy":
        return
    peak, envs = one.footprint.host.high, run.env.n_envs
    elsewhere = subject.budget.ram_origin == "given"  # another machine, of which only the memory is known
    cores = subject.machine.cores
    few = envs <= FEW if elsewhere else cores >= CORES and 2 * envs <= cores
    if peak > LITTLE * limit or not few or not one.gives("env", "n_envs"):
        return
    most = _most_envs(subject, one)
    wanted = min(most, MOST if elsewhere else cores)
    if wanted < 2 * envs:
        return
    steps = int(hyper(run, "n_steps"))
    beside = "" if elsewhere else f" and {cores} cores"
    fewer = steps * envs // wanted
    same = f", or n_steps {fewer:,} for as much data per update as now" if fewer else ""
    processes = " in worker processes" if run.env.workers == "dummy" else ""
    message = (
        f"{'1 env needs' if envs == 1 else f'{envs:,} envs need'} {size(one.footprint.host.nbytes)}, "
        f"{one.footprint.host.nbytes / limit:.0%} of {of_ram(subject)}{beside}: {most:,} would fit"
    )
    hint = f"n_envs {wanted:,} with n_steps {steps:,}{same}; they collect side by side{processes}"
    yield Found(message, hint, one.line("env", "n_envs"))


def _most_envs(subject: Subject, one: SubjectRun) -> int:
    """Return how many environments fit, as `legroom fit --grow` finds it."""
    evidence = one.evidence
    assert evidence is not None

    def fitting(run: Run) -> Run | None:
        return run if fits(add_up(run, evidence), subject.budget) is True else None

    best = largest(ways_to_grow(one.run)[0], fitting)
    return one.run.env.n_envs if best is None else best.env.n_envs


RULE = Rule(
    code="LR024",
    name="under-used-machine",
    severity="info",
    what="An on-policy run that uses less than 40 % of the RAM, with far fewer environments than would fit.",
    why="Collecting is usually what takes the time, and environments collect side by side.",
    example="env: {n_envs: 2}   # 11 GiB of 32",
    remedy="More environments; with n_steps lowered in proportion, updates see as much data as before. The number is "
    "that of legroom fit --grow.",
    look=per_run(look, needs=ROLLOUT),
)
