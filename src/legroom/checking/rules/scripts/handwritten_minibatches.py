"""LR007 for hand-written loops: `for start in range(0, batch_size, minibatch_size)` with a rest."""

from __future__ import annotations

import ast
from collections.abc import Iterable

from legroom.checking.rule_helpers import per_script
from legroom.model.rule import Found, Rule
from legroom.reading.interpreter.asker import attribute_stores, integer_of
from legroom.reading.interpreter.script import Script, dotted
from legroom.reading.source import walk


def look(script: Script) -> Iterable[Found]:
    for call in script.calls:
        if script.qualified(call.func) == "range" and len(call.args) == 3:
            yield from _look_at(script, call)


def _look_at(script: Script, call: ast.Call) -> Iterable[Found]:
    first, stop, step = call.args
    step_name, stop_name = dotted(step), dotted(stop)
    if step_name is None or stop_name is None or not _is_minibatch(step_name) or integer_of(script, first) != 0:
        return
    batch, size = integer_of(script, stop), integer_of(script, step)
    if batch is None or size is None or batch <= 0:
        return
    line, wanted = _made(script, step)
    if size < 1:
        yield Found(
            f"{batch:,} samples make minibatches of {size}: range() refuses a step of 0",
            "fewer minibatches than samples", line or call.lineno, severity="error",
        )  # fmt: skip
        return
    count, rest = -(-batch // size), batch % size
    if rest:
        odd = "; its advantages cannot be normalised and become NaN" if rest == 1 else ""
        number = f", {count} minibatches and not {wanted}" if wanted is not None and wanted != count else ""
        yield Found(
            f"{batch:,} samples in minibatches of {size:,}: the last has only {rest:,}{number}{odd}",
            "a number of minibatches that divides num_envs × num_steps", line or call.lineno,
        )  # fmt: skip
    elif wanted is not None and wanted != count:
        yield Found(
            f"{batch:,} samples in minibatches of {size:,} are {count} minibatches, not {wanted}",
            "a number of minibatches that divides num_envs × num_steps", line or call.lineno,
        )  # fmt: skip


def _is_minibatch(name: str) -> bool:
    return any(word in name.lower() for word in ("minibatch", "mini_batch", "mb_size"))


def _made(script: Script, step: ast.expr) -> tuple[int | None, int | None]:
    """Return the line that computes the minibatch's size, and how many minibatches it is meant to make."""
    value: ast.expr | None = None
    line = None
    if isinstance(step, ast.Name):
        bindings = script.scopes.reaching(step)
        if len(bindings) == 1:
            value, line = bindings[0].value, getattr(bindings[0].node, "lineno", None)
    elif isinstance(step, ast.Attribute):
        stores = [s for target, s in attribute_stores(script, step.attr) if dotted(target) == dotted(step)]
        if len(stores) == 1 and isinstance(stores[0], ast.Assign):
            value, line = stores[0].value, stores[0].lineno
    for part in walk(value) if value is not None else ():
        if isinstance(part, ast.BinOp) and isinstance(part.op, ast.FloorDiv | ast.Div):
            return line, integer_of(script, part.right)
    return line, None


RULE = Rule(
    code="LR007",
    name="minibatch-does-not-divide",
    severity="warning",
    what="The number of minibatches does not divide the samples of a rollout.",
    why=(
        "batch_size // num_minibatches rounds down, so the loop makes one minibatch more, of the few samples that are "
        "left: a noisy update, and NaN when it is a single sample whose advantages are normalised."
    ),
    example=(
        "batch_size = 8 * 128\nminibatch_size = batch_size // 5\n"
        "for start in range(0, batch_size, minibatch_size): ...\n"
    ),
    remedy="A num_minibatches that divides num_envs × num_steps.",
    look=per_script(look),
)
