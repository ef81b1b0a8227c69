"""LR065: total steps below one rollout, so that a hand-written loop runs zero times."""

from __future__ import annotations

import ast
from collections.abc import Iterable

from legroom.checking.rule_helpers import per_script
from legroom.model.rule import Found, Rule
from legroom.reading.interpreter.asker import integer_of
from legroom.reading.interpreter.script import Script, dotted
from legroom.reading.source import walk

_COUNTS = ("num_iterations", "num_updates", "n_updates", "n_iterations", "total_updates", "num_update_steps")


def look(script: Script) -> Iterable[Found]:
    for node in script.nodes:
        if not (isinstance(node, ast.Assign) and len(node.targets) == 1):
            continue
        name = (dotted(node.targets[0]) or "").rpartition(".")[2].lower()
        quotient = next(
            (p for p in walk(node.value) if isinstance(p, ast.BinOp) and isinstance(p.op, ast.FloorDiv)), None
        )
        if name not in _COUNTS or quotient is None or integer_of(script, node.value) != 0:
            continue
        total, batch = integer_of(script, quotient.left), integer_of(script, quotient.right)
        if total is not None and batch is not None and 0 <= total < batch:
            yield Found(
                f"{total:,} steps are less than one rollout of {batch:,}: {name} is 0 and nothing is trained",
                f"at least {batch:,} steps in all", node.lineno,
            )  # fmt: skip


RULE = Rule(
    code="LR065",
    name="trains-nothing",
    severity="warning",
    what="The total number of steps is below one rollout.",
    why="total_timesteps // batch_size is 0 then, the loop runs zero times, and the script ends without a word.",
    example="batch_size = 8 * 2048\nnum_updates = 10_000 // batch_size\n",
    remedy="More steps in all, or a shorter rollout.",
    look=per_script(look),
)
