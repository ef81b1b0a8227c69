"""brax behind the seam. Light: what imports jax is imported where it is needed."""

from __future__ import annotations

from legroom.backends.base import Backend
from legroom.backends.brax.signatures import BRAX_ALGORITHMS
from legroom.model.algorithms import Algorithm


class BraxBackend(Backend):
    name = "brax"
    title = "brax"
    extra = "jax"
    packages = ("jax", "brax", "safetensors")

    @property
    def algorithms(self) -> tuple[Algorithm, ...]:
        return BRAX_ALGORITHMS


BACKEND = BraxBackend()
