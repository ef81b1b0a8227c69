"""Rules about gradients in training loops that people write themselves, mostly with plain PyTorch."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable

from legroom.checking.boundless import in_training_loop, is_short
from legroom.checking.rule_helpers import script_rule
from legroom.checking.torch_sources import (
    backward_calls,
    has_unseen_callers,
    in_module,
    loops_of,
    method_calls,
    networks,
    runs_every_turn,
    without_gradients,
)
from legroom.model.rule import Found
from legroom.reading.interpreter.script import Script, argument, dotted
from legroom.reading.source import walk


@script_rule("LR080")
def loss_kept(script: Script) -> Iterable[Found]:
    """Losses that are kept with the graph they came from."""
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


@script_rule("LR081")
def loss_summed(script: Script) -> Iterable[Found]:
    """A running total of losses that chains the graphs of all steps."""
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


@script_rule("LR082")
def retained_graph(script: Script) -> Iterable[Found]:
    """Retain_graph=True where nothing goes through the graph a second time."""
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


@script_rule("LR083")
def cache_emptied(script: Script) -> Iterable[Found]:
    """Torch.cuda.empty_cache() in every step."""
    for call in script.calls_of("torch.cuda.empty_cache"):
        loops = loops_of(script, call)
        if loops and runs_every_turn(script, call, loops[0]) and in_training_loop(script, call):
            yield Found(
                "torch.cuda.empty_cache() in every turn of the training loop: what is in use stays, and the next step "
                "asks the driver for the same memory again",
                "leave it out, or call it once after a phase that needed more (an evaluation)",
                call.lineno,
            )


_INDEX = ("argmax", "argmin")  # no gradient goes through them
_ENDS = ("item", "numpy", "tolist")


@script_rule("LR084")
def acts_with_gradients(script: Script) -> Iterable[Found]:
    """The best action taken from a network that records gradients that are not used."""
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


@script_rule("LR085")
def evaluates_with_gradients(script: Script) -> Iterable[Found]:
    """An evaluation loop that records gradients."""
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
