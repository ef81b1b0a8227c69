"""Where a name belongs in a run file: its own words, a backend's, and what people call the same thing.

The canonical place of a setting is its key path in the run file. Everything else a user may write (a bare
`--n-envs`, brax's `num_envs`, CleanRL's `num_steps`) is mapped to that path, here or by a backend's `Vocabulary`.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Mapping
from dataclasses import fields
from typing import Any

from legroom.backends.base import find_algorithm, find_backend
from legroom.errors import BadInput
from legroom.model.run import CheckpointSpec, EnvSpec, EvalSpec, MemorySpec, PolicySpec, Run
from legroom.reading.yamls import Key

SLIP = 0.8  # how alike a name is, by difflib, that is taken for a slip of the pen


def _keys(part: Any) -> frozenset[str]:
    return frozenset(field.name for field in fields(part))


# The parts of a run file and the keys they have.
PARTS: Mapping[Key, frozenset[str]] = {
    (): _keys(Run) - {"source"},
    ("env",): _keys(EnvSpec),
    ("env", "spaces"): frozenset({"observation", "action"}),
    ("policy",): _keys(PolicySpec),
    ("memory",): _keys(MemorySpec),
    ("eval",): _keys(EvalSpec),
    ("checkpoint",): _keys(CheckpointSpec),
}

# Any backend: other words for the same thing, as they stand on command lines.
ALIASES: Mapping[str, Key] = {
    "env": ("env", "id"), "env_id": ("env", "id"), "env_name": ("env", "id"), "env_kwargs": ("env", "kwargs"),
    "num_envs": ("env", "n_envs"), "num_env": ("env", "n_envs"), "envs": ("env", "n_envs"),
    "n_stack": ("env", "frame_stack"), "vec_env": ("env", "workers"),
    "timesteps": ("total_timesteps",), "n_timesteps": ("total_timesteps",), "num_timesteps": ("total_timesteps",),
    "steps": ("total_timesteps",), "algorithm": ("algo",),
    "policy": ("policy", "name"), "policy_kwargs": ("policy", "kwargs"),
    "features_extractor_class": ("policy", "features_extractor"),
    "n_eval_envs": ("eval", "n_envs"), "num_eval_envs": ("eval", "n_envs"), "eval_envs": ("eval", "n_envs"),
    "eval_freq": ("eval", "every"), "n_eval_episodes": ("eval", "episodes"), "eval_episodes": ("eval", "episodes"),
    "checkpoint_every": ("checkpoint", "every"), "save_freq": ("checkpoint", "every"),
}  # fmt: skip

EXTRACTORS: Mapping[Key, Key] = {
    ("policy", "kwargs", "features_extractor_class"): ("policy", "features_extractor"),
    ("policy", "kwargs", "features_extractor_kwargs"): ("policy", "features_extractor_kwargs"),
}

_AMBIGUOUS = {"id", "kwargs", "name", "legroom", "env", "policy", "hyperparams", "memory", "eval", "checkpoint"}


def hyperparameter_names(backend: str) -> frozenset[str]:
    found = find_backend(backend)
    if found is None:
        return frozenset()
    return found.reader.vocabulary.hyperparams.union(*(algorithm.keys for algorithm in found.algorithms))


def places(backend: str, algo: str | None) -> dict[str, Key]:
    """Return every bare name that an override may use for such a run, and the key path it stands for."""
    table: dict[str, Key] = {name: ("hyperparams", name) for name in hyperparameter_names(backend)}
    table |= ALIASES
    for part in (("memory",), ("policy",), ("env",), ()):
        table |= {name: (*part, name) for name in PARTS[part] if name not in _AMBIGUOUS}
    found = find_backend(backend)
    table |= found.reader.vocabulary.names if found is not None else {}
    algorithm = find_algorithm(backend, algo) if algo else None
    if algorithm is not None:  # its own words come first: `n_eval_episodes` is a hyperparameter of ARS
        table |= {name: ("hyperparams", name) for name in algorithm.keys}
    return table


def place_of(name: str, backend: str, algo: str | None) -> Key:
    """Return the key path that an override's `name` means: `n-envs`, `num_envs`, `env.n_envs`, `policy.kwargs.x`.

    Raises:
        BadInput: no run has such a setting.
    """
    first, *rest = name.strip().split(".")
    first = first.lstrip("-").replace("-", "_")
    table = places(backend, algo)
    if rest and first in PARTS[()]:
        return (first, *_underscored(rest))
    if not rest and first in ("spaces", "kwargs", "hyperparams", "memory", "eval", "checkpoint"):
        return ("env", first) if first in ("spaces", "kwargs") else (first,)
    if first in table:
        return (*table[first], *rest)
    known = sorted(set(table) | {f"{part[0]}.{key}" for part, keys in PARTS.items() if len(part) == 1 for key in keys})
    raise BadInput(f"unknown setting {name!r}", hint=did_you_mean(name.replace("-", "_"), known, "'legroom schema'"))


def _underscored(parts: list[str]) -> list[str]:
    """Return key parts with underscores for hyphens, except inside free-form mappings."""
    free = parts.index("kwargs") + 1 if "kwargs" in parts else len(parts)
    return [part.replace("-", "_") for part in parts[:free]] + parts[free:]


def did_you_mean(word: object, known: Iterable[str], otherwise: str = "") -> str:
    """Return a hint that names the known word closest to `word`, or all of them where they are few."""
    words = list(known)
    lower = {w.lower(): w for w in reversed(words)}
    close = difflib.get_close_matches(str(word).lower()[:80], list(lower), n=1, cutoff=0.6)
    if close:
        return f"did you mean {lower[close[0]]!r}?"
    if otherwise:
        return f"see {otherwise} for what there is"
    return f"one of {', '.join(words)}" if words else ""
