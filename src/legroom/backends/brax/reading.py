"""Brax-style YAML: `ppo: {num_envs: 1024, ...}, network: {policy_hidden_layers: [...]}`.

There is no standard; this is the form that people's training scripts around `brax.training.agents` share: a section
named after the algorithm with the arguments of its `train()`, one for the networks, perhaps one for the environment.

A section `ppo:` alone proves nothing: programs with a loop of their own have one too, in other words (`rollout_steps`,
`gamma`). It is brax's where its keys are arguments of brax's `train()`. All other sections are the user's own.
"""

import difflib
from collections.abc import Collection
from pathlib import Path
from types import MappingProxyType
from typing import Any

from legroom.backends.brax.vocabulary import BRAX_ALGORITHMS, NETWORKS, TRAIN
from legroom.errors import BadInput
from legroom.model.draft import Draft, only_entry
from legroom.model.file_kind import FileKind
from legroom.reading.naming import did_you_mean
from legroom.reading.reading_notes import note
from legroom.reading.yamls import Key, Lines

ALGORITHMS = {"ppo": "PPO", "sac": "SAC"}
NETWORK_SECTIONS = ("network", "networks", "network_factory")
SECTIONS = ("env", *NETWORK_SECTIONS, "training", "eval", "seed", "name", "description", "device")
# Arguments that no other library's PPO or SAC has by this name.
BRAX_ALONE = frozenset({
    "unroll_length", "num_updates_per_batch", "entropy_cost", "discounting", "reward_scaling", "num_resets_per_eval",
    "num_eval_envs", "normalize_observations", "clipping_epsilon", "max_devices_per_host", "grad_updates_per_step",
    "deterministic_eval",
})  # fmt: skip
ENOUGH_ALONE = 3  # of them, where keys of the user's own stand between
MISSPELT = 0.8  # how alike a name is, by difflib, that is taken for a slip of the pen
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
        return "algo" not in data and any(_is_brax(data.get(name), algo) for name, algo in ALGORITHMS.items())

    def drafts(
        self, data: dict[Any, Any], lines: Lines, path: str, *, entry: str | None = None, algo: str | None = None
    ) -> list[Draft]:
        return only_entry(_drafts(data, lines, path), entry, path)

    def lenient_drafts(
        self, data: dict[Any, Any], lines: Lines, path: str, *, entry: str | None = None, algo: str | None = None
    ) -> tuple[list[Draft], list[BadInput]]:
        """Return the drafts of the sections that are brax's for certain, and the slips of the pen in them."""
        problems: list[BadInput] = []
        known: dict[Any, Any] = {key: value for key, value in data.items() if key in SECTIONS}
        for section, algo in ALGORITHMS.items():
            if _is_brax(data.get(section), algo) and BRAX_ALONE & set(data[section]):
                known[section] = _known(data[section], section, _arguments(algo), lines, path, problems)
        for section in NETWORK_SECTIONS:
            if isinstance(known.get(section), dict):
                known[section] = _known(known[section], section, set(NETWORK), lines, path, problems)
        return only_entry(_drafts(known, lines, path), entry, path), problems


FILE_KINDS = (BraxFile(),)


def _arguments(algo: str) -> set[str]:
    """Return the names that a section of this algorithm may have."""
    own = next(set(each.defaults) for each in BRAX_ALGORITHMS if each.name == algo)
    return own | set(SPELLINGS)


def _is_brax(section: Any, algo: str) -> bool:
    """Return whether the keys of a section are those of brax's `train()`."""
    if not isinstance(section, dict) or not section:
        return False
    arguments = _arguments(algo)
    other = [name for name in section if name not in arguments and not _meant(name, arguments)]
    return not other or (len(BRAX_ALONE & set(section)) >= ENOUGH_ALONE and 2 * len(other) < len(section))


def _meant(name: Any, names: Collection[str]) -> str | None:
    """Return the name that `name` is a misspelling of."""
    return next(iter(difflib.get_close_matches(str(name), names, n=1, cutoff=MISSPELT)), None)


def _known(
    data: dict[Any, Any], section: str, names: set[str], lines: Lines, path: str, problems: list[BadInput]
) -> dict[Any, Any]:
    """Return the keys that are among `names`; the misspelling of one that is absent is added to the problems."""
    for name in data:
        meant = None if name in names else _meant(name, names.difference(data))
        if meant is not None:
            line, hint = lines.get((section, name)), f"did you mean {meant!r}?"
            problems.append(BadInput(f"unknown key {str(name)!r}", path=path, line=line, hint=hint))
    return {name: value for name, value in data.items() if name in names}


def _drafts(data: dict[Any, Any], lines: Lines, path: str) -> list[Draft]:
    """Return one draft per algorithm section; sections of the user's own are passed over.

    Raises:
        BadInput: a section is misspelt, or is no mapping.
    """
    read = (*ALGORITHMS, "env", *NETWORK_SECTIONS)
    for section in data:
        meant = None if section in SECTIONS or section in ALGORITHMS else _meant(section, read)
        if meant is not None and meant not in data:
            line = lines.get((section,))
            raise BadInput(f"unknown section {section!r}", path=path, line=line, hint=f"did you mean {meant!r}?")
    skipped = [str(s) for s in data if s not in SECTIONS and s not in ALGORITHMS]
    if skipped:
        note(f"sections not read: {', '.join(skipped)}")
    found = []
    for section, algo in ALGORITHMS.items():
        if not _is_brax(data.get(section), algo):
            continue
        draft = Draft(Path(path).stem, path)
        draft.put(("backend",), "brax")
        draft.put(("algo",), algo, lines.get((section,)))
        draft.put(("env",), {}, lines.get((section,)))
        _environment(draft, data, lines)
        _training(draft, data.get("training"), _arguments(algo), lines)
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


def _training(draft: Draft, section: Any, names: set[str], lines: Lines) -> None:
    """Take from a section `training:` what is an argument of `train()`; the rest of it is the user's own."""
    for name, value in section.items() if isinstance(section, dict) else ():
        if name in names:
            draft.put(SPELLINGS.get(name, ("hyperparams", name)), value, lines.get(("training", name)))


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
