"""Values that changed between two files and that memory may depend on, by their names.

For programs in which no run can be read, and for what a run's bill does not explain. The values of both files are
aligned as lines of a diff are, so an argument that was inserted does not shift those after it. Only values whose name
is one that people give to sizes count. How many bytes they make is not known here.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Sequence
from difflib import SequenceMatcher
from typing import Any

from legroom.comparing.differences import Cause
from legroom.comparing.size_names import matters
from legroom.comparing.written_values import Formula, Named, written_values
from legroom.errors import BadInput

Pair = tuple[str, Any, Any]

MOST_COMPARED = 4_000_000  # pairs of values; with more, only names are compared
_TEXT_COUNTS = re.compile(r"dtype|precision|amp", re.IGNORECASE)  # dtype: float16


def changed_values(old: str, new: str, *, paths: tuple[str, str]) -> list[Cause]:
    """Return the values whose names are of sizes and that differ between two texts.

    Those that changed come first, the largest ratio before others; then those that are in one text only.

    Raises:
        BadInput: one text is not what its path's ending says; where neither is (Python 2, a template), lines are read.
    """
    try:
        first = _sizes(old, paths[0])
    except BadInput:
        if _is_readable(new, paths[1]):
            raise
        first, paths = _sizes(old, ""), ("", "")
    changed, removed, added = _aligned(first, _sizes(new, paths[1]))
    moved, removed, added = _joined(removed, added)
    causes = [Cause(key, before, after, None) for key, before, after in (*changed, *moved) if _differ(before, after)]
    causes.sort(key=lambda cause: -_ratio(cause.before, cause.after))
    causes += [Cause(key, value, None, None) for key, value in removed if _is_number(value)]
    causes += [Cause(key, None, value, None) for key, value in added if _is_number(value)]
    return list({(each.key, str(each.before), str(each.after)): each for each in causes}.values())


def _is_readable(text: str, path: str) -> bool:
    try:
        written_values(text, path)
    except BadInput:
        return False
    return True


def _sizes(text: str, path: str) -> list[Named]:
    """Return what may be a size: numbers and expressions under such a name, and data types."""
    found = []
    for key, value in written_values(text, path):
        if isinstance(value, str) and _TEXT_COUNTS.search(key):
            found.append((key, str(value)))
        elif matters(key) and (isinstance(value, Formula) or not isinstance(value, str)):
            found.append((key, value))
    return found


def _ratio(before: Any, after: Any) -> float:
    """Return how many times one is the other, 1 where they are not two numbers."""
    if not all(isinstance(value, int | float) and value > 0 for value in (before, after)):
        return 1.0
    return float(max(before / after, after / before))


def _is_number(value: Any) -> bool:
    """Return whether a value that came or went says a size: a data type does so only where it replaced another."""
    return bool(value.numbers) if isinstance(value, Formula) else not isinstance(value, str)


def _differ(before: Any, after: Any) -> bool:
    """Return whether a change may be one of a size; two expressions are, where their numbers differ."""
    if isinstance(before, Formula) and isinstance(after, Formula):
        return before.numbers != after.numbers
    return bool(before != after)


def _aligned(old: Sequence[Named], new: Sequence[Named]) -> tuple[list[Pair], list[Named], list[Named]]:
    """Return (key, before, after) of what stands in the same place, what was removed, and what was added."""
    if len(old) * len(new) > MOST_COMPARED:
        return _joined(old, new)
    first, second = ([(_whole(key), str(value)) for key, value in side] for side in (old, new))
    changed: list[Pair] = []
    removed: list[Named] = []
    added: list[Named] = []
    for kind, i, i_end, j, j_end in SequenceMatcher(None, first, second, autojunk=False).get_opcodes():
        if kind != "equal":
            pairs, gone, come = _joined(old[i:i_end], new[j:j_end])
            changed += pairs
            removed += gone
            added += come
    return changed, removed, added


def _joined(old: Sequence[Named], new: Sequence[Named]) -> tuple[list[Pair], list[Named], list[Named]]:
    """Return pairs of the same name in order, equal values first, and what is left on each side."""
    waiting: defaultdict[str, list[Named]] = defaultdict(list)
    for one in old:
        waiting[_whole(one[0])].append(one)
    pairs: list[Pair] = []
    left: list[Named] = []
    for only_equal in (True, False):
        left = []
        for key, value in new:
            others = waiting[_whole(key)]
            equal = next((other for other in others if str(other[1]) == str(value)), None)
            other = equal if only_equal or equal is not None else next(iter(others), None)
            if other is None:
                left.append((key, value))
                continue
            others.remove(other)
            pairs.append((key, other[1], value))
        new = left
    return pairs, _flat(waiting.values()), left


def _flat(lists: Iterable[list[Named]]) -> list[Named]:
    return [one for each in lists for one in each]


def _whole(key: str) -> str:
    return key.replace("-", "_").lower()
