"""Rules about training loops that people write themselves: losses with their graphs, transitions, snapshots kept."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable

from legroom.checking.boundless import Growing, growing, is_short
from legroom.checking.rule_helpers import script_rule
from legroom.checking.torch_sources import backward_calls, loops_of, method_calls, steps_environment, without_gradients
from legroom.model.rule import Found
from legroom.reading.interpreter.script import Script, dotted
from legroom.reading.source import last_name, walk

_OBSERVED = re.compile(r"(^|_)(obs|observations?|states?|frames?|images?|screens?|pixels)(_|\d|$)", re.I)
_STORES = re.compile(r"^(add|push|store|remember|append|insert|record|memorize|cache|save|observe|put)", re.I)
_DRAWS = frozenset({"sample", "choice", "choices", "randint", "permutation", "randrange"})
_CAPACITY = re.compile(r"capacity|limit|max|full|(mem|memory|buffer|replay|queue)_?(size|len)", re.I)
_PARTS = 3  # of a transition at least: what was seen, what was done, what came of it
_NO_ARRAY = re.compile(r"state_?dict|stats|status|idx|index|id$|name|count|len|num", re.I)


@script_rule("LR086")
def transitions_kept(script: Script) -> Iterable[Found]:
    """Every transition is kept, and nothing drops one."""
    if not any(True for _ in method_calls(script, "step", "backward")) and not script.imports("torch"):
        return
    for each in growing(script):
        if is_transition(each.item) and _is_collecting(script, each):
            yield Found(
                f"every transition is put into {each.name} and nothing takes one out: memory grows with each step "
                "until the process is killed",
                f"collections.deque(maxlen=...) drops the oldest; or clear {each.name} after each update",
                each.line,
            )


def is_transition(item: ast.expr) -> bool:
    """Return whether an item holds what was observed, beside what was done or came of it."""
    parts = list(item.elts) if isinstance(item, ast.Tuple | ast.List) else []
    if isinstance(item, ast.Dict):
        parts = list(item.values)
    elif isinstance(item, ast.Call):
        parts = [*item.args, *(keyword.value for keyword in item.keywords)]
    return len(parts) >= _PARTS and any(is_observed(part) for part in parts)


def is_observed(node: ast.expr) -> bool:
    """Return whether an expression is an observation, by its name: `obs`, `next_state`, `self.frame.copy()`."""
    while isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and not node.args:
        node = node.func.value  # .copy(), .detach()
    last = (dotted(node) or "").rpartition(".")[2]
    return _OBSERVED.search(last) is not None and _NO_ARRAY.search(last) is None


def _is_collecting(script: Script, each: Growing) -> bool:
    """Return whether it happens with every step: in a replay's storing method, or in a loop that steps an environment.

    How often a method is called is seen only where the loop is. A list that batches are drawn from at random is a
    replay all the same; one that is read as a whole may be a data set, filled once.
    """
    function = script.scopes.function_of(each.place)
    if each.name.startswith("self."):
        if not isinstance(function, ast.FunctionDef) or _STORES.match(function.name) is None or _has_bound(each):
            return False
        return _is_drawn_from(each) or _is_called_per_step(script, function.name)
    return any(
        isinstance(part, ast.Call) and isinstance(part.func, ast.Attribute) and part.func.attr == "backward"
        for part in walk(function or script.tree)
    ) and any(steps_environment(part) for loop in loops_of(script, each.place) for part in walk(loop))


def _has_bound(each: Growing) -> bool:
    """Return whether the class speaks of a capacity: then something may keep to it."""
    named = (part for part in walk(each.owner) if isinstance(part, ast.Name | ast.Attribute)) if each.owner else ()
    return any(_CAPACITY.search(last_name(part)) for part in named)


def _is_drawn_from(each: Growing) -> bool:
    """Return whether the class draws from the container at random: `random.sample(self.rows, n)`."""
    for part in walk(each.owner) if each.owner is not None else ():
        args = part.args if isinstance(part, ast.Call) and last_name(part.func) in _DRAWS else []
        if any(dotted(inner) == each.name for arg in args for inner in walk(arg)):
            return True
    return False


def _is_called_per_step(script: Script, method: str) -> bool:
    for other in script.followed:
        for call in other.calls_by_name.get(method, ()):
            for loop in loops_of(other, call)[:1]:
                if any(steps_environment(part) for part in walk(loop)):
                    return True
    return False


_ENVIRONMENT = re.compile(r"^(gym|gymnasium)\..*(Env|Wrapper|VectorEnv|VectorWrapper)$")


@script_rule("LR087")
def env_keeps_steps(script: Script) -> Iterable[Found]:
    """An environment that keeps something of every step for ever."""
    for each in growing(script):
        function = script.scopes.function_of(each.place)
        if each.owner is None or not isinstance(function, ast.FunctionDef) or function.name != "step":
            continue
        if not any(_ENVIRONMENT.match(base) for base in script.bases(each.owner)):
            continue
        if is_observed(each.item) or is_transition(each.item):
            yield Found(
                f"{each.owner.name}.step() adds to {each.name} and no reset() empties it: each of the environments "
                "grows with every step",
                f"set {each.name} = [] in reset(), or use collections.deque(maxlen=...)",
                each.line,
            )


_TAKE = "tracemalloc.take_snapshot"


@script_rule("LR058")
def snapshots_kept(script: Script) -> Iterable[Found]:
    """Tracemalloc snapshots that pile up in a list."""
    for each in growing(script) if script.imports("tracemalloc") else ():
        if _holds_snapshot(script, each.item):
            yield Found(
                f"every tracemalloc snapshot is kept in {each.name}: each holds all traces of that moment, so the "
                "profiler itself grows (+184 MB and 12–25 times slower in a measured run of 10,000 steps)",
                "keep the first snapshot and the last, or compare each with the one before and drop it",
                each.line,
            )


def _holds_snapshot(script: Script, node: ast.expr) -> bool:
    for part in walk(node):
        if isinstance(part, ast.Call) and script.qualified(part.func) == _TAKE:
            return not isinstance(node, ast.Call) or node is part  # snapshot.statistics(...) keeps less
        if isinstance(part, ast.Name) and isinstance(node, ast.Name | ast.Tuple | ast.Dict):
            for binding in script.scopes.reaching(part):
                value = binding.value
                if isinstance(value, ast.Call) and script.qualified(value.func) == _TAKE:
                    return True
                if isinstance(value, ast.Dict | ast.Tuple) and part is node and _holds_snapshot(script, value):
                    return True  # entry = {"at": step, "snapshot": snapshot}
    return False


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
    found = [
        node.value
        for node in script.nodes
        if isinstance(node, ast.Assign) and any(dotted(t) == total for t in node.targets)
        and script.scopes.function_of(node) is script.scopes.function_of(target)
    ]  # fmt: skip
    return bool(found) and all(isinstance(v, ast.Constant) and isinstance(v.value, int | float) for v in found)
