"""LR013: a rollout that does not fit into RAM."""

from collections.abc import Iterator

from legroom.backends.base import hyper
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
    if not parts.buffer or parts.buffer + parts.rest <= limit or parts.rest > limit:
        return
    steps, envs = hyper(one.run, "n_steps"), one.run.env.n_envs
    peak = f" ({size(parts.buffer + parts.flatten)} when flattened)" if parts.flatten else ""
    message = f"{steps:,} steps × {envs:,} envs are {size(parts.buffer)} of rollout{peak}, over {of_ram(subject)}"
    most = int(steps * (limit - parts.rest) / (parts.buffer + parts.flatten))
    hint = lean_way(subject, one, "rollout")
    if most:
        hint += f" first; plain arrays have room for n_steps {most:,}"
    yield Found(message, hint, one.line("hyperparams", "n_steps") or one.line("algo"))


RULE = Rule(
    code="LR013",
    name="rollout-exceeds-ram",
    severity="error",
    what="n_steps × n_envs observations are more than the RAM holds.",
    why="NumPy refuses the array at once, or the process is killed while the first rollout fills.",
    example="n_steps: 2048\nn_envs: 4   # of 17×49×71×58 float32: 104.7 GiB",
    remedy="Lean rollout storage; else fewer steps or environments.",
    look=per_run(look, needs=ROLLOUT),
)
