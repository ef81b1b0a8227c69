"""RLlib on Ray behind the seam. Its runs are SB3's, translated: algorithms have SB3's names and defaults."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from legroom.backends import base
from legroom.backends.base import algorithm_of, lazily
from legroom.backends.sb3 import constraints as rules
from legroom.backends.sb3 import stored
from legroom.backends.sb3.backend import BACKEND as SB3
from legroom.backends.sb3.signatures import SB3_ALGORITHMS
from legroom.errors import BadInput
from legroom.extras import needs
from legroom.model.evidence import DeviceName, EnvTask, Evidence, Look, Mode, Values
from legroom.model.machine import Machine
from legroom.model.run import Run

if TYPE_CHECKING:
    from pathlib import Path

    from legroom.model.learner import Exported

ROOM = "legroom.backends.rllib"
TRAINERS = ("Config", "Trainer", "tune.run", "Tuner", "PPO", "DQN", "SAC", "IMPALA", "APPO")


class RllibReader(base.BackendReader):
    vocabulary = lazily(f"{ROOM}.translation:VOCABULARY")


class RllibPredictor(base.BackendPredictor):
    checks_hyperparams = False  # the translation says what has no counterpart
    storage = SB3.predictor.storage
    constraints = staticmethod(rules.constraints)
    footprint = lazily(f"{ROOM}.items:on_one_machine")
    base_figures = lazily(f"{ROOM}.items:ray_figures")

    def unread_memory(self, run: Run) -> Mapping[str, tuple[str, str]]:
        algorithm = algorithm_of(run).name
        buffers = {
            key: (f"memory.{key} has no effect with {algorithm} on rllib, which has no such buffer", "")
            for key in ("rollout", "replay")
        }
        pieces = (f"memory.micro_batch has no effect with {algorithm}", rules.ONLY_IN_PIECES)
        return buffers | {"micro_batch": pieces} | rules.unread_by_torch(run)

    def env_task(self, run: Run) -> EnvTask:
        return EnvTask(loaded=stored.LOADED)

    def look(
        self,
        runs: Sequence[Run],
        devices: Sequence[DeviceName],
        machine: Machine,
        mode: Mode,
        values: Values = "refuse",
        progress: Callable[[str], None] = lambda text: None,
    ) -> list[Look]:
        from legroom.backends.rllib.items import shadow_of

        return SB3.predictor.look([shadow_of(run) for run in runs], devices, machine, mode)


class RllibChecker(base.BackendChecker):
    advice_for_full_gpu = "a smaller batch_size or network"

    def follows(self, script: Any) -> bool | None:
        """Return False where the script trains with Ray: its settings are not read."""
        called = (script.qualified(call.func) or "" for call in script.calls if script.imports("ray"))
        return False if any(name.startswith("ray.") and name.endswith(TRAINERS) for name in called) else None


class RllibFitter(base.BackendFitter):
    """The page shows SB3's settings; fitting does not turn RLlib's."""

    settings = SB3.fitter.settings


class RllibTrainer(base.BackendTrainer):
    export_file, export_use = SB3.trainer.export_file, SB3.trainer.export_use
    child_environment = SB3.trainer.child_environment
    failure_cause = lazily(f"{ROOM}.training:failure_cause")
    learner = lazily(f"{ROOM}.training:RllibLearner")

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

    def export(self, directory: Path, archive: Path, *, force: bool, trust: bool) -> Exported:
        with needs("sb3", what="an export"):
            from legroom.backends.rllib.exporting import export_rllib

        return export_rllib(directory, archive, force=force, trust=trust)


BACKEND = base.Backend(
    name="rllib",
    title="RLlib",
    extra="ray",
    packages=("ray", "stable_baselines3", "safetensors"),
    libraries=("ray", *SB3.libraries),
    spreads=True,
    in_headings=False,
    algorithms=SB3_ALGORITHMS,
    script_packages=("ray",),
    classes_from=SB3.classes_from,
    reader=RllibReader(),
    predictor=RllibPredictor(),
    checker=RllibChecker(),
    fitter=RllibFitter(),
    trainer=RllibTrainer(),
)
