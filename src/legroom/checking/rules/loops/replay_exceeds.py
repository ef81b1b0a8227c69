"""LR089: a replay of known length and observations of known size that come to more than there is."""

from __future__ import annotations

import ast
import math
from collections.abc import Iterable

from legroom.checking.rule_helpers import of_ram, ram_limit
from legroom.checking.rules.loops.transitions_kept import is_observed
from legroom.model.rule import Found, Rule
from legroom.model.subject import Subject
from legroom.reading.interpreter.asker import integer_of, value_of
from legroom.reading.interpreter.script import Script, argument, dotted
from legroom.reading.interpreter.values import Unfoldable
from legroom.units import format_size

_BYTES = {"float32": 4, "float64": 8, "uint8": 1, "int32": 4, "int64": 8, "int8": 1, "float16": 2}


def look(subject: Subject) -> Iterable[Found]:
    script: Script | None = subject.script
    limit = ram_limit(subject) if subject.budget is not None else None
    nbytes = observed_bytes(script) if script is not None else None
    if script is None or limit is None or nbytes is None:
        return
    for node in script.nodes:
        if not (isinstance(node, ast.Assign) and isinstance(node.value, ast.Call)):
            continue
        name, size = dotted(node.targets[0]), None
        if script.qualified(node.value.func) == "collections.deque":
            size = integer_of(script, argument(node.value, "maxlen", 1))
        kept = _kept(script, name) if name is not None and size else 0
        if size and kept and size * kept * nbytes > limit:
            yield Found(
                f"{name} keeps up to {size:,} transitions with {kept} observations of {format_size(nbytes)} each: "
                f"{format_size(size * kept * nbytes)} when it is full, more than {of_ram(subject)}",
                "a smaller maxlen, uint8 for pictures, or one copy of each frame",
                node.lineno,
            )


def observed_bytes(script: Script) -> int | None:
    """Return the size of an observation where exactly one Box of the source is one, with a shape that it states."""
    found: set[int] = set()
    for call in script.calls:
        name = script.qualified(call.func) or ""
        if not (name.startswith(("gym.", "gymnasium.")) and name.endswith("spaces.Box")):
            continue
        statement = script.scopes.statement_of(call)
        target = dotted(statement.targets[0]) if isinstance(statement, ast.Assign) else None
        if target is None or not target.endswith("observation_space"):
            continue
        shape, dtype = argument(call, "shape", 2), argument(call, "dtype", 3)
        try:
            sides = value_of(script, shape)
        except Unfoldable:
            return None
        each = _BYTES.get((dotted(dtype) or "").rpartition(".")[2] if dtype is not None else "float32")
        if each is None or not isinstance(sides, list) or not all(isinstance(n, int) and n > 0 for n in sides):
            return None
        found.add(math.prod(sides) * each)
    return found.pop() if len(found) == 1 else None


def _kept(script: Script, name: str) -> int:
    """Return how many observations each item of the container holds; 0 where it is not known."""
    for call in script.calls:
        if isinstance(call.func, ast.Attribute) and call.func.attr == "append" and dotted(call.func.value) == name:
            item = call.args[0] if call.args else None
            parts = list(item.elts) if isinstance(item, ast.Tuple | ast.List) else []
            if isinstance(item, ast.Call):
                parts = list(item.args)
            return sum(is_observed(part) for part in parts)
    return 0


RULE = Rule(
    code="LR089",
    name="replay-exceeds-memory",
    severity="warning",
    what="A deque of transitions is longer than the machine has memory for, by the observation space of the source.",
    why="A deque fills one transition at a time. 100,000 of two observations of 120 KB are 24 GB, and the training "
    "dies when most of it is done.",
    example="self.memory = deque(maxlen=1_000_000)   # of 2 × 84×84×4 bytes: 52.6 GiB\n",
    remedy="A smaller maxlen, smaller observations, or lean storage.",
    look=look,
)
