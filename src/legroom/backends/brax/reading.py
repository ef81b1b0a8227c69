"""Brax-style YAML: `ppo: {num_envs: 1024, ...}, network: {policy_hidden_layers: [...]}`.

There is no standard; this is the form that people's training scripts around `brax.training.agents` share: a section
named after the algorithm with the arguments of its `train()`, one for the networks, perhaps one for the environment.
"""

from collections.abc import Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any

from legroom.backends.brax.vocabulary import NETWORKS, TRAIN
from legroom.errors import BadInput
from legroom.model.draft import Draft, only_entry
from legroom.model.file_kind import FileKind
from legroom.reading.naming import did_you_mean
from legroom.reading.yamls import Key, Lines

ALGORITHMS = {"ppo": "PPO", "sac": "SAC"}
NETWORK_SECTIONS = ("network", "networks", "network_factory")
SECTIONS = ("env", *NETWORK_SECTIONS, "eval", "seed", "name", "description", "device")
# Sections of such files that say nothing about memory.
IGNORED = frozenset({
    "logging", "wandb", "rendering", "render", "export", "rewards", "reward", "reward_weights", "reward_config",
    "checkpoint", "checkpoints", "training", "domain_randomization", "quick_verify", "video", "output", "experiment",
})  # fmt: skip
NETWORK = {
    **NETWORKS,
    "activation": ("policy", "kwargs", "activation"),
    "policy_obs_key": ("policy", "kwargs", "policy_obs_key"),
    "value_obs_key": ("policy", "kwargs", "value_obs_key"),
    "layer_norm": ("policy", "kwargs", "layer_norm"),
}
SPELLINGS = {**TRAIN, "seed": ("seed",), **NETWORKS}
_ENV_NAMES = ("id", "name", "env_name", "env_id")


class BraxFile(FileKind):
    """A file with a section of brax's training arguments."""

    name = "brax"
    spellings = MappingProxyType({**SPELLINGS, **NETWORK})

    def matches(self, data: dict[Any, Any]) -> bool:
        return "algo" not in data and any(isinstance(data.get(name), dict) for name in ALGORITHMS)

    def drafts(
        self, data: dict[Any, Any], lines: Lines, path: str, *, entry: str | None = None, algo: str | None = None
    ) -> list[Draft]:
        return only_entry(_drafts(data, lines, path), entry, path)

    def lenient_drafts(
        self, data: dict[Any, Any], lines: Lines, path: str, *, entry: str | None = None, algo: str | None = None
    ) -> tuple[list[Draft], list[BadInput]]:
        """Return the drafts of brax's sections; what is left out is somebody's own, or misspelt and then a problem."""
        problems: list[BadInput] = []
        known = _known(data, (), (*ALGORITHMS, *SECTIONS, *IGNORED), lines, path, problems)
        for section in NETWORK_SECTIONS:
            if isinstance(known.get(section), dict):
                known[section] = _known(known[section], (section,), tuple(NETWORK), lines, path, problems)
        return only_entry(_drafts(known, lines, path), entry, path), problems


FILE_KINDS = (BraxFile(),)


def _known(
    data: dict[Any, Any], at: Key, names: Sequence[str], lines: Lines, path: str, problems: list[BadInput]
) -> dict[Any, Any]:
    """Return the keys that are among `names`; one that is nearly another's name is added to the problems."""
    for name in data:
        hint = did_you_mean(name, names) if name not in names else ""
        if hint.startswith("did you mean"):
            line = lines.get((*at, name))
            problems.append(BadInput(f"unknown key {str(name)!r}", path=path, line=line, hint=hint))
    return {name: value for name, value in data.items() if name in names}


def _drafts(data: dict[Any, Any], lines: Lines, path: str) -> list[Draft]:
    """Return one draft per algorithm section.

    Raises:
        BadInput: a section is not known, or is no mapping.
    """
    for section in data:
        if section not in ALGORITHMS and section not in SECTIONS and section not in IGNORED:
            hint = did_you_mean(section, (*ALGORITHMS, *SECTIONS))
            raise BadInput(f"unknown section {section!r}", path=path, line=lines.get((section,)), hint=hint)
    found = []
    for section, algo in ALGORITHMS.items():
        if not isinstance(data.get(section), dict):
            continue
        draft = Draft(Path(path).stem, path)
        draft.put(("backend",), "brax")
        draft.put(("algo",), algo, lines.get((section,)))
        draft.put(("env",), {}, lines.get((section,)))
        _environment(draft, data, lines)
        for name, value in data[section].items():
            draft.put(SPELLINGS.get(name, ("hyperparams", name)), value, lines.get((section, name)))
        for name in NETWORK_SECTIONS:
            _network(draft, data, name, lines)
        for name in ("seed", "description", "device", "eval"):
            if name in data:
                draft.put((name,), data[name], lines.get((name,)))
        found.append(draft)
    if len(found) > 1:
        for draft in found:
            draft.name = f"{draft.name}:{draft.data['algo'].lower()}"
    return found


def _environment(draft: Draft, data: dict[Any, Any], lines: Lines) -> None:
    env = data.get("env")
    if env is None:
        return
    if not isinstance(env, dict):
        draft.put(("env", "id"), env, lines.get(("env",)))
        return
    for name, value in env.items():
        place: Key = ("env", "kwargs", name)
        if name in _ENV_NAMES:
            place = ("env", "id")
        elif name in ("spaces", "n_envs", "kwargs", "episode_steps"):
            place = ("env", name)
        elif name in ("episode_length", "action_repeat"):
            place = ("hyperparams", name)
        draft.put(SPELLINGS.get(name, place), value, lines.get(("env", name)))


def _network(draft: Draft, data: dict[Any, Any], section: str, lines: Lines) -> None:
    network = data.get(section)
    if network is None:
        return
    at = lines.get((section,))
    if not isinstance(network, dict):
        raise BadInput(f"{section} must be a mapping", path=draft.path, line=at, hint=f"one of {', '.join(NETWORK)}")
    for name, value in network.items():
        if name not in NETWORK:
            hint = did_you_mean(name, NETWORK)
            line = lines.get((section, name))
            raise BadInput(f"unknown key {name!r} in {section}", path=draft.path, line=line, hint=hint)
        draft.put(NETWORK[name], value, lines.get((section, name)))
