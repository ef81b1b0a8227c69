"""What a large JAX function counts, computed without the function: programs look at it and stop where it is zero.

The results of a function that is not run are zeros. Most are never looked at, but a step count or the fill of a replay
buffer is: brax asserts both. Such a number depends on little of the function, so all else is taken out of it, loops
included, and the rest is run.

Mirrors `jax._src.interpreters.partial_eval.dce_jaxpr` of jax 0.4.19 to 0.9.
"""

from __future__ import annotations

from typing import Any, Callable, List, Tuple

MOST_BYTES = 64  # of one number, also where devices or seeds are an axis
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
