"""LR026: observations in more bytes than their values need."""

from collections.abc import Iterator

from legroom.backends.base import algorithm_of, hyper
from legroom.backends.sb3.stored import (
    keeps_float32,
    observation_leaves,
    replay_rows,
    rollout_rows,
    stores_leanly,
    written_rows,
)
from legroom.checking.rule_helpers import N_ENVS, per_run
from legroom.model.facts import spaces_of
from legroom.model.rule import Found, Rule
from legroom.model.spaces import DTYPES, BoxSpace, leaves
from legroom.model.subject import Subject, SubjectRun
from legroom.units import format_fine_size as size

WORTH_A_WORD = 16 << 20


def look(subject: Subject, one: SubjectRun) -> Iterator[Found]:
    run = one.run
    if stores_leanly(run):
        return
    rows = rollout_rows(run)
    copies = 1
    if rows is None:
        ring = replay_rows(run)
        if ring is None:
            return
        rows, copies = written_rows(run, ring), 1 if hyper(run, "optimize_memory_usage") else 2
    slots = rows * run.env.n_envs * copies
    stored = observation_leaves(run)
    observation, _ = spaces_of(run)
    for key, leaf in leaves(observation).items():
        narrow = _narrow(leaf)
        elements, dtype = stored[key]
        if narrow is None or (algorithm_of(run).family == "on-policy" and keeps_float32(subject.versions)):
            continue
        now, then = slots * elements * DTYPES[dtype], slots * elements * DTYPES[narrow]
        if now - then < WORTH_A_WORD:
            continue
        which = f"observation {key!r}" if key else "observations"
        why = "the networks compute in float32" if narrow == "float32" else "they are whole numbers from 0 to 255"
        message = f"{leaf.dtype} {which} take {size(now)} in the buffer, {size(then)} as {narrow}; {why}"
        hint = f"declare and return them as {narrow}; a wrapper can"
        yield Found(
            message, hint, one.line("env", "spaces", "observation") or one.line("env", "id") or one.line("algo")
        )


def _narrow(leaf: object) -> str | None:
    """Return the dtype that would do, None where it is not certain that one would."""
    if not isinstance(leaf, BoxSpace):
        return None
    if leaf.dtype == "float32" and (leaf.low, leaf.high) == (0, 255) and len(leaf.shape) >= 2:
        return "uint8"
    return "float32" if leaf.dtype == "float64" else None


RULE = Rule(
    code="LR026",
    name="wide-observations",
    severity="info",
    what="float64 observations, or float32 images with values from 0 to 255.",
    why="The buffers keep the space's dtype and the networks compute in float32, so the second half of a float64 is "
    "stored "
    "for nothing; an image in float32 takes four times the bytes of uint8.",
    example="observation: {type: box, shape: [84, 84, 4], dtype: float32, low: 0, high: 255}",
    remedy="Return the narrower dtype from the environment, or wrap it.",
    look=per_run(look, needs=(N_ENVS,)),
)
