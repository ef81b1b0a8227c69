"""LR080: losses that are kept with the graph they came from."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable

from legroom.checking.boundless import is_short
from legroom.checking.rule_helpers import per_script
from legroom.checking.torch_sources import backward_calls, loops_of, without_gradients
from legroom.model.rule import Found, Rule
from legroom.reading.interpreter.script import Script, dotted


def look(script: Script) -> Iterable[Found]:
    losses = [value for _, value in backward_calls(script) if isinstance(value, ast.Name)]
    for call in script.calls:
        if not (isinstance(call.func, ast.Attribute) and call.func.attr == "append" and len(call.args) == 1):
            continue
        kept, loops = call.args[0], loops_of(script, call)
        into = dotted(call.func.value)
        if not isinstance(kept, ast.Name) or into is None or not loops or all(is_short(loop) for loop in loops):
            continue
        if _is_bounded(script, into) or _is_used_for_gradients(script, into):
            continue
        if is_the_loss(script, kept, losses):
            yield Found(
                f"{into}.append({kept.id}) keeps the graph of every step: {kept.id} is a tensor that backward() was "
                "called on, not a number",
                f"{into}.append({kept.id}.item()), or {kept.id}.detach() to stay on the device",
                call.lineno,
            )


def _is_bounded(script: Script, container: str) -> bool:
    """Return whether the container drops old items itself: `deque(maxlen=100)`."""
    last = re.escape(container.rpartition(".")[2])
    return re.search(rf"\b{last}\b[^=\n]*=\s*[\w.]*deque\([^\n]*(maxlen|,)", script.text) is not None


def is_the_loss(script: Script, name: ast.Name, losses: list[ast.Name]) -> bool:
    """Return whether `name` is, for certain, a tensor that one of the `backward()` calls is made on."""
    if without_gradients(script, name):
        return False
    here = {id(binding) for binding in script.scopes.reaching(name)}
    for loss in losses:
        same_function = script.scopes.function_of(loss) is script.scopes.function_of(name)
        if loss.id == name.id and same_function and here:
            there = {id(binding) for binding in script.scopes.reaching(loss)}
            if here == there:
                return True
    return False


def _is_used_for_gradients(script: Script, container: str) -> bool:
    """Return whether the container goes into a sum or stack that something may be derived from."""
    for call in script.calls:
        name = call.func.attr if isinstance(call.func, ast.Attribute) else getattr(call.func, "id", "")
        if name in ("sum", "stack", "cat", "mean") and any(dotted(arg) == container for arg in call.args):
            parent = script.scopes.parents.get(id(call))
            if not (isinstance(parent, ast.Attribute) and parent.attr in ("item", "detach")) and name != "mean":
                return True
    return False


RULE = Rule(
    code="LR080",
    name="loss-kept-with-graph",
    severity="warning",
    what="A loss is appended to a list as a tensor, with the graph that it was computed by.",
    why="A tensor that has gradients holds every node of its graph. A list of them grows with each step, on the host "
    "and on the GPU, and holds activations as well where backward() has not freed them.",
    example="for batch in data:\n    loss = net(batch).mean()\n    loss.backward()\n    losses.append(loss)\n",
    remedy="Keep the number: losses.append(loss.item()).",
    look=per_script(look),
)
