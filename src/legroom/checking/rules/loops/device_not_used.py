"""LR094: a device is chosen and never used."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable

from legroom.checking.rule_helpers import per_script
from legroom.checking.torch_sources import backward_calls
from legroom.model.rule import Found, Rule
from legroom.reading.interpreter.scopes import is_main_guard
from legroom.reading.interpreter.script import Script

_DEVICE = re.compile(r"^_?(device|DEVICE|dev)$")
_MOVES = re.compile(r"\.to\(|\.cuda\(|device\s*=|set_default_device|set_default_tensor_type|\bDEVICE\b.*\bDEVICE\b")


def look(script: Script) -> Iterable[Found]:
    if not any(True for _ in backward_calls(script)) or script.importers:
        return
    for scope in script.scopes.all:
        for name, bindings in scope.bindings.items():
            if not _DEVICE.match(name) or len(bindings) != 1 or bindings[0].value is None or scope.uses.get(name):
                continue
            if isinstance(scope.node, ast.ClassDef) or "cuda" not in ast.unparse(bindings[0].value):
                continue
            rest = [line for number, line in enumerate(script.lines, 1) if number != bindings[0].node.lineno]  # type: ignore[attr-defined]
            if not any(_MOVES.search(line) for line in rest) and _is_program(script):
                yield Found(
                    f"{name} is chosen here and never used: networks and batches stay on the CPU",
                    f"net.to({name}), and batch.to({name}) for what goes into it",
                    bindings[0].node.lineno,  # type: ignore[attr-defined]
                )


def _is_program(script: Script) -> bool:
    """Return whether it is a program that is started, so that no other file can use the name."""
    return any(is_main_guard(node) for node in script.tree.body) or any(
        isinstance(node, ast.For | ast.While) for node in script.tree.body
    )


RULE = Rule(
    code="LR094",
    name="device-not-used",
    severity="warning",
    what="A torch device is chosen and nothing is moved to it.",
    why="Networks and tensors are made on the CPU unless they are moved. The GPU stays idle, and nothing says so.",
    example='device = torch.device("cuda" if torch.cuda.is_available() else "cpu")\nnet = Net()\n',
    remedy="net = Net().to(device), and the same for each batch.",
    look=per_script(look),
)
