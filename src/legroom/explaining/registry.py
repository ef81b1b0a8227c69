"""The table of recognisers: one line per family of texts.

The order does not matter. What wins is the rank of a reading and, among equals, its place in the log.
"""

from __future__ import annotations

from legroom.explaining import (
    checkpoint_texts,
    jax_texts,
    killed_texts,
    mps_texts,
    numpy_texts,
    ray_texts,
    scheduler_texts,
    system_texts,
    torch_cuda,
    torch_host,
    worker_texts,
)
from legroom.explaining.reading import Recogniser

RECOGNISERS: tuple[Recogniser, ...] = (
    *numpy_texts.RECOGNISERS,
    *torch_cuda.RECOGNISERS,
    *torch_host.RECOGNISERS,
    *mps_texts.RECOGNISERS,
    *jax_texts.RECOGNISERS,
    *killed_texts.RECOGNISERS,
    *scheduler_texts.RECOGNISERS,
    *ray_texts.RECOGNISERS,
    *worker_texts.RECOGNISERS,
    *system_texts.RECOGNISERS,
    *checkpoint_texts.RECOGNISERS,
)
