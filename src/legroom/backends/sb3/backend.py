"""Stable-Baselines3 and sb3-contrib behind the seam. Light: what imports the library is imported where it is needed."""

from __future__ import annotations

from legroom.backends.base import Backend
from legroom.backends.sb3.signatures import SB3_ALGORITHMS
from legroom.model.algorithms import Algorithm


class Sb3Backend(Backend):
    name = "sb3"
    title = "SB3"
    extra = "sb3"
    packages = ("stable_baselines3", "safetensors")

    @property
    def algorithms(self) -> tuple[Algorithm, ...]:
        return SB3_ALGORITHMS


BACKEND = Sb3Backend()
