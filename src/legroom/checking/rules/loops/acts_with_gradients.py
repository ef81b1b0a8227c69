"""LR084: the best action taken from a network that records gradients that are not used."""

from __future__ import annotations

import ast
from collections.abc import Iterable

from legroom.checking.rule_helpers import per_script
from legroom.checking.torch_sources import has_unseen_callers, in_module, networks, without_gradients
from legroom.model.rule import Found, Rule
from legroom.reading.interpreter.script import Script, dotted

_INDEX = ("argmax", "argmin")  # no gradient goes through them
_ENDS = ("item", "numpy", "tolist")


def look(script: Script) -> Iterable[Found]:
    if not script.imports("torch"):
        return
    names = networks(script)
    for call in script.calls if names else ():
        net = dotted(call.func)
        if net not in names or in_module(script, call) or not _ends_as_index(script, call):
            continue
        if not without_gradients(script, call) and not has_unseen_callers(script, call):
            yield Found(
                f"{net}(...) only chooses an action here but records a graph for gradients, which argmax has not",
                "put it under `with torch.no_grad():`",
                call.lineno,
            )


def _ends_as_index(script: Script, call: ast.Call) -> bool:
    """Return whether the result goes straight through argmax and ends as a number: `net(x).argmax(1).item()`."""
    node: ast.AST = call
    indexed = False
    while True:
        parent = script.scopes.parents.get(id(node))
        if isinstance(parent, ast.Attribute):
            outer = script.scopes.parents.get(id(parent))
            if not (isinstance(outer, ast.Call) and outer.func is parent):
                return False
            if parent.attr in _ENDS and indexed:
                return True
            indexed = indexed or parent.attr in _INDEX
            if not indexed and parent.attr not in ("squeeze", "cpu", "view", "flatten", "unsqueeze", "reshape"):
                return False
            node = outer
        elif isinstance(parent, ast.Call) and script.qualified(parent.func) == "torch.argmax" and node in parent.args:
            indexed, node = True, parent
        else:
            return indexed and isinstance(parent, ast.Call) and script.qualified(parent.func) in ("int", "float")


RULE = Rule(
    code="LR084",
    name="acts-with-gradients",
    severity="info",
    what="A network is asked for the best action outside torch.no_grad().",
    why="The forward pass keeps the activations of every layer for a backward pass that never comes: argmax has no "
    "gradient. With pictures and many environments that is most of the memory of collecting.",
    example="action = q_net(state).argmax(dim=1).item()\n",
    remedy="with torch.no_grad(): action = q_net(state).argmax(dim=1).item()",
    look=per_script(look),
)
