"""brax behind the seam. Light: what imports jax is imported where it is needed."""

from __future__ import annotations

from typing import TYPE_CHECKING

from legroom.backends.base import Backend
from legroom.backends.brax.signatures import BRAX_ALGORITHMS
from legroom.model.algorithms import Algorithm
from legroom.model.run import Run

if TYPE_CHECKING:
    from legroom.model.rule import Rule


class BraxBackend(Backend):
    name = "brax"
    title = "brax"
    extra = "jax"
    packages = ("jax", "brax", "safetensors")

    @property
    def algorithms(self) -> tuple[Algorithm, ...]:
        return BRAX_ALGORITHMS

    @property
    def run_rules(self) -> tuple[Rule, ...]:
        from legroom.backends.brax.rules import RUN_RULES

        return RUN_RULES

    @property
    def script_rules(self) -> tuple[Rule, ...]:
        from legroom.backends.brax.rules import SCRIPT_RULES

        return SCRIPT_RULES

    def advice_for_full_gpu(self, run: Run) -> str:
        return "fewer environments; legroom fit finds how many"


BACKEND = BraxBackend()
