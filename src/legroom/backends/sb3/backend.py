"""Stable-Baselines3 and sb3-contrib behind the seam. Light: what imports the library is imported where it is needed."""

from __future__ import annotations

from typing import TYPE_CHECKING

from legroom.backends.base import Backend, algorithm_of
from legroom.backends.sb3.signatures import SB3_ALGORITHMS
from legroom.model.algorithms import Algorithm
from legroom.model.run import Run

if TYPE_CHECKING:
    from legroom.model.rule import Rule


class Sb3Backend(Backend):
    name = "sb3"
    title = "SB3"
    extra = "sb3"
    packages = ("stable_baselines3", "safetensors")

    @property
    def algorithms(self) -> tuple[Algorithm, ...]:
        return SB3_ALGORITHMS

    @property
    def run_rules(self) -> tuple[Rule, ...]:
        from legroom.backends.sb3.rules import RUN_RULES

        return RUN_RULES

    @property
    def script_rules(self) -> tuple[Rule, ...]:
        from legroom.backends.sb3.rules import SCRIPT_RULES

        return SCRIPT_RULES

    def advice_for_full_gpu(self, run: Run) -> str:
        from legroom.backends.sb3.stored import MICRO_BATCHED

        if algorithm_of(run).name in MICRO_BATCHED and not run.memory.micro_batch:
            return "memory: {micro_batch: ...} gives the same gradient in pieces; legroom fit finds the size"
        return super().advice_for_full_gpu(run)


BACKEND = Sb3Backend()
