"""LR081: a running total of losses that chains the graphs of all steps."""

from __future__ import annotations

import ast
from collections.abc import Iterable

from legroom.checking.rule_helpers import per_script
from legroom.checking.rules.loops.loss_kept import is_the_loss
from legroom.checking.torch_sources import backward_calls, loops_of
from legroom.model.rule import Found, Rule
from legroom.reading.interpreter.script import Script, dotted


def look(script: Script) -> Iterable[Found]:
    losses = [value for _, value in backward_calls(script) if isinstance(value, ast.Name)]
    derived = {dotted(value) for _, value in backward_calls(script)}
    for node in script.nodes:
        if not (isinstance(node, ast.AugAssign) and isinstance(node.op, ast.Add) and loops_of(script, node)):
            continue
        total, added = dotted(node.target), node.value
        if (
            isinstance(added, ast.BinOp)
            and isinstance(added.op, ast.Mult | ast.Div)
            and isinstance(added.left, ast.Name)
        ):
            added = added.left
        if total is None or not isinstance(added, ast.Name) or total in derived or total == added.id:
            continue
        if is_the_loss(script, added, losses) and _starts_as_number(script, node.target, total):
            yield Found(
                f"{total} += {added.id} chains the graphs of all steps: {added.id} is a tensor with gradients, so the "
                "total is one too and holds them all",
                f"{total} += {added.id}.item()",
                node.lineno,
            )


def _starts_as_number(script: Script, target: ast.expr, total: str) -> bool:
    """Return whether the total begins as a plain number, so that it is not derived."""
    found = [
        node.value
        for node in script.nodes
        if isinstance(node, ast.Assign) and any(dotted(t) == total for t in node.targets)
        and script.scopes.function_of(node) is script.scopes.function_of(target)
    ]  # fmt: skip
    return bool(found) and all(isinstance(v, ast.Constant) and isinstance(v.value, int | float) for v in found)


RULE = Rule(
    code="LR081",
    name="loss-summed-with-graph",
    severity="warning",
    what="A running total adds up losses as tensors.",
    why="The sum of tensors with gradients is a tensor with gradients: the total holds the graphs of all steps until "
    "it is set to zero again.",
    example="total = 0.0\nfor batch in data:\n    loss = net(batch).mean()\n    loss.backward()\n    total += loss\n",
    remedy="total += loss.item().",
    look=per_script(look),
)
