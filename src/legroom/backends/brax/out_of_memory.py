"""Which exceptions mean that XLA could not allocate: on a card and on the host it says so with one word."""

from __future__ import annotations

import jax

WORDS = ("RESOURCE_EXHAUSTED", "Out of memory", "out of memory")


def is_out_of_memory(error: BaseException) -> bool:
    """Return whether the exception is a failed allocation; what a program had been given (donated) is gone then."""
    if isinstance(error, MemoryError):
        return True
    return isinstance(error, jax.errors.JaxRuntimeError) and any(word in str(error) for word in WORDS)
