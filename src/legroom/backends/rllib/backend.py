"""RLlib on Ray behind the seam. Its runs are SB3's, translated: algorithms have SB3's names and defaults."""

from __future__ import annotations

from typing import TYPE_CHECKING

from legroom.backends.base import Backend
from legroom.backends.sb3.backend import BACKEND as SB3
from legroom.backends.sb3.signatures import SB3_ALGORITHMS
from legroom.model.algorithms import Algorithm
from legroom.model.knob import Knob
from legroom.model.run import Run

if TYPE_CHECKING:
    from legroom.model.rule import Rule


class RllibBackend(Backend):
    name = "rllib"
    title = "RLlib"
    extra = "ray"
    packages = ("ray", "stable_baselines3", "safetensors")

    @property
    def algorithms(self) -> tuple[Algorithm, ...]:
        return SB3_ALGORITHMS

    @property
    def script_rules(self) -> tuple[Rule, ...]:
        from legroom.backends.rllib.rules import SCRIPT_RULES

        return SCRIPT_RULES

    def label(self, run: Run) -> str:
        return run.algo

    def advice_for_full_gpu(self, run: Run) -> str:
        return SB3.advice_for_full_gpu(run)

    # Fitting and the page: as SB3 has it, as far as it means the same

    must_hold = SB3.must_hold
    with_free_savings = SB3.with_free_savings
    ways_to_grow = SB3.ways_to_grow
    gradient_step = SB3.gradient_step
    mended = SB3.mended
    evidence_key = SB3.evidence_key
    estimate_net = SB3.estimate_net
    settings = SB3.settings

    @property
    def knobs(self) -> tuple[Knob, ...]:
        from legroom.backends.rllib.knobs import RLLIB_KNOBS

        return RLLIB_KNOBS


BACKEND = RllibBackend()
