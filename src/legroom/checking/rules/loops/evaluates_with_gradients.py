"""LR085: an evaluation loop that records gradients."""

from __future__ import annotations

import ast
from collections.abc import Iterable

from legroom.checking.rule_helpers import per_script
from legroom.checking.torch_sources import (
    has_unseen_callers,
    in_module,
    loops_of,
    method_calls,
    networks,
    without_gradients,
)
from legroom.model.rule import Found, Rule
from legroom.reading.interpreter.script import Script, dotted
from legroom.reading.source import walk


def look(script: Script) -> Iterable[Found]:
    if not script.imports("torch"):
        return
    names = networks(script)
    for set_eval in method_calls(script, "eval") if names else ():
        assert isinstance(set_eval.func, ast.Attribute)
        net, function = dotted(set_eval.func.value), script.scopes.function_of(set_eval)
        if net not in names or not isinstance(function, ast.FunctionDef) or _derives(function):
            continue
        calls = [
            call for call in walk(function)
            if isinstance(call, ast.Call) and dotted(call.func) == net and loops_of(script, call)
            and call.lineno > set_eval.lineno
        ]  # fmt: skip
        if not calls or in_module(script, calls[0]) or has_unseen_callers(script, calls[0]):
            continue
        if not without_gradients(script, calls[0]):
            yield Found(
                f"{function.name}() evaluates {net} in a loop with gradients recorded: eval() switches dropout and "
                "batch norm, not gradients, so every forward pass keeps its activations",
                "put the loop under `with torch.no_grad():`",
                calls[0].lineno,
            )


def _derives(function: ast.FunctionDef) -> bool:
    """Return whether the function, or one in it, derives something."""
    for node in walk(function):
        if isinstance(node, ast.Attribute) and node.attr in ("backward", "grad", "train"):
            return True
        if isinstance(node, ast.Attribute) and node.attr == "step" and "env" not in (dotted(node.value) or ""):
            return True
    return False


RULE = Rule(
    code="LR085",
    name="evaluates-with-gradients",
    severity="warning",
    what="A function sets a network to eval() and runs it in a loop outside torch.no_grad().",
    why="eval() does not stop autograd. Each forward pass keeps the activations of all layers until its result is "
    "dropped, and results that are collected keep them for the whole evaluation.",
    example="def test(data):\n    net.eval()\n    for x, y in data:\n        right += (net(x).argmax(1) == y).sum()\n",
    remedy="with torch.no_grad(): around the loop.",
    look=per_script(look),
)
