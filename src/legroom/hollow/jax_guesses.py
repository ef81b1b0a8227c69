"""Which arrays of a rehearsed JAX program are zeros because they were not computed, and where the program reads one.

A function that is not run returns zeros. Losses and observations may be that; a whole number or a truth that the
program reads decides what it does next, and perhaps how much memory it takes. So such arrays are remembered, with what
small functions make of them, and where Python takes the value of one, that is told. Asserts are left out: with another
value the program would have ended. So is a whole state that is copied to the host, to be kept or saved: nothing is
decided there.

Values that NumPy takes from an array's memory by itself, and fractions, are not noticed.

Mirrors `ArrayImpl._value`, `device_get` and `tree_map` of jax 0.4.19 to 0.9.

A step count or the fill of a replay buffer is looked at, and programs stop where it is zero: brax asserts both. Such a
number depends on little of the function, so all else is taken out of it, loops included, and the rest is run.

Mirrors `jax._src.interpreters.partial_eval.dce_jaxpr` of jax 0.4.19 to 0.9.
"""

from __future__ import annotations

import itertools
import linecache
import weakref
from typing import Any, Callable, Dict, Iterable, List, Tuple

from .source_lines import calls, where

MOST_BYTES = 64  # of what a program can look at to decide something, also where devices or seeds are an axis
FRAMES = 12  # from the array's method up to the statement that asks
STATE_BYTES = 1 << 20  # of a tree that nobody copies to look at
COPIES = {"device_get": "x", "tree_map": "tree"}  # of whole trees, with their argument
Place = Tuple[str, int]


class Guesses:
    """The arrays that are zeros instead of values, each with the function that did not compute it."""

    def __init__(self, journal: Any) -> None:
        self._journal = journal
        self._names: Dict[int, str] = {}
        self._told: set[Place] = set()

    def watch(self, array_type: Any) -> None:
        """Notice where the values of arrays are taken."""
        value = array_type._value.fget

        def taken(array: Any) -> Any:
            if id(array) in self._names:
                self._tell(array)
            return value(array)

        array_type._value = property(taken)

    def add(self, arrays: Iterable[Any], name: str) -> None:
        """Remember that these are guessed."""
        for array in arrays:
            try:
                weakref.finalize(array, self._names.pop, id(array), None).atexit = False
            except TypeError:  # keys of random numbers, which are not read
                continue
            self._names[id(array)] = name

    def among(self, arrays: Iterable[Any]) -> str:
        """Return the function that did not compute one of these; empty where all are known."""
        return next((self._names[id(array)] for array in arrays if id(array) in self._names), "")

    def _tell(self, array: Any) -> None:
        if array.dtype.kind not in "iub" or array.size * array.dtype.itemsize > MOST_BYTES or _decides_nothing():
            return
        at = where()
        if at in self._told:
            return
        self._told.add(at)
        what = f"{array.dtype} that {self._names[id(array)]} returns is read here; it was not computed, 0 was assumed"
        self._journal.json("unmodelled", what=what, file=at[0], line=at[1])


def _decides_nothing() -> bool:
    """Return whether it is an assert that asks, or a copy of a whole state."""
    from jax.tree_util import tree_leaves  # jax is there by now

    for frame in itertools.islice(calls(), 2, FRAMES + 2):
        code = frame.f_code
        if linecache.getline(code.co_filename, frame.f_lineno).lstrip().startswith("assert"):
            return True
        tree = frame.f_locals.get(COPIES.get(code.co_name, "")) if "/jax/_src/" in code.co_filename else None
        if tree is not None and sum(getattr(leaf, "nbytes", 0) for leaf in tree_leaves(tree)) >= STATE_BYTES:
            return True
    return False


MOST_COUNTERS = 64  # that are looked at
MOST_OPERATIONS = 1e7

Counters = Tuple[List[int], List[bool], Any]  # numbers of results, which arguments they take, the function


def counters_of(jax: Any, closed: Any, operations: Callable[[Any], float]) -> Counters | None:
    """Return what gives the integers among a function's results that need little of it; None where there are none.

    Args:
        operations: about how much a jaxpr computes.
    """
    from jax._src import core
    from jax._src.interpreters import partial_eval

    count = len(closed.out_avals)

    def alone(numbers: List[int]) -> Any:
        return partial_eval.dce_jaxpr(closed.jaxpr, [each in numbers for each in range(count)])

    wanted = [number for number, aval in enumerate(closed.out_avals) if _counts(aval)][:MOST_COUNTERS]
    cheap = []
    for number in wanted:
        jaxpr, _ = alone([number])
        if not jaxpr.effects and operations(jaxpr) <= MOST_OPERATIONS:
            cheap.append(number)
    if not cheap:
        return None
    jaxpr, used = alone(cheap)
    return cheap, used, jax.jit(lambda *args: core.eval_jaxpr(jaxpr, closed.consts, *args))


def _counts(aval: Any) -> bool:
    kind = getattr(getattr(aval, "dtype", None), "kind", "")
    return kind in ("i", "u", "b") and 0 < aval.size * aval.dtype.itemsize <= MOST_BYTES  # states have empty arrays
