"""RLlib on Ray behind the seam. Its runs are SB3's, translated: algorithms have SB3's names and defaults."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from legroom.backends.base import Backend, algorithm_of
from legroom.backends.rllib.ray_base import RayFigures, ray_figures
from legroom.backends.sb3 import constraints, stored
from legroom.backends.sb3.backend import BACKEND as SB3
from legroom.backends.sb3.signatures import SB3_ALGORITHMS
from legroom.errors import BadInput
from legroom.extras import needs
from legroom.model.evidence import DeviceName, EnvTask, Evidence, Look, Mode
from legroom.model.footprint import Footprint
from legroom.model.machine import Machine
from legroom.model.run import Run

if TYPE_CHECKING:
    from pathlib import Path

    from legroom.model.archive import Exported
    from legroom.model.draft import Draft
    from legroom.model.learner import FailureCause, Learner, Loop
    from legroom.model.rule import Rule
    from legroom.model.task import TrainTask
    from legroom.model.vocabulary import Vocabulary


class RllibBackend(Backend):
    name = "rllib"
    title = "RLlib"
    extra = "ray"
    packages = ("ray", "stable_baselines3", "safetensors")
    libraries = ("ray", *SB3.libraries)
    spreads = True
    algorithms = SB3_ALGORITHMS
    script_packages = ("ray",)
    classes_from = SB3.classes_from

    # ---- reading

    @property
    def vocabulary(self) -> Vocabulary:
        from legroom.backends.rllib.translation import VOCABULARY

        return VOCABULARY

    def script_drafts(self, text: str, path: str) -> list[Draft]:
        from legroom.backends.rllib.script_calls import drafts

        return drafts(text, path)

    # ---- facts

    stored_observation = SB3.stored_observation
    constraints = SB3.constraints

    def hyperparameters(self, run: Run) -> Collection[str]:
        return frozenset(run.hyperparams)  # SB3's words and RLlib's; the translation refuses others

    def unread_memory(self, run: Run) -> Mapping[str, tuple[str, str]]:
        algorithm = algorithm_of(run).name
        buffers = {
            key: (f"memory.{key} has no effect with {algorithm} on rllib, which has no such buffer", "")
            for key in ("rollout", "replay")
        }
        pieces = (f"memory.micro_batch has no effect with {algorithm}", constraints.ONLY_IN_PIECES)
        return buffers | {"micro_batch": pieces} | constraints.unread_by_torch(run)

    # ---- predicting

    def env_task(self, run: Run) -> EnvTask:
        return EnvTask(loaded=stored.LOADED)

    def base_figures(self, run: Run, device: DeviceName, *, measure: bool) -> RayFigures:
        return ray_figures(measure=measure, device=device)

    def look(self, runs: Sequence[Run], devices: Sequence[DeviceName], machine: Machine, mode: Mode) -> list[Look]:
        from legroom.backends.rllib.items import shadow_of

        return SB3.look([shadow_of(run) for run in runs], devices, machine, mode)

    def footprint(self, run: Run, evidence: Evidence) -> Footprint:
        from legroom.backends.rllib.items import on_one_machine

        return on_one_machine(run, evidence)

    # ---- checking

    @property
    def script_rules(self) -> tuple[Rule, ...]:
        from legroom.backends.rllib import script_calls
        from legroom.checking.rule_helpers import rules_in

        return rules_in(script_calls)

    def follows(self, script: Any) -> bool | None:
        from legroom.backends.rllib.script_calls import follows

        return follows(script)

    label = SB3.label

    def advice_for_full_gpu(self, run: Run) -> str:
        return "a smaller batch_size or network"

    # ---- the page: as SB3 has it; fitting does not turn RLlib's settings

    settings = SB3.settings

    # ---- archives

    def export(self, directory: Path, archive: Path, *, force: bool, trust: bool) -> Exported:
        with needs("sb3", what="an export"):
            from legroom.backends.rllib.exporting import export_rllib

        return export_rllib(directory, archive, force=force, trust=trust)

    # ---- training

    export_file, export_use = SB3.export_file, SB3.export_use
    child_environment = SB3.child_environment

    def refuse_training(self, run: Run, *, fit: bool, resume: bool, pictures: bool) -> None:
        from legroom.backends.rllib.translation import rllib_plan

        rllib_plan(run)
        if fit:
            raise BadInput(
                "--fit cannot change RLlib's settings", hint="leave --fit out; legroom predict says what it needs"
            )
        if pictures:
            raise BadInput("--visualization draws what SB3 and brax train, not RLlib", hint="remove it")

    def with_memory_requests(self, run: Run, seen: Run, evidence: Evidence) -> Run:
        from legroom.backends.rllib.items import runner_request

        if run.memory.runner_bytes is not None:
            return run
        memory = run.memory.model_copy(update={"runner_bytes": runner_request(seen, evidence)})
        return run.replace(memory=memory)

    def learner(self, task: TrainTask, loop: Loop) -> Learner:
        from legroom.backends.rllib.training import RllibLearner

        return RllibLearner(task, loop)

    def failure_cause(self, error: Exception) -> FailureCause:
        from legroom.backends.rllib.training import failure_cause

        return failure_cause(error)


BACKEND = RllibBackend()
