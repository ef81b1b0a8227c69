"""What an algorithm is: its family and its constructor's own defaults. The tables are the backends'."""

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, Literal

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
