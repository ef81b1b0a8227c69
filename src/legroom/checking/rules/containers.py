"""Rules about what training loops keep: transitions, networks and snapshots that nothing takes out again."""

from __future__ import annotations

import ast
import math
import re
from collections.abc import Iterable, Iterator

from legroom.checking.boundless import Growing, growing, in_training_loop
from legroom.checking.rule_helpers import of_ram, ram_limit, script_rule, subject_rule
from legroom.checking.torch_sources import loops_of, method_calls, networks, steps_environment
from legroom.model.rule import Found, Subject
from legroom.reading.interpreter.known_values import integer_of, value_of
from legroom.reading.interpreter.script import Script, argument, dotted, last_name
from legroom.reading.interpreter.values import Unfoldable
from legroom.reading.source import walk
from legroom.units import format_size

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
    """Return whether a loop that steps an environment calls the method."""
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


@script_rule("LR096")
def models_kept(script: Script) -> Iterable[Found]:
    """A copy of the network is kept again and again."""
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


BLOCK = 512  # bytes that CUDA's allocator gives a tensor at least
FEW = 1_000


@script_rule("LR097")
def transitions_on_card(script: Script) -> Iterable[Found]:
    """A replay whose transitions are tensors on the card."""
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


_BYTES = {"float32": 4, "float64": 8, "uint8": 1, "int32": 4, "int64": 8, "int8": 1, "float16": 2}


@subject_rule("script", "LR089")
def replay_exceeds(subject: Subject) -> Iterable[Found]:
    """A replay of known length and observations of known size that come to more than there is."""
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
