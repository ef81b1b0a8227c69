"""LR024: a machine that could run many more environments."""

from collections.abc import Iterator

from legroom.backends.base import algorithm_of, hyper
from legroom.checking.rule_helpers import ROLLOUT, of_ram, per_run, ram_limit
from legroom.model.rule import Found, Rule
from legroom.model.subject import Subject, SubjectRun
from legroom.predicting.predict import add_up
from legroom.units import format_fine_size as size

LITTLE = 0.4  # of the RAM
USED = 0.8  # of the RAM that is offered for more
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
    most = _most_envs(one, limit, MOST if elsewhere else cores)
    if most < 2 * envs:
        return
    steps = int(hyper(run, "n_steps"))
    beside = "" if elsewhere else f" and {cores} cores"
    same = f", or n_steps {steps * envs // most:,} for as much data per update as now" if steps * envs >= most else ""
    processes = " in worker processes" if run.env.workers == "dummy" else ""
    message = (
        f"{'1 env needs' if envs == 1 else f'{envs:,} envs need'} {size(one.footprint.host.nbytes)}, "
        f"{one.footprint.host.nbytes / limit:.0%} of {of_ram(subject)}{beside}: {most:,} would fit"
    )
    hint = f"n_envs {most:,} with n_steps {steps:,}{same}; they collect side by side{processes}"
    yield Found(message, hint, one.line("env", "n_envs"))


def _most_envs(one: SubjectRun, limit: int, most: int) -> int:
    """Return the largest power of two times the environments that stays inside the RAM, at most `most`."""
    assert one.evidence is not None
    envs = one.run.env.n_envs
    while 2 * envs <= most:
        env = one.run.env.model_copy(update={"n_envs": 2 * envs})
        if add_up(one.run.replace(env=env), one.evidence).host.high > USED * limit:
            break
        envs *= 2
    return envs


RULE = Rule(
    code="LR024",
    name="under-used-machine",
    severity="info",
    what="An on-policy run that uses less than 40 % of the RAM, with far fewer environments than would fit.",
    why="Collecting is usually what takes the time, and environments collect side by side.",
    example="env: {n_envs: 2}   # 11 GiB of 32",
    remedy="More environments; with n_steps lowered in proportion, updates see as much data as before. legroom fit "
    "--grow "
    "finds the numbers.",
    look=per_run(look, needs=ROLLOUT),
)
