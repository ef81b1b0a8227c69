"""brax behind the seam. Light: what imports jax is imported where it is needed."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING

from legroom.backends.base import Backend, hyper
from legroom.backends.brax.facts import LAYERS, is_ppo
from legroom.backends.brax.signatures import BRAX_ALGORITHMS
from legroom.model.algorithms import Algorithm
from legroom.model.evidence import Evidence
from legroom.model.footprint import Footprint
from legroom.model.knob import Growth, Knob
from legroom.model.plan import MostEnvs, Plan
from legroom.model.run import Run

if TYPE_CHECKING:
    from legroom.model.counts import Counts
    from legroom.model.rule import Rule
    from legroom.model.subject import SubjectRun


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

    def counts(self, run: Run) -> Counts | None:
        from legroom.backends.brax.checking import counts

        return counts(run)

    def confirmations(self, one: SubjectRun) -> Iterable[tuple[str, str]]:
        from legroom.backends.brax.checking import confirmations

        return confirmations(one)

    def advice_for_full_gpu(self, run: Run) -> str:
        return "fewer environments; legroom fit finds how many"

    # Fitting; what the compiler said of a run holds for all its variants, so that evidence has one key

    @property
    def knobs(self) -> tuple[Knob, ...]:
        from legroom.backends.brax.knobs import BRAX_KNOBS

        return BRAX_KNOBS

    def with_free_savings(self, run: Run, evidence: Evidence) -> Run:
        from legroom.backends.brax.knobs import with_free_savings

        return with_free_savings(run, evidence)

    def ways_to_grow(self, run: Run) -> tuple[Growth, ...]:
        from legroom.backends.brax.growth import ways_to_grow

        return ways_to_grow(run)

    def with_most_envs(self, plan: Plan, footprint: Callable[[Run], Footprint], cap: int | None) -> MostEnvs | None:
        from legroom.backends.brax.growth import with_most_envs

        return with_most_envs(plan, footprint, cap) if is_ppo(plan.run) else None

    def keeps_data_per_update(self, before: Run, after: Run) -> bool:
        from legroom.backends.brax.ladders import keeps_data_per_update

        return keeps_data_per_update(before, after)

    def gradient_step(self, run: Run) -> tuple[int, int | None]:
        return int(hyper(run, "batch_size")), hyper(run, "num_minibatches") if is_ppo(run) else None

    # The page

    last_stops: Mapping[str, int] = {"env.n_envs": 16_384}

    def layers(self, run: Run) -> Mapping[str, str]:
        return {name: name.replace("_", " ") for name in LAYERS if run.policy.kwargs.get(name) is not None}

    def settings(self, run: Run) -> tuple[str, ...]:
        names = ("activation_checkpointing", "shared_data", "xla_preallocate", "env_chunk")
        return tuple(f"memory.{name}" for name in names)


BACKEND = BraxBackend()
