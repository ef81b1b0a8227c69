"""What batches of a DataLoader are like: their kinds, and the largest of each kind.

A kind is the structure of a batch: its containers and keys, the types and the number of dimensions of its tensors. The
largest of a kind need not be one batch: the longest sequence and the most items may be in different ones, and memory
may grow with the square of a length. So the batch with the most bytes counts, the one with the largest of each
dimension that varies, and the one with the largest product of both. Lengths may also be values: of text, and of small
integer tensors.

A program may also go through a list of its own. Where the items of one that it is in differ in shape, the parent is
told how far it has come, and whether the largest have.
"""

from __future__ import annotations

import gc
from collections.abc import Mapping
from itertools import compress
from typing import Any

from .source_lines import where

DEEPEST = 6
MOST_VALUES = 4096  # of an integer tensor that may be lengths
MOST_KINDS = 24
LEAST_LISTED, MOST_LISTED = 8, 20_000  # items of a list that is looked at
_ITERATORS = frozenset(map(type, map(iter, ([], (), {}, {}.values(), {}.items()))))


class BatchKinds:
    """The kinds of batches seen so far; of each batch only its index is kept, and of few."""

    def __init__(self) -> None:
        self._kinds: dict[Any, _Kind] = {}
        self.least_items = 1 << 62

    def add(self, batch: Any, index: Any) -> None:
        """Look at one batch, which `index` brings back."""
        kind, shape, values, nbytes = look_at(batch)
        items = len(index) if isinstance(index, (list, tuple)) else 1
        self.least_items = min(self.least_items, items)
        known = self._kinds.get(kind)
        if known is None:
            known = self._kinds[kind] = _Kind()
        known.add(shape, values, nbytes, items, index)

    @property
    def alike(self) -> bool:
        """Whether all batches of as many items had the same shapes."""
        return len(self._kinds) == 1 and all(kind.alike for kind in self._kinds.values())

    def largest(self) -> list[Any]:
        """Return the indices of the largest batches of each kind, each once."""
        return list({id(index): index for kind in self._kinds.values() for index in kind.largest()}.values())


class _Kind:
    """Batches of one structure."""

    def __init__(self) -> None:
        self._shapes: dict[int, Any] = {}  # by the number of items
        self._low: list[float] = []
        self._high: list[float] = []
        self._best: dict[Any, tuple[Any, Any]] = {}
        self.alike = True

    def add(self, shape: list[float], values: list[float], nbytes: float, items: int, index: Any) -> None:
        if len(self._shapes) < MOST_KINDS:
            self.alike = self.alike and self._shapes.setdefault(items, shape) == shape
        numbers = [*shape, *values]
        if not self._best:
            self._low, self._high = list(numbers), list(numbers)
        self._low, self._high = list(map(min, self._low, numbers)), list(map(max, self._high, numbers))
        self._try(-1, (nbytes,), index)
        for place, number in enumerate(numbers):
            self._try(place, (number, nbytes), index)
            self._try((place, "squared"), (number * nbytes,), index)

    def _try(self, rule: Any, score: Any, index: Any) -> None:
        best = self._best.get(rule)
        if best is None or score > best[0]:
            self._best[rule] = score, index

    def largest(self) -> list[Any]:
        varying = [place for place, low in enumerate(self._low) if low < self._high[place]]
        rules = [-1, *varying, *((place, "squared") for place in varying)]
        return [self._best[rule][1] for rule in rules]


def look_at(batch: Any, depth: int = 0) -> Any:
    """Return kind, dimensions, values that may be lengths, and bytes of a batch; nothing of it is kept."""
    if _is_array(batch):
        return _tensor(batch)
    if isinstance(batch, (str, bytes)):
        return "text", [], [float(len(batch))], float(len(batch))
    if type(batch) is int:
        return "int", [], [float(batch)], 0.0
    if depth < DEEPEST:
        if isinstance(batch, (list, tuple)):
            return _sequence([look_at(each, depth + 1) for each in batch])
        if not isinstance(batch, Mapping) and hasattr(batch, "__dict__") and not callable(batch):
            batch = vars(batch)
        if isinstance(batch, Mapping):
            keys = sorted(batch, key=str)
            kind, *rest = _joined([look_at(batch[key], depth + 1) for key in keys])
            return (tuple(map(str, keys)), kind), *rest
    return type(batch).__name__, [], [], 0.0


def _is_array(each: Any) -> bool:
    return isinstance(getattr(each, "shape", None), tuple) and hasattr(each, "dtype")


def _tensor(tensor: Any) -> Any:
    shape = [float(each) for each in tensor.shape]
    count, values = 1.0, []
    for each in shape:
        count *= each
    dtype = str(tensor.dtype)
    if "int" in dtype and len(shape) == 1 and 0 < count <= MOST_VALUES and getattr(tensor, "is_cpu", True):
        values = [float(tensor.max()), float(tensor.sum())]
    return (dtype, len(shape)), shape, values, count * getattr(tensor.dtype, "itemsize", 1)


def _sequence(looks: list[Any]) -> Any:
    """Return several of one kind as one: how many, and the largest and the sum of each number."""
    kinds = {kind for kind, *_ in looks}
    if len(kinds) != 1:
        return _joined(looks)
    shapes, values = ([list(map(float, column)) for column in zip(*part)] for part in list(zip(*looks))[1:3])
    of_each, of_all = [max(column) for column in shapes], [sum(column) for column in shapes]
    shape = [float(len(looks)), *of_each, *of_all]
    return ("each", *kinds), shape, [max(column) for column in values], sum(look[3] for look in looks)


def _joined(looks: list[Any]) -> Any:
    kinds, shapes, values = tuple(look[0] for look in looks), [], []
    for _, shape, value, _ in looks:
        shapes += shape
        values += value
    return kinds, shapes, values, sum(look[3] for look in looks)


class ListsUnderWay:
    """Lists, tuples and dicts that the program goes through while it trains, and how far it has come."""

    def __init__(self, journal: Any) -> None:
        self._journal = journal
        self._largest: dict[tuple[int, int], int] = {}  # by list and its length: the place of the last of its largest
        self._come: dict[tuple[int, int], int] = {}

    def look(self, objects: list[Any]) -> None:
        """Look at those that any of Python's objects goes through now."""
        # in C: there are some hundred thousand of them, and what a look takes decides when the next one comes
        for each in compress(objects, map(_ITERATORS.__contains__, map(type, objects))):
            items = next((one for one in gc.get_referents(each) if isinstance(one, (list, tuple, dict))), None)
            if items is None or not LEAST_LISTED <= len(items) <= MOST_LISTED:
                continue
            key = id(items), len(items)
            if key not in self._largest:
                self._largest[key] = _last_of_largest(items)
            if self._largest[key] >= 0:
                self._tell(key, len(items) - each.__length_hint__())

    def _tell(self, key: tuple[int, int], come: int) -> None:
        before = self._come.get(key, 0)
        if come > self._largest[key] or come < before:  # another pass, so that all have come
            come, self._largest[key] = key[1], -1
        if come != before:
            self._come[key] = come
            file, line = where()
            self._journal.json(
                "batches", file=file, line=line, seen=come, total=key[1], alike=False, ends=True, list=key[0]
            )


def _last_of_largest(items: Any) -> int:
    """Return the place of the last item that is the largest of its kind; -1 where all are alike, or are no arrays."""
    kinds, values = BatchKinds(), list(items.values() if isinstance(items, dict) else items)
    if not all(map(_has_arrays, values)):
        return -1
    for place, each in enumerate(values):
        kinds.add(each, place)
    return -1 if kinds.alike else max(kinds.largest())


def _has_arrays(item: Any) -> bool:
    """Return whether an item of a list is an array, or a container with one."""
    inside = item.values() if isinstance(item, dict) else item if isinstance(item, (list, tuple)) else ()
    return _is_array(item) or any(map(_is_array, inside))
