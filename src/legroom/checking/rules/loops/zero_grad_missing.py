"""LR095: gradients that are never set to zero."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable

from legroom.checking.rule_helpers import per_script
from legroom.checking.torch_sources import backward_calls, loops_of, method_calls
from legroom.model.rule import Found, Rule
from legroom.reading.interpreter.script import Script, dotted

_RESETS = re.compile(r"zero_grad|\.grad\b|autograd\.grad|manual_backward|accelerat|fabric", re.I)


def look(script: Script) -> Iterable[Found]:
    if any(_RESETS.search(other.text) for other in script.followed):
        return
    optimizers = {
        name for node in script.nodes
        if isinstance(node, ast.Assign) and isinstance(node.value, ast.Call)
        and (script.qualified(node.value.func) or "").startswith("torch.optim.")
        for target in node.targets if (name := dotted(target))
    }  # fmt: skip
    for call, _ in backward_calls(script):
        loops = loops_of(script, call)
        for step in method_calls(script, "step"):
            assert isinstance(step.func, ast.Attribute)
            if dotted(step.func.value) in optimizers and loops and loops[0] in loops_of(script, step):
                yield Found(
                    "nothing sets the gradients to zero: backward() adds to those of all steps before",
                    f"{dotted(step.func.value)}.zero_grad() before backward()",
                    call.lineno,
                )
                return


RULE = Rule(
    code="LR095",
    name="gradients-never-zeroed",
    severity="warning",
    what="A loop calls backward() and the optimizer's step(), and no zero_grad() is anywhere.",
    why="backward() adds to the gradients. Without zero_grad() each update uses the sum of all batches so far.",
    example="for batch in data:\n    net(batch).mean().backward()\n    optimizer.step()\n",
    remedy="optimizer.zero_grad() in each turn.",
    look=per_script(look),
)
