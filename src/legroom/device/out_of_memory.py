"""Which exceptions mean that an allocation failed: each library has its own way to say it."""

from __future__ import annotations

import torch

# torch's CPU allocator raises a bare RuntimeError; so do old CUDA builds and libraries on top of CUDA.
WORDS = (
    "DefaultCPUAllocator", "out of memory", "CUBLAS_STATUS_ALLOC_FAILED", "CUDNN_STATUS_ALLOC_FAILED",
    "could not create a memory object", "could not create a primitive", "could not execute a primitive",  # oneDNN
    "not enough memory",
)  # fmt: skip


def is_out_of_memory(error: BaseException) -> bool:
    """Return whether the exception is a failed allocation, on the host or on the GPU."""
    if isinstance(error, MemoryError | torch.OutOfMemoryError):
        return True
    return isinstance(error, RuntimeError) and any(word in str(error) for word in WORDS)
