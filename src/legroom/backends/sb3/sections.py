"""Settings of people's own SB3 programs: nested sections of any name, with SB3's words in them.

    training: {algorithm: MaskablePPO, hyperparameters: {n_steps: 2048, batch_size: 64}}
    env_settings: {n_envs: 4}

There is no standard. The algorithm is named somewhere, and a key that is an argument of its constructor means that
argument in whatever section it stands. The grid of the environment may stand in a file of its own beside it
(`env_small.yaml` beside `train_small.yaml`). What is left is named in a note: a network that the program builds from it
is not on the bill.
"""

from __future__ import annotations

import re
from collections.abc import Collection
from pathlib import Path
from typing import Any

from legroom.backends.sb3.signatures import SB3_ALGORITHMS
from legroom.backends.sb3.zoo import ZooFile
from legroom.errors import BadInput
from legroom.model.draft import Draft, FileKind, only_entry
from legroom.model.facts import Algorithm
from legroom.reading.completing import EXTRACTOR, GRIDS
from legroom.reading.constants import walked_settings
from legroom.reading.reading_notes import listed, note
from legroom.reading.user_files import is_file, read_text
from legroom.reading.yamls import Key, Lines, parse_yaml

_ALGORITHM = frozenset({"algo", "algorithm", "algorithm_name", "algo_name", "agent", "model_class", "rl_algorithm"})
_SB3_ALONE = frozenset({"MaskablePPO", "RecurrentPPO", "QRDQN", "TQC", "CrossQ"})  # no other library's names
_POLICIES = ("MlpPolicy", "CnnPolicy", "MultiInputPolicy", "MlpLstmPolicy", "CnnLstmPolicy", "MultiInputLstmPolicy")
# Arguments by which SB3's constructors are known; one or two of them have others too.
_SIGNS = frozenset({
    "n_steps", "n_epochs", "gae_lambda", "clip_range", "ent_coef", "vf_coef", "learning_starts", "gradient_steps",
    "train_freq", "exploration_fraction", "exploration_final_eps", "target_update_interval", "policy_kwargs",
    "max_grad_norm",
})  # fmt: skip
ENOUGH_SIGNS = 4
_NAMED = re.compile(r"stable.?baselines|sb3", re.I)
_PLACES: dict[str, Key] = {
    **dict.fromkeys(("n_envs", "num_envs", "n_env", "num_cpu"), ("env", "n_envs")),
    **dict.fromkeys(("env_id", "env_name", "environment_id"), ("env", "id")),
    **dict.fromkeys(("frame_stack", "n_stack", "frame_stack_size"), ("env", "frame_stack")),
    **dict.fromkeys(("total_timesteps", "n_timesteps", "timesteps"), ("total_timesteps",)),
    "policy_kwargs": ("policy", "kwargs"),
    "net_arch": ("policy", "kwargs", "net_arch"),
    "n_eval_envs": ("eval", "n_envs"),
    "seed": ("seed",),
}  # fmt: skip
# Words that look like sizes: where one was not used, the bill may lack something.
_SIZES = ("size", "shape", "channels", "capacity", "buffer", "hidden", "units", "layers", "dim", "width", "height",
          "grid", "stack", "envs", "workers", "batch")  # fmt: skip


class SectionsFile(FileKind):
    """A file of nested sections that name an SB3 algorithm."""

    name = "settings"
    certain = False

    def matches(self, data: dict[Any, Any]) -> bool:
        return _algorithm(data) is not None and _is_sb3(data)

    def drafts(
        self, data: dict[Any, Any], lines: Lines, path: str, *, entry: str | None = None, algo: str | None = None,
        problems: list[BadInput] | None = None,
    ) -> list[Draft]:  # fmt: skip
        """Return the one run of the file; where problems are collected, only if it says whose it is.

        People's own PPO has SB3's words for its settings too.

        Raises:
            BadInput: an entry of it is asked for.
        """
        if problems is not None and not _says_sb3(data):
            return []
        found = _algorithm(data)
        if found is None:
            raise BadInput("no algorithm found in this file", path=path, hint="--set algo=PPO")
        return only_entry([_draft(found, data, lines, path)], entry, path)


def _algorithm(data: dict[Any, Any]) -> tuple[Algorithm, Key] | None:
    """Return the algorithm that the file names; None where it names none, or several."""
    found = {}
    for path, value in walked_settings(data):
        if str(path[-1]).lower() in _ALGORITHM and isinstance(value, str):
            for algorithm in SB3_ALGORITHMS:
                if algorithm.name.lower() == value.lower().replace("_", ""):
                    found[algorithm.name] = (algorithm, path)
    return next(iter(found.values())) if len(found) == 1 else None


def _is_sb3(data: dict[Any, Any]) -> bool:
    """Return whether the words of the file are SB3's."""
    walked = list(walked_settings(data))
    names = {str(path[-1]) for path, _ in walked}
    values = {value for _, value in walked if isinstance(value, str)}
    return bool(values & _SB3_ALONE or values.intersection(_POLICIES)) or len(names & _SIGNS) >= ENOUGH_SIGNS


def _says_sb3(data: dict[Any, Any]) -> bool:
    """Return whether the file names SB3, one of its policies, or an algorithm that only SB3 calls so."""
    walked = list(walked_settings(data))
    values = {value for _, value in walked if isinstance(value, str)}
    words = " ".join([*values, *(str(path[-1]) for path, _ in walked)])
    return bool(values & _SB3_ALONE or values.intersection(_POLICIES)) or _NAMED.search(words) is not None


def _draft(found: tuple[Algorithm, Key], data: dict[Any, Any], lines: Lines, path: str) -> Draft:
    algorithm, named = found
    draft = Draft(Path(path).stem, path, settle=_settle)
    draft.put(("algo",), algorithm.name, lines.get(named))
    draft.put(("env",), {})
    used: set[Key] = {named}
    for key, value in walked_settings(data):
        name = str(key[-1])
        place = _PLACES.get(name)
        if place is None and name in algorithm.defaults and not isinstance(value, dict):
            place = ("hyperparams", name)
        if name == "policy" and isinstance(value, str):
            place = ("policy", "name")
        if isinstance(value, str) and "extractor" in str(key[-2:]).lower():
            draft.others.setdefault(EXTRACTOR, (value, lines.get(key), ".".join(map(str, key))))
        if name in GRIDS:
            draft.others.setdefault(name, (value, lines.get(key), ".".join(map(str, key))))
            used.add(key)
        if place is None or place in draft.lines or _is_inside(key, used):
            continue
        draft.put(place, value, lines.get(key))
        used.add(key)
    if ("env", "n_envs") not in draft.lines:  # the program that reads the file knows it
        draft.unknown[("env", "n_envs")] = (lines.get(named), "not in this file")
    _say_what_was_left(data, used)
    _read_beside(draft)
    return draft


def _read_beside(draft: Draft) -> None:
    """Take the environment's grid from the file beside a training's that has its name, with env for train."""
    file = Path(draft.path or "")
    names = (re.sub("train(ing)?", "env", file.stem), "env")
    beside = next((one for one in (file.with_stem(name) for name in names) if one != file and is_file(str(one))), None)
    if beside is None or not is_file(str(file)) or draft.others.keys() & set(GRIDS):
        return
    try:
        data, _ = parse_yaml(read_text(str(beside)), str(beside))
    except BadInput:
        note(f"not read, as it is not valid YAML: {beside}")
        return
    for key, value in walked_settings(data) if isinstance(data, dict) else ():
        if key[-1] in GRIDS:
            draft.others.setdefault(str(key[-1]), (value, None, f"{'.'.join(map(str, key))} of {beside.name}"))


def _settle(draft: Draft, given: Collection[Key]) -> None:
    """Note which of the settings of the environment and the network the bill was made of, and which it was not."""
    if draft.used:
        note(f"also read: {listed(draft.used)}")
    if draft.others:
        note(f"not used: {listed([label for *_, label in draft.others.values()])}")


def _is_inside(key: Key, used: set[Key]) -> bool:
    return any(key[: len(path)] == path for path in used)


def _say_what_was_left(data: dict[Any, Any], used: set[Key]) -> None:
    """Note the sections that nothing was read from, and the keys beside them that look like sizes."""
    sections = [str(key) for key, value in data.items() if not any(path[0] == key for path in used)]
    if sections:
        note(f"sections not read: {', '.join(sections)}")
    sizes = [
        ".".join(map(str, key))
        for key, value in walked_settings(data)
        if not isinstance(value, dict) and str(key[0]) not in sections and not _is_inside(key, used)
        and any(word in str(key[-1]).lower() for word in _SIZES)
    ]  # fmt: skip
    if sizes:
        note(f"not used, though they look like sizes: {', '.join(sizes)}")


FILE_KINDS: tuple[FileKind, ...] = (ZooFile(), SectionsFile())
