"""RLlib on Ray behind the seam. Its runs are SB3's, translated: algorithms have SB3's names and defaults."""

from __future__ import annotations

from legroom.backends.base import Backend
from legroom.backends.sb3.signatures import SB3_ALGORITHMS
from legroom.model.algorithms import Algorithm


class RllibBackend(Backend):
    name = "rllib"
    title = "RLlib"
    extra = "ray"
    packages = ("ray", "stable_baselines3", "safetensors")

    @property
    def algorithms(self) -> tuple[Algorithm, ...]:
        return SB3_ALGORITHMS


BACKEND = RllibBackend()
