"""LR086: every transition is kept, and nothing drops one."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable

from legroom.checking.boundless import Growing, growing
from legroom.checking.rule_helpers import per_script
from legroom.checking.torch_sources import loops_of, method_calls, steps_environment
from legroom.model.rule import Found, Rule
from legroom.reading.interpreter.script import Script, dotted
from legroom.reading.source import walk

_OBSERVED = re.compile(r"(^|_)(obs|observations?|states?|frames?|images?|screens?|pixels)(_|\d|$)", re.I)
_STORES = re.compile(r"^(add|push|store|remember|append|insert|record|memorize|cache|save|observe|put)", re.I)
_DRAWS = frozenset({"sample", "choice", "choices", "randint", "permutation", "randrange"})
_CAPACITY = re.compile(r"capacity|limit|max|full|(mem|memory|buffer|replay|queue)_?(size|len)", re.I)
_PARTS = 3  # of a transition at least: what was seen, what was done, what came of it
_NO_ARRAY = re.compile(r"state_?dict|stats|status|idx|index|id$|name|count|len|num", re.I)


def look(script: Script) -> Iterable[Found]:
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
    return any(_CAPACITY.search(_last_name(part)) for part in named)


def _is_drawn_from(each: Growing) -> bool:
    """Return whether the class draws from the container at random: `random.sample(self.rows, n)`."""
    for part in walk(each.owner) if each.owner is not None else ():
        args = part.args if isinstance(part, ast.Call) and _last_name(part.func) in _DRAWS else []
        if any(dotted(inner) == each.name for arg in args for inner in walk(arg)):
            return True
    return False


def _is_called_per_step(script: Script, method: str) -> bool:
    """Return whether a loop that steps an environment calls the method."""
    for other in script.followed:
        for call in other.calls_by_name.get(method, ()):
            for loop in loops_of(other, call)[:1]:
                if any(steps_environment(part) for part in walk(loop)):
                    return True
    return False


def _last_name(func: ast.expr) -> str:
    return func.attr if isinstance(func, ast.Attribute) else getattr(func, "id", "")


RULE = Rule(
    code="LR086",
    name="transitions-kept",
    severity="warning",
    what="Transitions are appended to a list that nothing empties or bounds.",
    why="A list has no capacity. A transition of two 84×84×4 frames takes 56 KB: a million of them are 56 GB, and the "
    "training dies hours after it began.",
    example="self.memory = []\ndef store(self, state, action):\n    self.memory.append((state, action, 0))\n"
    "def draw(self):\n    return random.sample(self.memory, 32)\n",
    remedy="collections.deque(maxlen=100_000), or a ring of preallocated arrays.",
    look=per_script(look),
)
