"""Which exceptions mean that XLA could not allocate: it has a word of its own for it, and C++ another."""

from __future__ import annotations

WORDS = ("RESOURCE_EXHAUSTED", "Out of memory", "out of memory", "bad_alloc")  # the last while tracing and compiling


def is_out_of_memory(error: BaseException) -> bool:
    """Return whether the exception is a failed allocation; what a program had been given (donated) is gone then."""
    if isinstance(error, MemoryError):
        return True
    # jax's own exception is a RuntimeError, and what its bindings raise is nothing more
    return isinstance(error, RuntimeError) and any(word in str(error) for word in WORDS)
