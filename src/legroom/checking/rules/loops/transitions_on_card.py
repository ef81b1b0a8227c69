"""LR097: a replay whose transitions are tensors on the card."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator

from legroom.checking.rule_helpers import per_script
from legroom.model.rule import Found, Rule
from legroom.reading.interpreter.asker import integer_of
from legroom.reading.interpreter.script import Script, argument, dotted
from legroom.units import format_size

BLOCK = 512  # bytes that CUDA's allocator gives a tensor at least
FEW = 1_000


def look(script: Script) -> Iterable[Found]:
    if not script.imports("torch") or "cuda" not in script.text:
        return
    for name, capacity in _deques(script):
        for call in script.calls:
            filled = isinstance(call.func, ast.Attribute) and call.func.attr == "append" and len(call.args) == 1
            if not filled or dotted(call.func.value) != name or not isinstance(call.args[0], ast.Tuple):  # type: ignore[attr-defined]
                continue
            moved = [part for part in call.args[0].elts if _is_on_device(script, part)]
            if moved:
                least = capacity * len(moved) * BLOCK
                yield Found(
                    f"{name} keeps up to {capacity:,} transitions, {len(moved)} tensors of each on the device: at "
                    f"least {format_size(least)} of GPU memory, in blocks of {BLOCK} bytes",
                    "store arrays or CPU tensors, and move a batch to the device when it is drawn",
                    call.lineno,
                )


def _deques(script: Script) -> Iterator[tuple[str, int]]:
    """Yield (name, maxlen) of the deques whose bound is known."""
    for node in script.nodes:
        made = node.value if isinstance(node, ast.Assign) and isinstance(node.value, ast.Call) else None
        if isinstance(node, ast.Assign) and made is not None and script.qualified(made.func) == "collections.deque":
            size, name = integer_of(script, argument(made, "maxlen", 1)), dotted(node.targets[0])
            if name is not None and size is not None and size >= FEW:
                yield name, size


def _is_on_device(script: Script, node: ast.expr) -> bool:
    """Return whether a name is bound to a tensor that was moved: `torch.tensor(x).to(device)`, `device=device`."""
    if isinstance(node, ast.Name):
        values = [binding.value for binding in script.scopes.reaching(node)]
        return bool(values) and all(value is not None and _is_moved(script, value) for value in values)
    return _is_moved(script, node)


def _is_moved(script: Script, node: ast.expr) -> bool:
    while isinstance(node, ast.Call):
        if isinstance(node.func, ast.Attribute) and node.func.attr in ("cpu", "numpy", "item", "tolist"):
            return False
        if isinstance(node.func, ast.Attribute) and node.func.attr in ("to", "cuda"):
            where = dotted(node.args[0]) if node.args else None
            return node.func.attr == "cuda" or "device" in (where or "").lower()
        if (script.qualified(node.func) or "").startswith("torch.") and argument(node, "device") is not None:
            return not isinstance(argument(node, "device"), ast.Constant)
        if not isinstance(node.func, ast.Attribute):
            return False
        node = node.func.value
    return False


RULE = Rule(
    code="LR097",
    name="transitions-on-card",
    severity="info",
    what="Transitions are put into a replay as tensors that were moved to the device.",
    why="Each tensor takes at least 512 bytes of GPU memory however small it is, and the replay lives there for the "
    "whole training, beside the networks. Host memory is cheaper and a batch is moved in one copy.",
    example="state = torch.tensor(obs, device=device)\nmemory.append((state, action, reward, next_state))\n",
    remedy="Append the arrays, and call .to(device) on the sampled batch.",
    look=per_script(look),
)
