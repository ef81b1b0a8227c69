"""LR099: anomaly detection left on."""

from __future__ import annotations

import ast
from collections.abc import Iterable

from legroom.checking.rule_helpers import per_script
from legroom.checking.torch_sources import backward_calls
from legroom.model.rule import Found, Rule
from legroom.reading.interpreter.script import Script


def look(script: Script) -> Iterable[Found]:
    if not any(True for other in script.followed for _ in backward_calls(other)):
        return
    for call in script.calls_of("torch.autograd.set_detect_anomaly"):
        on = call.args[0] if call.args else None
        conditional = any(isinstance(a, ast.If) for a in script.scopes.ancestors(call) if not _is_guard(a))
        if isinstance(on, ast.Constant) and on.value is True and not conditional:
            yield Found(
                "anomaly detection is on for the whole training: every operation keeps its stack trace, and each "
                "backward pass is checked for NaN",
                "remove it once the error is found",
                call.lineno,
            )


def _is_guard(node: ast.AST) -> bool:
    return isinstance(node, ast.If) and isinstance(node.test, ast.Compare) and ast.unparse(node.test.left) == "__name__"


RULE = Rule(
    code="LR099",
    name="anomaly-detection-on",
    severity="info",
    what="torch.autograd.set_detect_anomaly(True) in a training script.",
    why="It is for finding a NaN. It keeps a stack trace for every operation of the graph and slows the training down.",
    example="torch.autograd.set_detect_anomaly(True)\n",
    remedy="Remove it, or put it behind an option.",
    look=per_script(look),
)
