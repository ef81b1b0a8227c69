"""LR012: a rollout that fits, until SB3 copies it."""

from collections.abc import Iterator

from legroom.backends.sb3.checking import lean_way, shares
from legroom.checking.rule_helpers import ROLLOUT, of_ram, per_run, ram_limit
from legroom.model.rule import Found, Rule
from legroom.model.subject import Subject, SubjectRun
from legroom.units import format_fine_size as size


def look(subject: Subject, one: SubjectRun) -> Iterator[Found]:
    limit = ram_limit(subject)
    if limit is None or one.footprint is None:
        return
    parts = shares(one.footprint, "rollout.")
    stored = parts.buffer + parts.rest
    if not parts.flatten or stored > limit or stored + parts.flatten <= limit:
        return
    message = (
        f"the rollout fits as it is stored ({size(parts.buffer)}, {size(stored)} with everything else) but not when "
        f"SB3 flattens it: RolloutBuffer.get copies the observations, {size(stored + parts.flatten)} at the peak, over "
        f"{of_ram(subject)}"
    )
    hint = f"{lean_way(subject, one, 'rollout')} needs no such copy, nor does a single environment"
    yield Found(message, hint, one.line("hyperparams", "n_steps") or one.line("algo"))


RULE = Rule(
    code="LR012",
    name="flatten-copy-exceeds-ram",
    severity="error",
    what="The rollout fits into RAM, but not together with its copy.",
    why="Before the first minibatch SB3 swaps and flattens the rollout's axes, which copies it: the peak is twice what "
    "is stored. The run collects a whole rollout and dies at its first update.",
    example="n_steps: 8192\nn_envs: 2   # of 144×160×12 uint8: 4.22 GiB stored, 8.44 GiB at the peak",
    remedy="Lean rollout storage, which is read in place; or fewer steps; or one environment, which needs no copy.",
    look=per_run(look, needs=ROLLOUT),
)
