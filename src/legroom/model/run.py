"""The Run: what the user wants to train, normalised once.

`reading` makes it from whatever the user has; everything after that takes it as it is. `None` in `memory` means
*as the library does it*; a value means that legroom arranges it. Its JSON schema is what `legroom schema` prints.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, field_validator

from legroom.model.spaces import Space
from legroom.units import LARGEST

Count = Annotated[int, Field(ge=1, le=LARGEST)]
Backend = Literal["sb3", "brax", "rllib"]
Device = Literal["auto", "cpu", "cuda"]


class _Part(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class Spaces(_Part):
    """What one environment shows and takes, before any wrapper of the run file (frame stack, transposition)."""

    observation: Space
    action: Space


class EnvSpec(_Part):
    """The environment and how many of it run where."""

    id: str | None = Field(None, description="gymnasium id, or module:attr")
    kwargs: dict[str, Any] = Field(default_factory=dict)
    n_envs: Count = 1
    workers: Literal["dummy", "subproc", "light"] = Field(
        "dummy", description="dummy: in the training process; subproc: SB3's worker processes; light: torch-free workers"
    )
    envs_per_worker: Count = 1
    start_method: Literal["fork", "forkserver", "spawn"] | None = None
    spaces: Spaces | None = Field(None, description="declared spaces; taken from the environment when left out")
    wrappers: tuple[str | dict[str, Any], ...] = ()
    frame_stack: Count | None = None
    normalize: bool | dict[str, Any] = False
    episode_steps: Count | None = Field(None, description="steps in a typical episode, where known")
    nbytes: Annotated[int, Field(ge=0, le=LARGEST)] | None = Field(
        None, description="memory of one environment instance, where known"
    )
    grid: Literal["data"] | tuple[Count, ...] | None = Field(
        None, description="size the workload's data is aggregated to; 'data' keeps the data's own"
    )


class PolicySpec(_Part):
    """The networks: SB3's policy name and policy_kwargs, the extractor named so that it need not be imported."""

    name: str = "MlpPolicy"
    kwargs: dict[str, Any] = Field(default_factory=dict)
    features_extractor: str | None = Field(None, description="module:Class")
    features_extractor_kwargs: dict[str, Any] = Field(default_factory=dict)


class MemorySpec(_Part):
    """One key for every memory knob that is not a hyperparameter; None is what the library does by itself."""

    rollout: Literal["plain", "lean"] | None = None
    replay: Literal["plain", "lean"] | None = None
    micro_batch: Count | tuple[tuple[Annotated[int, Field(ge=0)], Count], ...] | None = Field(
        None, description="samples per forward and backward pass; or [[from_update, size], ...]"
    )
    activation_checkpointing: bool | None = None
    foreach: bool | None = Field(None, description="False: the optimizer updates one tensor at a time")
    expandable_segments: bool | None = None
    max_split_size_mb: Annotated[int, Field(ge=20)] | None = None
    empty_cache_every: Count | None = None
    bf16: bool | None = None
    max_bytes: Count | None = Field(None, description="lean storage spills to disk above this")
    spill_dir: str | None = None
    shared_data: bool | None = None
    xla_preallocate: bool | None = None


class EvalSpec(_Part):
    """Evaluation environments beside the training ones."""

    n_envs: Count = 1
    workers: Literal["dummy", "subproc", "light"] = "dummy"
    every: Count | None = None
    episodes: Count = 5


class CheckpointSpec(_Part):
    """How often a checkpoint is written (in environment steps) and how many are kept."""

    every: Count | None = None
    keep: Count = 3
    replay_buffer: bool = False


class Run(_Part):
    """One training run."""

    legroom: Literal[1] = 1
    name: str = "run"
    description: str = ""
    recommended_for: str = ""
    backend: Backend = "sb3"
    algo: str
    env: EnvSpec
    policy: PolicySpec = PolicySpec()
    hyperparams: dict[str, Any] = Field(default_factory=dict)
    memory: MemorySpec = MemorySpec()
    eval: EvalSpec | None = None
    checkpoint: CheckpointSpec | None = None
    total_timesteps: Count | None = None
    seed: Annotated[int, Field(ge=0, le=2**32 - 1)] | None = None
    device: Device = "auto"
    source: str | None = Field(None, exclude=True, description="where it was read; not part of the file")

    @field_validator("hyperparams")
    @classmethod
    def _sizes_are_sane(cls, value: dict[str, Any]) -> dict[str, Any]:
        for key, number in value.items():
            if isinstance(number, int) and not isinstance(number, bool) and abs(number) > LARGEST:
                raise ValueError(f"{key}: {number} is over 2**63")
        return value

    def replace(self, **changes: Any) -> Run:
        """Return a copy with top-level parts replaced, validated anew."""
        return Run.model_validate({**{name: getattr(self, name) for name in Run.model_fields}, **changes})
