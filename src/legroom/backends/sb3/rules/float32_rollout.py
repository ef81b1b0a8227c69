"""LR011: SB3 before 2.7.1, which keeps every rollout in float32."""

import math
from collections.abc import Iterator

from legroom.backends.sb3.stored import FLOAT32, keeps_float32, observation_leaves, rollout_rows, stores_leanly
from legroom.checking.pins import find_pin
from legroom.checking.rule_helpers import ROLLOUT, per_run
from legroom.model.rule import Found, Rule
from legroom.model.spaces import DTYPES
from legroom.model.subject import Subject, SubjectRun
from legroom.units import format_fine_size as size

PACKAGE = "stable-baselines3"
WORTH_A_WORD = 64 << 20  # of difference; a few kilobytes of flags are nobody's problem


def look(subject: Subject, one: SubjectRun) -> Iterator[Found]:
    run = one.run
    rows = rollout_rows(run)
    if rows is None or stores_leanly(run) or not keeps_float32(subject.versions):
        return
    leaves = observation_leaves(run).values()
    slots = rows * run.env.n_envs
    own = slots * sum(n * DTYPES[dtype] for n, dtype in leaves)
    wide = slots * sum(n * FLOAT32 for n, _ in leaves)
    if wide - own < WORTH_A_WORD:
        return
    pin = find_pin(subject.path, PACKAGE)
    where = f"{pin[1]} allows at most" if pin else "installed is"
    dtypes = ", ".join(sorted({dtype for _, dtype in leaves}))
    factor = wide / own
    twice = f", {size(2 * wide)} at the flatten copy" if run.env.n_envs > 1 else ""
    message = (
        f"{where} stable-baselines3 {subject.versions[PACKAGE]}, which keeps {dtypes} observations as float32: "
        f"{size(own)} → {size(wide)} stored ({factor:.{0 if math.isclose(factor, round(factor)) else 1}f}×){twice}"
    )
    yield Found(
        message,
        "stable-baselines3>=2.7.1 keeps the space's dtype",
        one.line("hyperparams", "n_steps") or one.line("algo"),
    )


RULE = Rule(
    code="LR011",
    name="float32-rollout",
    severity="warning",
    what="Integer observations in the rollout buffer of stable-baselines3 before 2.7.1.",
    why="That buffer is always float32: four times the memory for images. Estimates from "
    "uint8 sizes are right only from 2.7.1 on.",
    example="stable-baselines3==2.3.2   # in requirements.txt, with a Game Boy's screen as observation",
    remedy="Upgrade stable-baselines3, or store leanly (memory: {rollout: lean}).",
    look=per_run(look, needs=ROLLOUT),
)
