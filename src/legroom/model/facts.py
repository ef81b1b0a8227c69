"""What follows from a Run alone, what an algorithm is, and what is counted of a run.

The tables of algorithms and their constructors' defaults are the backends'.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, Literal

from legroom.errors import BadInput
from legroom.model.run import Run
from legroom.model.spaces import Space

Family = Literal["on-policy", "off-policy", "evolution"]

# Constructor arguments that no algorithm's memory depends on and that are always allowed in `hyperparams`.
NEUTRAL = frozenset({"verbose", "tensorboard_log", "stats_window_size", "_init_setup_model"})


@dataclass(frozen=True, eq=False)
class Algorithm:
    """One algorithm of one backend; `defaults` are its constructor's hyperparameters."""

    name: str
    backend: str
    package: str
    family: Family
    defaults: Mapping[str, Any]
    masked: bool = False  # keeps action masks in the rollout
    recurrent: bool = False  # keeps LSTM states in the rollout

    @property
    def keys(self) -> frozenset[str]:
        return frozenset(self.defaults) | NEUTRAL

    def is_made_in(self, module: str) -> bool:
        """Whether a class of this name that a module defines is this one; a package may have parts: `legroom_more`."""
        package = module.partition(".")[0]
        return package == self.package or package.startswith(f"{self.package}_")


def defaults(base: Mapping[str, Any] = MappingProxyType({}), /, drop: str = "", **own: Any) -> Mapping[str, Any]:
    """Return the defaults of a constructor: those of `base` with changes, less the names in `drop`."""
    return MappingProxyType({k: v for k, v in {**base, **own}.items() if k not in drop.split()})


@dataclass(frozen=True)
class Counts:
    """Per iteration: `samples` collected, `minibatches` per epoch, `updates` in all; and `iterations` that run."""

    samples: int
    minibatches: int | None = None
    updates: int | None = None
    iterations: int | None = None
    # the hyperparameters they were computed from; where one is not known, neither are the counts
    depends_on: tuple[str, ...] = ()

    @property
    def steps(self) -> int | None:
        """The environment steps that really run; whole iterations are."""
        return None if self.iterations is None else self.iterations * self.samples


@dataclass(frozen=True)
class StoredData:
    """The samples that a run keeps: `rollout`, 4 GiB, `stored`; at its peak 8 GiB, `while SB3 flattens it`."""

    name: str
    nbytes: int
    when: str
    peak: int | None = None  # bytes together with copies of it that are alive for a moment; None where there are none
    peak_when: str = ""


@dataclass(frozen=True)
class Storage:
    """One kind of storage and its length."""

    kind: Literal["rollout", "replay", "unroll"]
    # of each environment in a rollout or an unroll (which is never stored as a whole), of all of them in a replay
    steps: int
    observation: Any = None  # as it is stored, a `Space`; None where the run's spaces are not known

    def rows(self, n_envs: int) -> int:
        """Return how many steps of all environments together are held at once."""
        if self.kind == "unroll":
            return 1
        return max(self.steps // n_envs if self.kind == "replay" else self.steps, 1)

    def __str__(self) -> str:
        said = {"rollout": "{:,} steps", "replay": "replay of {:,}", "unroll": "unroll {}"}
        return said[self.kind].format(self.steps)


SCRIPTS = (".py", ".ipynb")


def spaces_of(run: Run) -> tuple[Space, Space]:
    """Return the declared observation and action spaces.

    Raises:
        BadInput: the run has none and its environment was not built.
    """
    if run.env.spaces is None:
        box, discrete = "{type: box, shape: [...], dtype: float32}", "{type: discrete, n: ...}"
        spaces = f"--set env.spaces='{{observation: {box}, action: {discrete}}}'"
        if run.env.id is None:
            hint = f"add --like RUN, whose environment is then used, or --set env.id=..., or {spaces}"
            raise BadInput("no environment and no spaces found in this file", path=run.source, hint=hint)
        raise BadInput(
            f"the spaces of env {run.env.id!r} are not known",
            path=run.source,
            hint=f"add {spaces}, or use --mode trace to build the env",
        )
    return run.env.spaces.observation, run.env.spaces.action


def trained_by_legroom(run: Run) -> bool:
    """Return whether `legroom train` trains it: run files, zoo entries and named runs. A script trains by itself."""
    file, _, entry = (run.source or "").rpartition(":")
    return run.source is not None and not (file.endswith(SCRIPTS) or entry.endswith(SCRIPTS))


def n_workers(run: Run) -> int:
    """Return how many environment processes there are; none when the environments live in the training process."""
    if run.env.workers == "dummy":
        return 0
    return -(-run.env.n_envs // run.env.envs_per_worker)


def episode_limit(run: Run) -> int | None:
    """Return the most steps an episode has: by a TimeLimit of the run, by the run, or by the known environment."""
    limits = [
        wrapper[name].get("max_episode_steps")
        for wrapper in run.env.wrappers
        if isinstance(wrapper, dict)
        for name in wrapper
        if str(name).rpartition(".")[2].rpartition(":")[2] == "TimeLimit" and isinstance(wrapper[name], dict)
    ]
    limits += [run.env.kwargs.get("max_episode_steps"), run.env.episode_steps]
    known = [limit for limit in limits if isinstance(limit, int) and not isinstance(limit, bool) and limit > 0]
    return known[0] if known else None
