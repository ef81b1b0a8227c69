"""LR096: a copy of the network is kept again and again."""

from __future__ import annotations

import ast
from collections.abc import Iterable

from legroom.checking.boundless import growing, in_training_loop
from legroom.checking.rule_helpers import per_script
from legroom.checking.torch_sources import networks
from legroom.model.rule import Found, Rule
from legroom.reading.interpreter.script import Script, dotted


def look(script: Script) -> Iterable[Found]:
    if not script.imports("torch"):
        return
    names = networks(script)
    for each in growing(script) if names else ():
        if _copies(script, each.item, names) and in_training_loop(script, each.place):
            yield Found(
                f"a copy of the network is put into {each.name} again and again, and nothing takes one out",
                "keep the best one only, or save copies to files with torch.save()",
                each.line,
            )


def _copies(script: Script, item: ast.expr, names: set[str]) -> bool:
    """Return whether the item is `deepcopy(net)` or `deepcopy(net.state_dict())`."""
    if not (isinstance(item, ast.Call) and (script.qualified(item.func) or "").endswith("copy.deepcopy") and item.args):
        return False
    copied = item.args[0]
    if isinstance(copied, ast.Call) and isinstance(copied.func, ast.Attribute) and copied.func.attr == "state_dict":
        copied = copied.func.value
    return dotted(copied) in names


RULE = Rule(
    code="LR096",
    name="networks-kept",
    severity="warning",
    what="Copies of a network are collected in a list or dict during the training.",
    why="Each copy is as large as the network and stays where it is, on the GPU too.",
    example="for epoch in range(1000):\n    ...\n    snapshots[epoch] = copy.deepcopy(net.state_dict())\n",
    remedy="Keep the last few (collections.deque(maxlen=5)), or write them to files.",
    look=per_script(look),
)
