"""A Python module of constants (`NUM_ENVS = 2`, `EP_LENGTH = 8192`), read by its syntax tree, never executed.

Such a module says how long and how wide, seldom with which algorithm or on what observations: those come from
`--like` or `--set`. Defaults of an `argparse` parser, of a class called Args or Config, of `main()` and of a dict
called config count as constants too, since that is where single-file implementations keep theirs.

Settings that a program of the user's own reads from YAML or JSON are the same in another syntax: nested, each with one
of these names. What they mean in the words of a library is known once the run that completes them is.
"""

from __future__ import annotations

import ast
from collections.abc import Collection, Iterator
from pathlib import Path
from typing import Any

from legroom.backends.base import DEFAULT_BACKEND, backend_named, backends, find_algorithm
from legroom.errors import BadInput
from legroom.model.draft import Draft, get
from legroom.reading.interpreter.evaluator import fold
from legroom.reading.interpreter.values import NotKnown, Symbol, Unfoldable, plain
from legroom.reading.reading_notes import MOST_NAMED, listed, note
from legroom.reading.source import nodes_of, parse_module, walk
from legroom.reading.yamls import Key, Lines

# An episode's length: on-policy modules of this kind collect one episode per rollout, so it is their n_steps.
EPISODE = "episode length"
# Names (in lower case) and where they belong. What is not here is ignored.
NAMES: dict[str, Key] = {
    **dict.fromkeys(
        ("num_envs", "n_envs", "num_env", "num_cpu", "n_cpu", "num_workers", "num_parallel_envs"), ("env", "n_envs")
    ),
    **dict.fromkeys(
        ("n_steps", "num_steps", "rollout_length", "rollout_steps", "unroll_length"), ("hyperparams", "n_steps")
    ),
    **dict.fromkeys(("ep_length", "episode_length", "max_episode_steps"), ("hyperparams", EPISODE)),
    **dict.fromkeys(("frame_stack_size", "frame_stack", "n_stack", "num_stack"), ("env", "frame_stack")),
    **dict.fromkeys(("batch_size", "minibatch_size"), ("hyperparams", "batch_size")),
    **dict.fromkeys(("n_epochs", "num_epochs", "update_epochs", "epochs"), ("hyperparams", "n_epochs")),
    **dict.fromkeys(
        ("buffer_size", "buffer_cap", "buffer_capacity", "replay_size", "replay_buffer_size"),
        ("hyperparams", "buffer_size"),
    ),
    **dict.fromkeys(("total_timesteps", "timesteps", "num_timesteps", "n_timesteps"), ("total_timesteps",)),
    **dict.fromkeys(("learning_rate", "lr"), ("hyperparams", "learning_rate")),
    **dict.fromkeys(("gamma", "discount", "discounting", "discount_factor"), ("hyperparams", "gamma")),
    **dict.fromkeys(("entropy_cost", "entropy_coef", "entropy_coeff"), ("hyperparams", "ent_coef")),
    **dict.fromkeys(("value_loss_coef", "value_coef", "vf_loss_coeff"), ("hyperparams", "vf_coef")),
    **dict.fromkeys(("clip_epsilon", "clipping_epsilon", "clip_coef", "clip_param"), ("hyperparams", "clip_range")),
    **dict.fromkeys(
        ("target_update_interval", "target_update_frequency", "target_sync", "target_sync_every"),
        ("hyperparams", "target_update_interval"),
    ),
    **{
        name: ("hyperparams", name)
        for name in (
            "gae_lambda", "ent_coef", "vf_coef", "clip_range", "max_grad_norm", "learning_starts", "train_freq",
            "gradient_steps", "tau", "num_minibatches",
        )
    },
    **dict.fromkeys(("env_id", "env_name"), ("env", "id")),
    **dict.fromkeys(("algo", "algorithm"), ("algo",)),
    **dict.fromkeys(("policy", "policy_name", "policy_type"), ("policy", "name")),
    "policy_kwargs": ("policy", "kwargs"),
    "net_arch": ("policy", "kwargs", "net_arch"),
    **dict.fromkeys(("policy_hidden_layers", "actor_hidden_dims"), ("policy", "kwargs", "net_arch", "pi")),
    **dict.fromkeys(("value_hidden_layers", "critic_hidden_dims"), ("policy", "kwargs", "net_arch", "vf")),
    "seed": ("seed",),
    "device": ("device",),
    **dict.fromkeys(("n_eval_envs", "num_eval_envs"), ("eval", "n_envs")),
    **dict.fromkeys(("n_eval_episodes", "eval_episodes"), ("eval", "episodes")),
    "eval_freq": ("eval", "every"),
    "save_freq": ("checkpoint", "every"),
    "save_replay_buffer": ("checkpoint", "replay_buffer"),
}  # fmt: skip
# Counted in steps of the vectorised environment, as SB3's callbacks do; a run file counts environment steps.
PER_ENV = (("eval", "every"), ("checkpoint", "every"))
# What a name of a size has in it; such a constant that is not read is told of.
SIZE_WORDS = ("shape", "size", "width", "height", "channels", "capacity", "hidden", "dim", "layers", "workers", "batch")
CONFIG_CLASSES = ("args", "config", "cfg", "hyperparams", "hyperparameters")
CONFIG_DICTS = (*CONFIG_CLASSES, "params", "settings")
MAIN_FUNCTIONS = ("main", "train", "run", "run_training")
HIDDEN = frozenset({"hidden_sizes", "hidden_layers", "hidden_layer_sizes", "hidden_dims", "hidden_units", "layers"})
NETWORKS = {**dict.fromkeys(("actor", "policy", "pi"), "pi"), **dict.fromkeys(("critic", "value", "vf"), "vf")}
LEAST_ENTRY = 2  # settings of a run in a mapping of a mapping of configurations


def drafts(text: str, path: str) -> list[Draft]:
    """Return the runs that the constants of a module describe, as far as they do.

    That is one, or one for each entry of a dict of configurations: `CONFIGS = {"small": {"N_ENVS": 8}, ...}`.

    Raises:
        BadInput: it is not Python, or has no constant that a run file has a place for.
    """
    values = list(_evaluated(text, path))
    draft = Draft(Path(path).stem, path, settle=settle, finish=finish)
    _put_named(draft, [((name,), value, line) for name, value, line in values])
    found = [draft]
    if not draft.data and not draft.unknown:
        found = [each for _, value, line in values for each in _entries(value, path, line)]
    if not found:
        hint = "it needs an SB3 constructor call, or constants such as NUM_ENVS, N_STEPS, BATCH_SIZE"
        raise BadInput("holds no training run and no constant of one", path=path, hint=hint)
    for each in found:
        each.data.setdefault("env", {})
    return found


def settings_draft(data: dict[Any, Any], lines: Lines, path: str) -> Draft | None:
    """Return the run that the settings of a program of its own describe, as far as they do; None where none is found.

    Of a name that stands in several sections, the outermost counts: others are of an evaluation or a quick test.
    """
    draft = Draft(Path(path).stem, path, settle=settle, finish=finish)
    walked = sorted(walked_settings(data), key=lambda each: len(each[0]))
    used = _put_named(draft, [(key, value, lines.get(key)) for key, value in walked if not isinstance(value, dict)])
    if not any(key[0] in ("env", "hyperparams") for key in draft.lines):
        return None
    sections = [
        str(key) for key, value in data.items() if isinstance(value, dict) and not any(u[0] == key for u in used)
    ]
    if sections:
        note(f"sections not read: {listed(sections)}")
    draft.data.setdefault("env", {})
    return draft


def walked_settings(data: dict[Any, Any], at: Key = ()) -> Iterator[tuple[Key, Any]]:
    """Yield every key path with its value, outer ones first."""
    for key, value in data.items():
        yield (*at, key), value
        if isinstance(value, dict):
            yield from walked_settings(value, (*at, key))


def _entries(value: Any, path: str, line: int) -> Iterator[Draft]:
    for name, entry in value.items() if isinstance(value, dict) else ():
        if not isinstance(entry, dict):
            continue
        draft = Draft(f"{Path(path).stem}:{name}", path, settle=settle, finish=finish)
        if len(_put_named(draft, [((key,), each, line) for key, each in entry.items()])) >= LEAST_ENTRY:
            yield draft


def _put_named(draft: Draft, values: list[tuple[Key, Any, int | None]]) -> list[Key]:
    """Put what has a place in a run file into the draft; return the names that were used. The rest is in `others`."""
    used: list[Key] = []
    for key, value, line in values:
        place, label = _place(key), ".".join(map(str, key))
        if place is None:
            if isinstance(value, bool | int | float | str | list):
                draft.others.setdefault(str(key[-1]).lower(), (value, line, label))
        elif len(key) > 1 and place in draft.lines:
            continue  # of an inner section, as that of an evaluation
        elif isinstance(value, NotKnown):
            draft.unknown[place] = (line, value.text)
        elif _fits(place, value):
            draft.put(place, value, line)
            used.append(key)
    draft.used += list(dict.fromkeys(".".join(map(str, key)) for key in used))
    return used


def _place(key: Key) -> Key | None:
    name = str(key[-1]).lower()
    if name in HIDDEN and len(key) > 1:
        network = NETWORKS.get(str(key[-2]).lower())
        return None if network is None else ("policy", "kwargs", "net_arch", network)
    return NAMES.get(name)


def _is_size(label: str, value: Any) -> bool:
    """Return whether a constant looks like something that memory depends on: `OBS_SHAPE = (72, 80, 3)`."""
    name = label.rpartition(".")[2]
    numbers = value if isinstance(value, list) else [value]
    whole = bool(numbers) and all(isinstance(n, int) and not isinstance(n, bool) and n > 0 for n in numbers)
    return whole and any(word in name.lower() for word in SIZE_WORDS)


def _evaluated(text: str, path: str) -> Iterator[tuple[str, Any, int]]:
    """Yield (name, value or NotKnown, line) of every constant, each in the light of those before it."""
    values: dict[str, Any] = {}
    for name, node, line in _assignments(parse_module(text, path)):
        try:
            values[name] = _folded(name, node, values)
            yield name, plain(values[name]), line
        except Unfoldable:
            values.pop(name, None)
            yield name, NotKnown(node), line


def settle(draft: Draft, given: Collection[Key]) -> None:
    """Finish the draft once base run, constants and overrides are one: what some constants mean depends on the rest.

    Args:
        given: the keys that overrides have set, which already mean what a run file means.

    Raises:
        BadInput: the algorithm or the observations are given nowhere.
    """
    data = draft.data
    missing = {}
    if not data.get("algo"):
        missing["algorithm"] = "--set algo=PPO"
    if not get(data, ("env", "spaces")) and not get(data, ("env", "id")):
        missing["spaces"] = "--set env.spaces='{observation: ..., action: ...}'"
    if missing:
        hint = f"add --like RUN, which says what this file does not, or {' '.join(missing.values())}"
        raise BadInput(f"no {' and no '.join(missing)} found in this file", path=draft.path, hint=hint)
    finish(draft, given)
    _say_what_was_used(draft)


def _say_what_was_used(draft: Draft) -> None:
    """Note once what of a file the bill was made of, and what changes nothing in it: sizes first, and words last."""
    unused = [
        (not _is_size(label, value), isinstance(value, str), label if line is None else f"{label} (line {line})")
        for value, line, label in draft.others.values()
        if label.isupper() or _is_size(label, value)
    ]
    names = listed([label for *_, label in sorted(unused, key=lambda each: each[:2])], most=2 * MOST_NAMED)
    rest = f"; not used: {names}" if unused else ""
    if draft.used:
        note(f"read from {draft.path}: {listed(draft.used, most=2 * MOST_NAMED)}{rest}")


def finish(draft: Draft, given: Collection[Key]) -> None:
    """Give each constant its meaning, now that the algorithm is known."""
    data = draft.data
    length = data.get("hyperparams", {}).pop(EPISODE, None)
    algorithm = find_algorithm(str(data.get("backend", DEFAULT_BACKEND)), str(data["algo"]))
    if algorithm is not None:
        data["algo"] = algorithm.name
    if length is not None and algorithm is not None and "episode_length" in algorithm.defaults:
        data["hyperparams"].setdefault("episode_length", length)
    elif length is not None and algorithm is not None:
        place: Key = ("hyperparams", "n_steps") if algorithm.family == "on-policy" else ("env", "episode_steps")
        if place not in given and place not in draft.lines:  # a module that has N_STEPS too means the episode
            draft.put(place, length, draft.lines.get(("hyperparams", EPISODE)))
        elif ("env", "episode_steps") not in given and isinstance(length, int):
            draft.put(("env", "episode_steps"), length, draft.lines.get(("hyperparams", EPISODE)))
    library = backend_named(str(data.get("backend", DEFAULT_BACKEND)))
    dropped = library.reader.adopt_words(data, {key for key in draft.lines if key not in given})
    if dropped:
        note(f"not used, as {library.title} has no such setting: {', '.join(dropped)}")
    envs = get(data, ("env", "n_envs"), 1)
    for part, key in PER_ENV:
        value = get(data, (part, key))
        written = (part, key) in draft.lines and (part, key) not in given
        if written and isinstance(value, int) and isinstance(envs, int):
            data[part][key] = value * envs


def _assignments(tree: ast.Module) -> Iterator[tuple[str, ast.expr, int]]:
    """Yield (name, value, line) of module constants, config classes' fields, argparse defaults and main()'s constants.

    A name that a module and its `main()` both bind has the value of `main()`, which comes later.
    """
    for statement in tree.body:
        match statement:
            case ast.Assign(targets=targets):
                for target in targets:
                    if isinstance(target, ast.Name):
                        yield target.id, statement.value, statement.lineno
                        yield from _items(target.id, statement.value)
                    elif isinstance(target, ast.Tuple) and isinstance(statement.value, ast.Tuple):
                        for part, value in zip(target.elts, statement.value.elts, strict=False):
                            if isinstance(part, ast.Name):
                                yield part.id, value, statement.lineno
            case ast.AnnAssign(target=ast.Name(id=name), value=value) if value is not None:
                yield name, value, statement.lineno
            case ast.ClassDef(name=name) if name.lower() in CONFIG_CLASSES or name.lower().endswith(("config", "args")):
                yield from _assignments(ast.Module(body=statement.body, type_ignores=[]))
            case ast.FunctionDef(name=name, body=body) if name in MAIN_FUNCTIONS:
                constants = [s for s in body if isinstance(s, ast.Assign) and _is_constant(s)]
                yield from _assignments(ast.Module(body=[*constants], type_ignores=[]))
            case ast.FunctionDef(name=name) if "config" in name.lower():  # def get_default_config(): return {...}
                for node in walk(statement):
                    if isinstance(node, ast.Return) and node.value is not None:
                        yield from _items("config", node.value)
    for node in nodes_of(tree):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "add_argument":
            found = argument_default(node)
            if found is not None:
                yield *found, node.lineno


def _items(name: str, node: ast.expr) -> Iterator[tuple[str, ast.expr, int]]:
    """Yield (name, value, line) of the settings in a dict called config; none of others."""
    if isinstance(node, ast.Dict) and name.lower().removeprefix("default_") in CONFIG_DICTS:
        for key, value in zip(node.keys, node.values, strict=True):
            if isinstance(key, ast.Constant) and isinstance(key.value, str):
                yield key.value, value, value.lineno


def _is_constant(statement: ast.Assign) -> bool:
    """Return whether it is `N_ENVS = 16` or `config = {...}`, and not a variable of the function."""
    names = [target.id for target in statement.targets if isinstance(target, ast.Name)]
    as_dict = isinstance(statement.value, ast.Dict) and any(name.lower() in CONFIG_DICTS for name in names)
    return len(names) == len(statement.targets) and (as_dict or all(name.isupper() for name in names))


def argument_default(call: ast.Call) -> tuple[str, ast.expr] | None:
    """Return the name and default of an `add_argument` call: `args.n_envs` for `--n-envs`; None when it has none.

    A default that is a text is converted by `type`, as argparse does: it is the call then.
    """
    flags = [a.value for a in call.args if isinstance(a, ast.Constant) and isinstance(a.value, str)]
    keywords = {k.arg: k.value for k in call.keywords}
    name = next((f for f in flags if f.startswith("--")), flags[0] if flags else "")
    if isinstance(keywords.get("dest"), ast.Constant):
        name = str(keywords["dest"].value)  # type: ignore[attr-defined]
    name = name.lstrip("-").replace("-", "_")
    action = keywords.get("action")
    flag = action.value if isinstance(action, ast.Constant) else None
    if not name:
        return None
    if "default" in keywords:
        default, kind = keywords["default"], keywords.get("type")
        if kind is not None and isinstance(default, ast.Constant) and isinstance(default.value, str):
            default = ast.copy_location(ast.Call(kind, [default], []), default)
        return name, default
    if flag in ("store_true", "store_false"):
        return name, ast.Constant(flag == "store_false")
    return name, ast.Constant(None)


def _folded(name: str, node: ast.expr, values: dict[str, Any]) -> Any:
    value = fold(node, values)
    if isinstance(value, Symbol) and name.lower() not in ("policy", "algo", "algorithm"):
        raise Unfoldable(value)
    return value


def _fits(place: Key, value: Any) -> bool:
    """Return whether `value` can be what the name suggests: `POLICY = {...}` of some other meaning is not ours."""
    if value is None:
        return False
    if place == ("algo",):
        return isinstance(value, str) and any(find_algorithm(backend.name, value) for backend in backends())
    if place in (("policy", "name"), ("env", "id"), ("device",)):
        return isinstance(value, str)
    if place[0] == "policy":
        return isinstance(value, list | dict)
    return not isinstance(value, list | dict)
