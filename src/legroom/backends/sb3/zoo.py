"""rl-baselines3-zoo hyperparameters: `ppo.yml` with one entry per environment.

The zoo evaluates the source strings in these files (`policy_kwargs: "dict(net_arch=[64, 64])"`); here they are parsed
and folded, with names such as `nn.ReLU` left as text. Schedules (`lin_2.5e-4`) stay as they are: what is stored for
them is a number either way. Mirrors `ExperimentManager._preprocess_hyperparams` of rl_zoo3 2.8.
"""

import difflib
from pathlib import Path
from typing import Any

from legroom.backends.base import algorithm_names, find_algorithm
from legroom.backends.sb3.vocabulary import VOCABULARY
from legroom.errors import BadInput, NotARun
from legroom.model.draft import Draft, FileKind
from legroom.reading.hyperchecks import shown
from legroom.reading.interpreter.evaluator import fold_text
from legroom.reading.interpreter.values import Unfoldable
from legroom.reading.known_spaces import find_spaces, is_atari
from legroom.reading.naming import PARTS, did_you_mean
from legroom.reading.yamls import Key, Lines

# file stem -> algorithm; other stems are tried as the algorithm's own name
STEMS = {
    "ppo_lstm": "RecurrentPPO", "recurrent_ppo": "RecurrentPPO", "recurrentppo": "RecurrentPPO",
    "maskable_ppo": "MaskablePPO", "ppo_mask": "MaskablePPO", "maskableppo": "MaskablePPO", "mppo": "MaskablePPO",
    "qr_dqn": "QRDQN", "her": "SAC",  # her.yml entries name their own in model_class
}  # fmt: skip
PLACES: dict[str, Key] = {
    "n_envs": ("env", "n_envs"), "frame_stack": ("env", "frame_stack"), "normalize": ("env", "normalize"),
    "env_kwargs": ("env", "kwargs"), "n_timesteps": ("total_timesteps",), "policy": ("policy", "name"),
    "policy_kwargs": ("policy", "kwargs"), "env_wrapper": ("env", "wrappers"), "seed": ("seed",),
    "device": ("device",), "n_eval_envs": ("eval", "n_envs"),
}  # fmt: skip
# Read and left out: no memory worth a line depends on them.
IGNORED = frozenset({
    "callback", "vec_env_wrapper", "monitor_kwargs", "noise_type", "noise_std", "normalize_kwargs", "eval_env_kwargs",
    "online_sampling", "max_episode_length",
})  # fmt: skip
HER = frozenset({"n_sampled_goal", "goal_selection_strategy"})  # of HerReplayBuffer, beside the others before SB3 1.1
SOURCES = frozenset({"policy_kwargs", "normalize", "replay_buffer_kwargs", "rollout_buffer_kwargs", "env_kwargs"})
NUMBERS = VOCABULARY.sizes | {"n_envs", "n_timesteps", "gradient_steps", "train_freq"}  # may be written as "10 * 64"

MISSPELT = 0.8  # how alike a name is, by difflib, that is taken for a slip of the pen


class ZooFile(FileKind):
    """A mapping of entries, none of them a part of a run file."""

    name = "zoo"
    spellings = PLACES
    by_entry = True

    def matches(self, data: dict[Any, Any]) -> bool:
        if PARTS[()] & set(data) or not all(isinstance(value, dict) or value is None for value in data.values()):
            return False
        entries = sum(_is_entry(str(name), value) for name, value in data.items())
        return entries > 0 and len(data) <= 2 * entries

    def drafts(
        self, data: dict[Any, Any], lines: Lines, path: str, *, entry: str | None = None, algo: str | None = None,
        problems: list[BadInput] | None = None,
    ) -> list[Draft]:  # fmt: skip
        """Return the drafts of all entries, or of the named one.

        Args:
            entry: an entry's name, or the id of an environment that an entry (`atari`, `default`) covers.
            problems: given, settings for a program of the user's own are left out, which reads such files too.

        Raises:
            BadInput: no such entry, or an entry that cannot be read.
        """
        algo = algo or _algorithm(path)
        names = list(data) if entry is None else [_entry_for(entry, data, path)]
        named = algo or any("model_class" in (value or {}) for value in data.values())
        if problems is None or entry is not None or not named:  # without an algorithm it says what to do about it
            return [_draft(data[name], (name,), lines, path, env_id=entry or str(name), algo=algo) for name in names]
        found: list[Draft] = []
        if not any(_is_zoos_own(value or {}) for value in data.values()):
            return found  # another program's table of environments
        for name in names:
            known = _known(data[name], algo) if data[name] else data[name]
            if data[name] and not known:
                continue  # notes on an environment, results of a search
            try:
                found.append(_draft(known, (name,), lines, path, env_id=str(name), algo=algo))
            except BadInput as error:
                problems.append(error)
        return found


def _is_entry(name: str, value: Any) -> bool:
    """Return whether a mapping is an environment's settings; configurations of all kinds are made of mappings."""
    if value is None or find_spaces(name) is not None:
        return True
    named = find_algorithm("sb3", str(value.get("model_class")))
    return "n_timesteps" in value or named is not None or str(value.get("policy")).endswith("Policy")


def _is_zoos_own(entry: dict[Any, Any]) -> bool:
    """Return whether an entry has what the zoo cannot do without; people name their own settings by environment too."""
    return str(entry.get("policy")).endswith("Policy") or "model_class" in entry


def _known(entry: dict[Any, Any], algo: str | None) -> dict[Any, Any]:
    """Return the settings of an entry that mean something, or are slips of the pen.

    Others are for a program of the user's own, which reads files of this form too.
    """
    algorithm = find_algorithm("sb3", str(entry.get("model_class") or algo))
    if algorithm is None:
        return entry
    others = {name for each in algorithm_names("sb3") if (found := find_algorithm("sb3", each)) for name in found.keys}
    places = {*PLACES, *IGNORED, *HER, *SOURCES, "model_class"}
    absent = (algorithm.keys | places) - set(entry)
    return {
        name: value
        for name, value in entry.items()
        if name in others | places or difflib.get_close_matches(str(name), absent, n=1, cutoff=MISSPELT)
    }


def _entry_for(entry: str, data: dict[Any, Any], path: str) -> Any:
    for name in data:
        if str(name) == entry:
            return name
    # what the zoo itself does for an environment without an entry of its own
    if is_atari(entry) and "atari" in data:
        return "atari"
    if "default" in data and find_spaces(entry) is not None:
        return "default"
    names = [str(name) for name in data]
    close = difflib.get_close_matches(entry, names, n=1)
    some = ", ".join(names[:8]) + (", ..." if len(data) > 8 else "")
    hint = f"did you mean {close[0]!r}?" if close else f"there is {some}"
    raise BadInput(f"no entry {entry!r}", path=path, hint=hint)


def _algorithm(path: str) -> str | None:
    stem = Path(path).stem.lower()
    found = find_algorithm("sb3", STEMS.get(stem, stem))
    return found.name if found else None


def _draft(entry: Any, at: Key, lines: Lines, path: str, *, env_id: str, algo: str | None) -> Draft:
    draft = Draft(str(at[0]) if at and env_id == str(at[0]) else env_id, path)
    line = lines.get(at)
    values: dict[Any, Any] = entry or {}
    model_class = values.get("model_class")
    if isinstance(model_class, str):
        found = find_algorithm("sb3", STEMS.get(model_class, model_class))
        if found is None:
            hint = did_you_mean(model_class, algorithm_names("sb3"))
            where = lines.get((*at, "model_class"))
            raise BadInput(f"unknown algorithm {model_class!r}", path=path, line=where, hint=hint)
        algo = found.name
    if algo is None:
        hint = "give it with --set algo=PPO, or name the file after it (ppo.yml)"
        raise NotARun("the algorithm of this zoo file is not known", path=path, hint=hint)
    draft.put(("algo",), algo, line)
    draft.put(("env",), {} if env_id == "default" else {"id": env_id}, line)
    for name, value in values.items():
        _place(draft, str(name), value, (*at, name), lines)
    if HER & set(values) and values.get("policy") == "MlpPolicy":
        draft.data["policy"]["name"] = "MultiInputPolicy"  # what SB3 has asked for dict observations ever since
    return draft


def _place(draft: Draft, name: str, value: Any, at: Key, lines: Lines) -> None:
    line = lines.get(at)
    if name in IGNORED or name == "model_class":
        return
    if name in SOURCES | NUMBERS and isinstance(value, str):
        value = _source(name, value, draft.path, line)
    if name == "policy_kwargs" and value is None:
        return
    if name in HER:
        draft.put(("hyperparams", "replay_buffer_class"), "HerReplayBuffer", line)
        draft.put(("hyperparams", "replay_buffer_kwargs", name), value, line)
        return
    if name == "env_wrapper":
        value = [] if value is None else list(value) if isinstance(value, list) else [value]
    if name == "frame_stack" and value in (None, 0):
        return
    draft.put(PLACES.get(name, ("hyperparams", name)), value, line)
    if isinstance(value, dict):
        for inner in value:
            if (*at, inner) in lines:
                draft.lines[(*PLACES.get(name, ("hyperparams", name)), inner)] = lines[(*at, inner)]


def _source(name: str, text: str, path: str | None, line: int | None) -> Any:
    try:
        return fold_text(text)
    except Unfoldable as error:
        hint = "write plain data: dict(net_arch=[64, 64])"
        raise BadInput(f"{name}: {shown(text)} cannot be read: {error}", path=path, line=line, hint=hint) from None
