"""brax's configuration as people write it, recognised by its keys.

There is no standard. The arguments of `brax.training.agents.*.train()` stand in a section named after the algorithm
(`ppo: {num_envs: 1024, ...}`), at the top of the file, in a section of any name (`rl_config:`), or in one per
environment; networks in `network:` or, as in MuJoCo Playground, in a `network_factory` among the arguments.

A section `ppo:` alone proves nothing: programs with a loop of their own have one too, in other words (`rollout_steps`,
`gamma`). It is brax's where its keys are arguments of brax's `train()`. What else the file holds is the user's own
program's, and listed as not used.
"""

import difflib
from collections.abc import Collection, Iterator
from pathlib import Path
from types import MappingProxyType
from typing import Any

from legroom.backends.base import find_algorithm
from legroom.backends.brax.vocabulary import BRAX_ALGORITHMS, NETWORKS, TRAIN, VOCABULARY
from legroom.errors import BadInput
from legroom.model.draft import Draft, FileKind, get, only_entry
from legroom.reading.reading_notes import listed, note
from legroom.reading.yamls import Key, Lines

ALGORITHMS = {"ppo": "PPO", "sac": "SAC"}
NETWORK_SECTIONS = ("network", "networks", "network_factory")
TRAINING_SECTIONS = (
    "training", "train", "trainer", "learning", "optimizer", "rollout", "hyperparams", "hyperparameters",
)  # fmt: skip
OWN = ("seed", "description", "device", "eval")  # as in a run file
SECTIONS = ("env", *NETWORK_SECTIONS, *TRAINING_SECTIONS, *OWN, "name")
# Arguments that no other library's PPO or SAC has by this name.
BRAX_ALONE = frozenset({
    "unroll_length", "num_updates_per_batch", "entropy_cost", "discounting", "reward_scaling", "num_resets_per_eval",
    "num_eval_envs", "normalize_observations", "clipping_epsilon", "max_devices_per_host", "grad_updates_per_step",
    "deterministic_eval", "num_timesteps",
})  # fmt: skip
COUNTED = frozenset({"num_envs", "num_timesteps"})
OF_SAC = frozenset({"grad_updates_per_step", "min_replay_size", "max_replay_size", "tau"})
ENOUGH_ALONE = 3  # of BRAX_ALONE, where keys of the user's own stand between
MISSPELT = 0.8  # how alike a name is, by difflib, that is taken for a slip of the pen
NETWORK = {
    **NETWORKS,
    **{name: ("policy", "kwargs", name) for name in ("activation", "policy_obs_key", "value_obs_key", "layer_norm")},
}
SPELLINGS = {**TRAIN, "seed": ("seed",), **NETWORKS}
_ENV_NAMES = ("id", "name", "env_name", "env_id", "environment")


class BraxFile(FileKind):
    """A file with brax's training arguments."""

    name = "brax"
    spellings = MappingProxyType({**SPELLINGS, **NETWORK})

    def matches(self, data: dict[Any, Any]) -> bool:
        return next(_places(data), None) is not None

    def drafts(
        self, data: dict[Any, Any], lines: Lines, path: str, *, entry: str | None = None, algo: str | None = None,
        problems: list[BadInput] | None = None,
    ) -> list[Draft]:  # fmt: skip
        """Return a draft for each place with brax's arguments; what is wrong are slips of the pen there."""
        places = dict(_places(data))
        found = [_Reader(data, lines, path, at, places) for at in places]
        slips = {str(problem): problem for each in found for problem in each.problems}
        drafts = only_entry([each.draft for each in found], entry, path)
        if slips and problems is None:
            raise next(iter(slips.values()))
        if problems is not None:
            problems += slips.values()
        return drafts


FILE_KINDS = (BraxFile(),)


def _arguments(algo: str) -> set[str]:
    """Return the names that a section of this algorithm may have."""
    own = next(set(each.defaults) for each in BRAX_ALGORITHMS if each.name == algo)
    return own | set(SPELLINGS)


def _places(data: dict[Any, Any]) -> Iterator[tuple[Key, str]]:
    """Yield where brax's arguments stand, with the algorithm: the sections named so, else the outermost mappings."""
    named = [((name,), algo) for name, algo in ALGORITHMS.items() if _is_brax(data.get(name), algo, data)]
    yield from named if "algo" not in data else ()
    level: list[tuple[Key, dict[Any, Any]]] = [((), data)] if not named else []
    while level:
        found = [
            (at, each)
            for at, each in level
            if len(BRAX_ALONE & set(each)) >= ENOUGH_ALONE and COUNTED & set(each)  # IMPALA's have some of them, too
        ]
        yield from ((at, _algorithm(at, each)) for at, each in found)
        inner = [((*at, key), value) for at, each in level for key, value in each.items() if isinstance(value, dict)]
        level = [] if found else inner


def _algorithm(at: Key, arguments: dict[Any, Any]) -> str:
    """Return the algorithm of arguments that stand in no section of its name."""
    for name in (*at, *(arguments.get(key) for key in ("algo", "algorithm", "agent"))):
        for word, algo in ALGORITHMS.items():
            if word in str(name).lower():
                return algo
    return "SAC" if OF_SAC & set(arguments) else "PPO"


def _is_brax(section: Any, algo: str, data: dict[Any, Any]) -> bool:
    """Return whether the keys of a section are those of brax's `train()`."""
    if not isinstance(section, dict) or not section:
        return False
    arguments = _arguments(algo) | set(NETWORK_SECTIONS)
    other = [name for name in section if name not in arguments and not _meant(name, arguments)]
    alone = len(BRAX_ALONE & set(section))
    if other:
        return alone >= ENOUGH_ALONE and 2 * len(other) < len(section)
    networks = {name for key in NETWORK_SECTIONS if isinstance(data.get(key), dict) for name in data[key]}
    return bool(alone or networks & set(NETWORKS) or "num_envs" in section)


def _meant(name: Any, names: Collection[str]) -> str | None:
    """Return the name that `name` is a misspelling of."""
    return next(iter(difflib.get_close_matches(str(name), names, n=1, cutoff=MISSPELT)), None)


class _Reader:
    """Reads the run whose arguments stand at `at`; `problems` are slips of the pen, of which it leaves out the key."""

    def __init__(self, data: dict[Any, Any], lines: Lines, path: str, at: Key, places: dict[Key, str]) -> None:
        self.data, self.lines, self.path, self.at = data, lines, path, at
        self.names = _arguments(places[at])
        self.problems: list[BadInput] = []
        self.left: list[str] = []
        name = f"{Path(path).stem}:{str(at[-1]).lower()}" if len(places) > 1 else Path(path).stem
        self.draft = Draft(name, path, settle=_settle)
        self.draft.put(("backend",), "brax")
        self.draft.put(("algo",), places[at], lines.get(at))
        self.draft.put(("env",), {}, lines.get(at))
        own = [] if at == () else [str(key) for key in data if key not in SECTIONS and (key,) not in places]
        self._environment(data.get("env"))
        if at != ():
            self._arguments((), {key: value for key, value in data.items() if not isinstance(value, dict)})
        for section in TRAINING_SECTIONS:
            self._arguments((section,), data.get(section))
        for section in NETWORK_SECTIONS:
            self._network((section,), data.get(section))
        self._arguments(at, get(data, at))
        for key in OWN:
            if key in data:
                self.draft.put((key,), data[key], lines.get((key,)))
        sections = [key for key in own if isinstance(data[key], dict) and key != at[0]]
        for key in sections:
            self._refuse_slip((key,), (*ALGORITHMS, "env", *NETWORK_SECTIONS), data, "section")
        if sections:
            note(f"sections not read: {listed(sections)}")
        if self.left:
            note(f"not used, as brax's train() has no such argument: {listed(self.left)}")

    def _arguments(self, at: Key, section: Any) -> None:
        """Take what is an argument of `train()`."""
        for name, value in section.items() if isinstance(section, dict) else ():
            key = (*at, name)
            if name in NETWORK_SECTIONS and key != (name,):
                self._network(key, value)
            elif name in _ENV_NAMES[2:] and isinstance(value, str):
                self.draft.put(("env", "id"), value, self.lines.get(key))
            elif name in self.names:
                self.draft.put(SPELLINGS.get(name, ("hyperparams", name)), value, self.lines.get(key))
            elif not (at == () and name in SECTIONS) and not self._refuse_slip(key, self.names, section):
                self.left.append(".".join(map(str, key)))

    def _network(self, at: Key, section: Any) -> None:
        if section is None:
            return
        if not isinstance(section, dict):
            hint = f"one of {', '.join(NETWORK)}"
            raise BadInput(f"{at[-1]} must be a mapping", path=self.path, line=self.lines.get(at), hint=hint)
        for name, value in section.items():
            key = (*at, name)
            if name in NETWORK:
                self.draft.put(NETWORK[name], value, self.lines.get(key))
            elif not self._refuse_slip(key, NETWORK, section):
                self.left.append(".".join(map(str, key)))

    def _environment(self, env: Any) -> None:
        """Take the environment, and its arguments where it is named: without a name they are another program's."""
        if isinstance(env, str):
            self.draft.put(("env", "id"), env, self.lines.get(("env",)))
        named = isinstance(env, dict) and any(name in env for name in _ENV_NAMES)
        unread = []
        for name, value in env.items() if isinstance(env, dict) else ():
            place: Key = ("env", "kwargs", name)
            if name in _ENV_NAMES:
                place = ("env", "id")
            elif name in ("spaces", "n_envs", "kwargs", "episode_steps"):
                place = ("env", name)
            elif name in ("episode_length", "action_repeat"):
                place = ("hyperparams", name)
            elif not named and name not in SPELLINGS:
                unread.append(str(name))
                continue
            self.draft.put(SPELLINGS.get(name, place), value, self.lines.get(("env", name)))
        if unread:
            note(f"not used, as env: does not name the environment that they are of: {listed(unread)}")

    def _refuse_slip(self, key: Key, names: Collection[str], section: dict[Any, Any], what: str = "key") -> bool:
        """Add the misspelling of a name that is absent to the problems; return whether it is one."""
        meant = _meant(key[-1], set(names).difference(section))
        if meant is None:
            return False
        line, hint = self.lines.get(key), f"did you mean {meant!r}?"
        self.problems.append(BadInput(f"unknown {what} {str(key[-1])!r}", path=self.path, line=line, hint=hint))
        return True


def _settle(draft: Draft, given: Collection[Key]) -> None:
    """List brax's own values for sizes that neither the file nor the options say."""
    data = draft.data
    algorithm = find_algorithm("brax", str(data.get("algo")))
    own = algorithm.defaults if algorithm is not None else {}
    sizes = [name for name in own if name in VOCABULARY.sizes and own[name] not in (None, 1)]
    filled = [f"{name} {own[name]}" for name in sizes if get(data, ("hyperparams", name)) is None]
    filled += ["num_envs 1"] if get(data, ("env", "n_envs")) is None else []
    if filled:
        note(f"not in {draft.path}, so as brax has them: {', '.join(filled)}")
