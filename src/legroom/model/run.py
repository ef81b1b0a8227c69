"""The Run: what the user wants to train, normalised once.

`reading` makes it from whatever the user has; everything after that takes it as it is. `None` in `memory` means
*as the library does it*; a value means that legroom arranges it. Its JSON schema is what `legroom schema` prints.
"""

from __future__ import annotations

from dataclasses import dataclass, field, fields
from typing import Annotated, Any, Literal

from legroom.backends.default import DEFAULT_BACKEND
from legroom.model.spaces import SPACE_TYPES, Between, Data, Space
from legroom.units import LARGEST

Count = Annotated[int, Between(1, LARGEST)]
Amount = Annotated[int, Between(0, LARGEST)]
Seconds = Annotated[float, Between(0, 10_000_000)]
Device = Literal["auto", "cpu", "cuda"]


@dataclass(frozen=True)
class Spaces(Data):
    """What one environment shows and takes, before any wrapper of the run file (frame stack, transposition)."""

    observation: Space
    action: Space


@dataclass(frozen=True)
class EnvSpec(Data):
    """The environment and how many of it run where."""

    id: str | None = None
    """gymnasium id, or module:attr"""
    kwargs: dict[str, Any] = field(default_factory=dict)
    n_envs: Count = 1
    workers: Literal["dummy", "subproc", "light"] = "dummy"
    """dummy: in the training process; subproc: SB3's worker processes; light: torch-free workers"""
    envs_per_worker: Count = 1
    start_method: Literal["fork", "forkserver", "spawn"] | None = None
    timeout: Seconds | None = None
    """seconds that a reset or step may take, ten times as many to build; ten minutes when left out, 0: no limit"""
    on_timeout: Literal["restart", "end"] = "restart"
    """restart: continue from the last checkpoint; end: the training fails and can be resumed"""
    spaces: Spaces | None = None
    """declared spaces; taken from the environment when left out"""
    wrappers: tuple[str | dict[str, Any], ...] = ()
    frame_stack: Count | None = None
    normalize: bool | dict[str, Any] = False
    episode_steps: Count | None = None
    """steps in a typical episode, where known"""
    nbytes: Amount | None = None
    """memory of one environment instance, where known"""
    grid: Literal["data"] | tuple[Count, ...] | None = None
    """size the workload's data is aggregated to; 'data' keeps the data's own"""

    @property
    def arguments(self) -> dict[str, Any]:
        """What the environment is made with: a grid is an argument like any other."""
        return self.kwargs if self.grid is None else {"grid": self.grid} | self.kwargs


@dataclass(frozen=True)
class PolicySpec(Data):
    """The networks: SB3's policy name and policy_kwargs, the extractor named so that it need not be imported."""

    name: str = "MlpPolicy"
    kwargs: dict[str, Any] = field(default_factory=dict)
    features_extractor: str | None = None
    """module:Class"""
    features_extractor_kwargs: dict[str, Any] = field(default_factory=dict)


# Keys of `memory` that are gone: their effect was none, or another one on every machine.
REMOVED_MEMORY = (
    "foreach", "max_split_size_mb", "empty_cache_every", "malloc_trim", "malloc_arenas", "jemalloc", "env_chunk",
)  # fmt: skip


@dataclass(frozen=True)
class MemorySpec(Data):
    """One key for every memory knob that is not a hyperparameter; None is what the library does by itself."""

    rollout: Literal["plain", "lean"] | None = None
    replay: Literal["plain", "lean"] | None = None
    micro_batch: Count | tuple[tuple[Amount, Count], ...] | None = None
    """samples per forward and backward pass; or [[from_update, size], ...]"""
    activation_checkpointing: bool | None = None
    expandable_segments: bool | None = None
    bf16: bool | None = None
    max_bytes: Count | None = None
    """lean storage spills to disk above this"""
    spill_dir: str | None = None
    shared_data: bool | None = None
    """False: `legroom.share` shares nothing, every process builds its own"""
    xla_preallocate: bool | None = None
    runner_bytes: Count | None = None
    """RLlib: memory that each env runner requests, so that Ray places runners where they fit"""
    learner_bytes: Count | None = None
    object_store_bytes: Count | None = None
    """RLlib: size of the object store of a Ray started for the run"""


@dataclass(frozen=True)
class EvalSpec(Data):
    """Evaluation environments beside the training ones."""

    n_envs: Count = 1
    workers: Literal["dummy", "subproc", "light"] = "dummy"
    every: Count | None = None
    episodes: Count = 5
    on_training_envs: bool = False
    """a script evaluates on the environments it trains on: there are no others. `legroom train` makes its own"""


@dataclass(frozen=True)
class CheckpointSpec(Data):
    """How often a checkpoint is written (in environment steps) and how many are kept."""

    every: Count | None = None
    keep: Count = 3
    keep_best: Count | None = None
    """how many of the best checkpoints by evaluation are kept besides the last ones; needs `eval`"""
    replay_buffer: bool = False


@dataclass(frozen=True)
class Run(Data):
    """One training run."""

    algo: str
    env: EnvSpec
    legroom: Literal[1] = 1
    name: str = "run"
    description: str = ""
    recommended_for: str = ""
    backend: str = DEFAULT_BACKEND
    algo_class: str | None = None
    """module:Class, where the run trains its own subclass of `algo`"""
    policy: PolicySpec = PolicySpec()
    hyperparams: dict[str, Any] = field(default_factory=dict)
    memory: MemorySpec = MemorySpec()
    eval: EvalSpec | None = None
    checkpoint: CheckpointSpec | None = None
    total_timesteps: Count | None = None
    seed: Annotated[int, Between(0, 2**32 - 1)] | None = None
    device: Device = "auto"
    source: str | None = None
    """where it was read; set by the reader"""

    def __post_init__(self) -> None:
        if not isinstance(self.env, EnvSpec):  # a dict would be kept as it is and fail far from here
            raise TypeError("build a Run from plain data with Run.model_validate(data)")

    def __repr__(self) -> str:
        env = self.env.id or "an environment known by its spaces"
        envs = f"{self.env.n_envs:,} env{'s' if self.env.n_envs > 1 else ''}"
        return f"Run({self.name}: {self.algo} of {self.backend}, {env}, {envs})"

    @property
    def key(self) -> str:
        """A text that is the same for equal runs alone."""
        return repr([getattr(self, each.name) for each in fields(self)])

    def replace(self, **changes: Any) -> Run:
        """Return a copy with top-level parts replaced."""
        return self.model_copy(update=changes)


def kept_run(data: dict[str, Any]) -> Run:
    """Return the run that a folder holds, without keys of `memory` that are gone: none of them changed what is learned.

    Raises:
        pydantic.ValidationError: it is no run.
    """
    memory = {key: value for key, value in data.get("memory", {}).items() if key not in REMOVED_MEMORY}
    return Run.model_validate(data | {"memory": memory})


_PARTS = {"env": EnvSpec, "policy": PolicySpec, "memory": MemorySpec, "eval": EvalSpec, "checkpoint": CheckpointSpec}


def run_from_trusted(data: dict[str, Any]) -> Run:
    """Return the run that valid data describes; what it does with invalid data is undefined."""
    parts: dict[str, Any] = {key: cls(**_tuples(data[key])) for key, cls in _PARTS.items() if data.get(key)}
    env = parts["env"]
    if env.spaces is not None:
        spaces = Spaces(**{key: _space(value) for key, value in env.spaces.items()})
        parts["env"] = env.model_copy(update={"spaces": spaces})
    return Run(**{**data, **parts})


def _space(data: dict[str, Any]) -> Any:
    if data["type"] == "dict":
        return SPACE_TYPES["dict"](spaces={key: _space(sub) for key, sub in data["spaces"].items()})
    return SPACE_TYPES[data["type"]](**_tuples(data))


def _tuples(data: dict[str, Any]) -> dict[str, Any]:
    # one level is enough: keyword arguments deeper down belong to the user's classes and stay lists
    return {key: tuple(value) if isinstance(value, list) else value for key, value in data.items()}
