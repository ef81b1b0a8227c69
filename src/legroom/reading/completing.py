"""A file laid over the run that `--like` names, which supplies what the file does not say.

What the run supplies is listed, and so is what of the file is not used: an environment's arguments, its grid and a
network's size are taken where the run's environment and network have such a thing, and their spaces follow.
"""

from __future__ import annotations

from typing import Any

from legroom.backends.base import DEFAULT_BACKEND, backend_of
from legroom.model.draft import Draft, copied, get, made_with, merged, stale_keys
from legroom.model.run import Run
from legroom.named_runs import workloads
from legroom.reading.reading_notes import note
from legroom.reading.yamls import Key

GRIDS = ("grid_size", "grid", "grid_shape", "grid_dims")  # an environment's cells, as settings call them
EXTRACTOR = "type of the network"  # the name of a network of the file's own, among a draft's `others`


def completed(draft: Draft, run: Run, like: str) -> Draft:
    """Return the draft on top of `run`, which `like` names."""
    base = run.model_dump(exclude_defaults=True)
    for key in ("name", "description", "recommended_for", "source"):
        base.pop(key, None)
    own_algo = draft.data.get("algo")
    if own_algo is not None and str(own_algo).lower() != str(base.get("algo")).lower():
        base.pop("hyperparams", None)  # another algorithm's
    if get(draft.data, ("policy", "kwargs", "features_extractor_class")) is not None:
        base.get("policy", {}).pop("features_extractor", None)  # the file has one of its own
    own_id = get(draft.data, ("env", "id"))
    if own_id is not None and own_id != get(base, ("env", "id")):
        counts = ("n_envs", "workers", "envs_per_worker")  # another environment's spaces would be a wrong figure
        base["env"] = {key: value for key, value in base.get("env", {}).items() if key in counts}
    if own_id is None and get(base, ("env", "id")) is not None and backend_of(run).predictor.env_task(run) is None:
        # the environment is part of what is compiled, and decides nearly all of the bill
        whose = f"{like} ({get(base, ('env', 'id'))})"
        note(f"WARNING: predicted with the environment of {whose}, not yours: the file names none")
    if own_id is None:
        _take_arguments(draft, base)
    _take_network(draft, base, like)
    for stale in stale_keys(made_with(base.get("env")), merged(base, copied(draft.data)).get("env")):
        base.get("env", {}).pop(stale, None)
    _say_what_was_filled(base, draft, like)
    _say_what_is_doubtful(base, draft, like)
    draft.data = merged(base, copied(draft.data))
    return draft


def _take_arguments(draft: Draft, base: dict[str, Any]) -> None:
    """Take the arguments and the grid of the environment that other settings name: `SIMS = 25` where it has sims."""
    for name in get(base, ("env", "kwargs"), {}):
        if name in draft.others:
            _take(draft, name, ("env", "kwargs", name), draft.others[name][0])
    theirs = get(base, ("env", "grid"))
    for name in GRIDS if theirs is not None else ():
        grid, _, label = draft.others.get(name, (None, None, ""))
        cells = list(grid.values()) if isinstance(grid, dict) else grid
        if isinstance(cells, int) and isinstance(theirs, list | tuple):
            cells = [cells] * len(theirs)
        if not isinstance(cells, list) or not all(isinstance(each, int) for each in cells):
            continue
        if len(cells) == _dimensions(base):
            _take(draft, name, ("env", "grid"), cells)
        else:
            note(f"WARNING: predicted with a grid of {theirs}, not with {label} {cells}")


def _dimensions(base: dict[str, Any]) -> int:
    """How many numbers the environment's grid has; where it is that of its data, the observation tells."""
    theirs = get(base, ("env", "grid"))
    shape = get(base, ("env", "spaces", "observation", "shape"), ())
    return len(theirs) if isinstance(theirs, list | tuple) else len(shape) - 1


def _take(draft: Draft, name: str, place: Key, value: Any) -> None:
    _, line, label = draft.others.pop(name)
    draft.put(place, value, line)
    draft.used.append(label)


def _take_network(draft: Draft, base: dict[str, Any], like: str) -> None:
    """Take the size of the run's network that a file's own name for one ends with: `CNN3DTiny` where one is tiny."""
    extractor = get(base, ("policy", "features_extractor"))
    if EXTRACTOR not in draft.others or extractor is None:
        return
    named, _, label = draft.others[EXTRACTOR]
    known = next((each.extractors[extractor] for each in workloads() if extractor in each.extractors), None)
    for size in known.sizes if known is not None else ():
        if any(isinstance(word, str) and str(named).lower().endswith(word.lower()) for word in size.values()):
            _take(draft, EXTRACTOR, ("policy", "features_extractor_kwargs"), dict(size))
            draft.put(("policy", "features_extractor"), extractor)
            of = ", ".join(f"{key} {value}" for key, value in size.items())
            note(f"{named} is counted as {extractor} of {of}")
            return
    del draft.others[EXTRACTOR]
    note(f"WARNING: predicted with the network of {like} ({extractor}), not with {label} {named}")


def _say_what_was_filled(base: dict[str, Any], draft: Draft, like: str) -> None:
    """Note what of the run that completes a file is not in the file, and whose environment it is."""
    own = {"backend": base.get("backend", DEFAULT_BACKEND), "algo": base.get("algo"), **copied(draft.data)}
    if draft.finish is not None:  # its words in those of the library
        draft.finish(Draft(draft.name, draft.path, own, dict(draft.lines)), ())
    filled: list[str] = [key for key in ("backend", "algo") if key in base and key not in draft.data]
    places: list[Key] = [(part, key) for part in ("policy", "hyperparams", "eval") for key in base.get(part) or {}]
    if get(own, ("policy", "kwargs")):  # some of the networks are the file's
        places += [("policy", "kwargs", key) for key in get(base, ("policy", "kwargs"), {})]
    for place in (*places, ("env", "n_envs"), ("env", "frame_stack")):
        if get(base, place) is not None and get(own, place) is None and place not in draft.unknown:
            filled.append(".".join(map(str, place)))
    whose = get(base, ("env", "id"))
    if whose is not None and get(own, ("env", "id")) is None and get(own, ("env", "spaces")) is None:
        filled.insert(0, f"the environment ({whose})")
    if filled:
        note(f"taken from {like} because {draft.path or draft.name} does not set it: {', '.join(filled)}")


def _say_what_is_doubtful(base: dict[str, Any], draft: Draft, like: str) -> None:
    """Note which value is taken for what only running the file could tell: its own earlier one, or that of the run."""
    taken = []
    for key in list(draft.unknown):
        name, earlier = ".".join(map(str, key)), get(draft.data, key)
        if earlier is None and get(base, key) is None:
            continue
        line, text = draft.unknown.pop(key)
        if earlier is None:
            taken.append(f"{name} (line {line}: {text})")
        else:
            note(f"{name} is {earlier} by line {draft.lines.get(key)}; line {line} sets it at run time: {text}")
    if taken:
        note(f"taken from {like} because the value is known only when {draft.path} runs: {', '.join(taken)}")
