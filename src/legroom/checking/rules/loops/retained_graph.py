"""LR082: retain_graph=True where nothing goes through the graph a second time."""

from __future__ import annotations

import ast
from collections.abc import Iterable

from legroom.checking.rule_helpers import per_script
from legroom.checking.torch_sources import backward_calls, loops_of
from legroom.model.rule import Found, Rule
from legroom.reading.interpreter.script import Script, argument


def look(script: Script) -> Iterable[Found]:
    calls = [call for call, _ in backward_calls(script)]
    grads = list(script.calls_of("torch.autograd.grad", "torch.autograd.backward"))
    for call, value in backward_calls(script):
        retained = argument(call, "retain_graph")
        if not (isinstance(retained, ast.Constant) and retained.value is True and isinstance(value, ast.Name)):
            continue
        loops = loops_of(script, call)
        if len(calls) > 1 or grads or not loops:
            continue  # another backward pass may need the graph
        if all(loops[0] in loops_of(script, b.node) for b in script.scopes.reaching(value)):
            yield Found(
                f"{value.id}.backward(retain_graph=True) keeps the activations, and this file has no second backward "
                "pass: they stay until the next step has made its own",
                "leave retain_graph out; if PyTorch then complains, detach() the state that is carried over",
                call.lineno,
            )


RULE = Rule(
    code="LR082",
    name="graph-retained",
    severity="info",
    what="backward(retain_graph=True) in a loop, in a file with no other backward pass.",
    why="The graph is freed only when the loss is overwritten, so the next forward pass runs while the last one's "
    "activations are still held: twice the memory. A state carried from step to step makes the graph grow without end.",
    example="for batch in data:\n    loss = net(batch).mean()\n    loss.backward(retain_graph=True)\n",
    remedy="Leave it out, or detach what is carried over.",
    look=per_script(look),
)
