"""Containers of a rehearsed program that grow: a replay in a deque, a list or a dict has no size that is asked for.

Now and then, after an optimizer step, all deques, lists and dicts are counted. One that has grown is told of: how many
elements it has, how many it will have (`maxlen`, or what the source compares its length with), what an element takes,
and who holds it. Nothing of the program is called: attributes are read from instance dictionaries.

Lean buffers of ours fill too, and say themselves how far and with how many bytes.

An element's bytes are those that it adds to its neighbours: the next observation of one transition is often the
observation of the next.
"""

from __future__ import annotations

import ast
import contextlib
import gc
import inspect
import itertools
import os
import sys
import time
from collections import Counter, OrderedDict, defaultdict, deque
from typing import Any, Iterator

from .batch_shapes import ListsUnderWay
from .run_length import NamedValues, UnknownValue, source_tree
from .source_lines import OURS, calls, locals_of

LEAST_ELEMENTS = 64
LEAST_BYTES = 16  # of an element: less is a log of numbers, which takes its time to matter
LOOKED_AT = 48  # elements
MOST_OBJECTS = 20_000  # that are visited for them
EVERY_S, COST_SHARE = 1.0, 20
MALLOC_BYTES = 16  # that glibc keeps beside a block
TENSOR_BYTES = 448  # of a tensor and its storage in C++: 100,000 of them, 2026-11, torch 2.13
TELLER = "legroom_filling_buffers"  # a function of a module: its buffers that fill, as plain data
LEAN_ERROR = 1.5  # what a row takes later, at most, of what it takes now: other policies see other things
_CONTAINERS = frozenset((deque, list, dict, set, OrderedDict, defaultdict, Counter))
_STORING = ("append", "appendleft", "extend", "insert", "push", "add", "setdefault")
_SKIPPED = (type, type(sys), type(lambda: 0), type(len))


class GrowingContainers:
    """Looks for containers that grow, and tells the journal."""

    def __init__(self, journal: Any, total_steps: Any = None) -> None:
        self._journal = journal
        self._total_steps = total_steps  # a function: how many optimizer steps there will be, by how many there were
        self._lengths: dict[int, int] = {}
        self._next = 0.0
        self._about: dict[int, dict[str, Any]] = {}
        self._lists = ListsUnderWay(journal)
        self._stored: dict[int, dict[str, Any]] = {}  # lean buffers at the first look and at the last

    def look(self, steps: int) -> None:
        """Take a look where one is due; called right after an optimizer step."""
        now = time.monotonic()
        if now < self._next or steps < 2:
            return
        began = time.thread_time()
        try:
            self._look(steps)
        except Exception:  # the program goes on, whatever is wrong with us
            self._next = float("inf")
            return
        self._next = time.monotonic() + max(EVERY_S, COST_SHARE * (time.thread_time() - began))

    def _look(self, steps: int) -> None:
        lengths, before, grown, known = {}, self._lengths, [], gc.get_objects()
        containers = itertools.compress(known, map(_CONTAINERS.__contains__, map(type, known)))  # of some 300,000
        for each in itertools.chain(containers, _dicts_in_sight()):
            if len(each) >= LEAST_ELEMENTS and id(each) not in lengths:
                lengths[id(each)] = len(each)
                if len(each) > before.get(id(each), sys.maxsize):
                    grown.append(each)
        with contextlib.suppress(Exception):  # of items that the program has made
            self._lists.look(known)
        self._lengths, resident, told = lengths, _resident(), []
        for each in grown:
            nbytes = element_bytes(each)
            if nbytes >= LEAST_BYTES:
                about = self._about.get(id(each))
                if about is None:
                    about = self._about[id(each)] = _holder(each)
                told.append(
                    {"id": id(each), "type": type(each).__name__, "count": len(each), "before": before[id(each)],
                     "each": nbytes, **about}
                )  # fmt: skip
        told += self._lean_buffers()
        total = self._total_steps(steps) if self._total_steps is not None else None
        self._journal.json("growing", step=steps, resident=resident, containers=told, total_steps=total)

    def _lean_buffers(self) -> list[dict[str, Any]]:
        """Return the lean buffers of ours that have grown: what a row takes is seen, and may yet change."""
        told = []
        found = (getattr(module, "__dict__", {}).get(TELLER) for module in list(sys.modules.values()))
        for now in [each for tell in found if tell is not None for each in tell()]:
            known = self._stored.setdefault(now["id"], {**now, "before": now["count"]})
            before, known["before"] = known["before"], now["count"]
            if now["count"] > before:
                each = max(now["nbytes"] - known["nbytes"], 0) / (now["count"] - known["count"])
                high = min(LEAN_ERROR * each, max(now["plain"], each))
                told.append({**now, "before": before, "each": each, "high": high, "held": "", "file": "", "line": 0})
        return told


def _resident() -> int:
    """Return this process's resident bytes without files; 0 where the kernel does not tell."""
    try:
        with open("/proc/self/statm") as file:
            _, resident, shared = file.read().split()[:3]
    except OSError:
        return 0
    return (int(resident) - int(shared)) * os.sysconf("SC_PAGE_SIZE")


def element_bytes(container: Any) -> float:
    """Return what one more element takes, from the last ones; neighbours may share."""
    values = container.values() if isinstance(container, dict) else container
    ordered = reversed(values) if hasattr(values, "__reversed__") else iter(values)
    last = list(itertools.islice(ordered, LOOKED_AT + 1))
    if len(last) < 2:
        return 0.0
    seen: set[Any] = {id(container)}
    _nbytes(last[0], seen)
    return sum(_nbytes(each, seen) for each in last[1:]) / (len(last) - 1) + 8  # and a pointer to it


def _nbytes(root: Any, seen: set[Any]) -> int:
    """Return the bytes of an object and all that it refers to, without what was seen before."""
    total, waiting = 0, [root]
    while waiting and len(seen) < MOST_OBJECTS:
        each = waiting.pop()
        if id(each) in seen or isinstance(each, _SKIPPED) or each is None:
            continue
        seen.add(id(each))
        if hasattr(each, "__array_interface__") and hasattr(each, "nbytes") and hasattr(each, "base"):
            total += _array_bytes(each, seen)
        elif hasattr(each, "untyped_storage"):
            total += _tensor_bytes(each, seen)
        elif gc.is_tracked(each) or isinstance(each, (bytes, bytearray, str, int, float, tuple)):
            total += _rounded(sys.getsizeof(each))
            waiting += gc.get_referents(each)
    return total


def _array_bytes(array: Any, seen: set[Any]) -> int:
    head = 112
    while getattr(array, "base", None) is not None and hasattr(array.base, "__array_interface__"):
        array = array.base
    if array.base is not None and not hasattr(array.base, "untyped_storage"):  # bytes, a mapping
        return head + (_rounded(sys.getsizeof(array.base)) if _is_new(("object", id(array.base)), seen) else 0)
    where = array.__array_interface__["data"][0]
    return head + (_rounded(array.nbytes) if _is_new(("data", where), seen) else 0)


def _tensor_bytes(tensor: Any, seen: set[Any]) -> int:
    head = TENSOR_BYTES * (1 if tensor._base is None else 2)  # a view keeps the tensor that it is of
    if tensor.device.type != "cpu":
        return head
    storage = tensor.untyped_storage()
    return head + (_rounded(storage.nbytes()) if _is_new(("data", storage.data_ptr()), seen) else 0)


def _is_new(key: Any, seen: set[Any]) -> bool:
    new = key not in seen
    seen.add(key)
    return new


def _rounded(nbytes: int) -> int:
    if nbytes <= 512:  # Python's own allocator
        return (nbytes + 15) // 16 * 16
    return (nbytes + MALLOC_BYTES + 15) // 16 * 16


def _holder(container: Any) -> dict[str, Any]:
    """Return who holds a container (`Agent.memory`), the line that adds to it, and how many elements it may have."""
    most = getattr(container, "maxlen", None)
    for scope, name, owner in _names(container):
        source = _source(owner if owner is not None else scope)
        if source is None:
            continue
        file, tree, first = source
        place = f"self.{name}" if owner is not None else name
        line = _stored_at(tree, place)
        if most is None:
            most = _compared_with(tree, place, scope, owner)
        held = f"{type(owner).__name__}.{name}" if owner is not None else name
        return {"held": held, "file": file, "line": line + first if line else first + 1, "most": most}
    return {"held": "", "file": "", "line": 0, "most": most}


def _names(container: Any) -> Iterator[tuple[Any, str, Any]]:
    """Yield (names that its source can see, its name, its owner or None) of those who hold a container."""
    for holder in gc.get_referrers(container):
        if isinstance(holder, dict):
            owners = [each for each in gc.get_referrers(holder) if _attributes(each) is holder]
        else:
            owners = [holder] if isinstance(_attributes(holder), dict) else []
        for owner in owners:
            name = next((key for key, value in _attributes(owner).items() if value is container), None)
            if isinstance(name, str):
                module = isinstance(owner, type(sys))
                yield (owner if module else sys.modules.get(type(owner).__module__)), name, None if module else owner
    for frame in calls():
        if not frame.f_code.co_filename.startswith(OURS):
            for name, value in locals_of(frame).items():
                if value is container:
                    yield frame, name, None


def _dicts_in_sight() -> Iterator[Any]:
    """Yield the dicts that variables of the calls under way, and attributes of those, are.

    Python's collector does not know dicts of texts and numbers.
    """
    for frame in calls():
        for value in list(locals_of(frame).values()) if not frame.f_code.co_filename.startswith(OURS) else ():
            held = [] if isinstance(value, _SKIPPED) else list((_attributes(value) or {}).values())
            yield from (each for each in (value, *held) if type(each) is dict)


def _attributes(owner: Any) -> Any:
    try:
        return object.__getattribute__(owner, "__dict__")
    except AttributeError:
        return None


def _source(owner: Any) -> tuple[str, Any, int] | None:
    """Return file, syntax tree and lines before it: of a class, a module, or the code of a frame."""
    what = owner.f_code if inspect.isframe(owner) else owner if isinstance(owner, type(sys)) else type(owner)
    if inspect.isframe(owner) and owner.f_code.co_name == "<module>":
        what = sys.modules.get(owner.f_globals.get("__name__", ""), what)
    try:
        file = inspect.getsourcefile(what) or ""
    except TypeError:
        return None
    tree, first = source_tree(what)
    return None if tree is None else (file, tree, first)


def _stored_at(tree: ast.AST, place: str) -> int:
    for node in ast.walk(tree):
        called = node.func if isinstance(node, ast.Call) else None
        if isinstance(called, ast.Attribute) and called.attr in _STORING and ast.unparse(called.value) == place:
            return called.lineno
        if isinstance(node, ast.Subscript) and isinstance(node.ctx, ast.Store) and ast.unparse(node.value) == place:
            return node.lineno
    return 0


def _compared_with(tree: ast.AST, place: str, scope: Any, owner: Any) -> int | None:
    """Return the number that the source compares the container's length with."""
    for node in ast.walk(tree):
        if not isinstance(node, ast.Compare) or len(node.comparators) != 1:
            continue
        for one, other in ((node.left, node.comparators[0]), (node.comparators[0], node.left)):
            if isinstance(one, ast.Call) and ast.unparse(one) == f"len({place})":
                found = _number(other, scope, owner)
                if found is not None and found >= LEAST_ELEMENTS:
                    return found
    return None


def _number(node: ast.AST, scope: Any, owner: Any) -> int | None:
    """Return the value of a number or a dotted name, without calling anything."""
    if not isinstance(node, (ast.Constant, ast.Name, ast.Attribute)):
        return None
    names = (locals_of(scope), scope.f_globals) if inspect.isframe(scope) else ({}, getattr(scope, "__dict__", {}))
    try:
        value = NamedValues(*names if owner is None else ({"self": owner}, names[1])).value(node)
    except UnknownValue:
        return None
    return value if type(value) is int else None
