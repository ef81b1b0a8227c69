"""RLlib configurations as scripts write them: `PPOConfig().training(...)`, one long chain or several statements."""

import ast
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from legroom.backends.rllib.translation import RLLIB_KEYS
from legroom.model.draft import Draft, Key
from legroom.reading.interpreter.known_values import integer_of, put_value, value_of
from legroom.reading.interpreter.script import Script, read_script
from legroom.reading.interpreter.values import Unfoldable
from legroom.reading.reading_notes import note
from legroom.reading.source import unparsed

# ray/rllib/algorithms/ppo/ppo.py, release 2.60
DEFAULT_BATCH, DEFAULT_MINIBATCH = 4000, 128
_BATCH = ("train_batch_size_per_learner", "train_batch_size")
_MINIBATCH = ("minibatch_size", "sgd_minibatch_size")
CONFIGS = {"PPOConfig": "PPO", "DQNConfig": "DQN", "SACConfig": "SAC"}
# Words of older releases, and where they belong now.
OLDER = {
    "num_rollout_workers": "num_env_runners", "num_workers": "num_env_runners", "sgd_minibatch_size": "minibatch_size",
    "num_envs_per_worker": "num_envs_per_env_runner", "num_cpus_per_worker": "num_cpus_per_env_runner",
    "num_sgd_iter": "num_epochs",
}  # fmt: skip
_USES_RAY = re.compile(r"^\s*(?:from|import)\s+ray\b", re.MULTILINE)
LAYERS = ("fcnet_hiddens", "model", "model_config", "model_config_dict")
_TRAINERS = ("Config", "Trainer", "tune.run", "Tuner", "PPO", "DQN", "SAC", "IMPALA", "APPO")


@dataclass(frozen=True)
class RllibSettings:
    """Sizes of one PPO configuration; what is not given has RLlib's default."""

    batch: int
    minibatch: int
    gives_batch: bool
    gives_minibatch: bool
    line: int
    batch_name: str


def follows(script: Script) -> bool | None:
    """Return whether the sizes of a PPO configuration of the script are known; None where nothing is trained."""
    if any(True for _ in rllib_settings(script)):
        return True
    called = (script.qualified(call.func) or "" for call in script.calls if script.imports("ray"))
    return False if any(name.startswith("ray.") and name.endswith(_TRAINERS) for name in called) else None


def rllib_settings(script: Script) -> Iterator[RllibSettings]:
    """Yield the PPO configurations whose sizes are known."""
    for root in script.calls if script.imports("ray") else ():
        name = script.qualified(root.func) or ""
        if name.startswith("ray.") and name.endswith(".PPOConfig"):
            settings = _settings(script, root)
            if settings is not None:
                yield settings


def _settings(script: Script, root: ast.Call) -> RllibSettings | None:
    keywords = (keyword for call in _trainings(script, root) for keyword in call.keywords)
    given = {keyword.arg: keyword.value for keyword in keywords} | set_fields(script, root)
    batch_name = next((name for name in _BATCH if name in given), "train_batch_size")
    # **settings, a keyword without a name, may hold any of them
    if None in given or _has_learners(script, root, batch_name):
        return None
    batch_node, small_node = given.get(batch_name), next((given[name] for name in _MINIBATCH if name in given), None)
    batch = DEFAULT_BATCH if batch_node is None else integer_of(script, batch_node)
    small = DEFAULT_MINIBATCH if small_node is None else integer_of(script, small_node)
    place = small_node or batch_node
    if batch is None or small is None or place is None:
        return None
    return RllibSettings(batch, small, batch_node is not None, small_node is not None, place.lineno, batch_name)


def chain(script: Script, root: ast.Call) -> Iterator[ast.Call]:
    """Yield the method calls on a configuration: those chained to it, and those on the name it is bound to."""
    last = root
    for last in script.scopes.chained(root):
        yield last
    for use in script.scopes.uses_of(last):
        yield from script.scopes.chained(use)


def set_fields(script: Script, root: ast.Call) -> dict[str | None, ast.expr]:
    """Return what `config.minibatch_size = 512` gives, on the name that the configuration is bound to."""
    *_, last = root, *script.scopes.chained(root)
    given: dict[str | None, ast.expr] = {}
    for use in script.scopes.uses_of(last):
        target = script.scopes.parents.get(id(use))
        where = script.scopes.parents.get(id(target))
        if isinstance(target, ast.Attribute) and isinstance(where, ast.Assign) and target in where.targets:
            given[target.attr] = where.value
    return given


def _trainings(script: Script, root: ast.Call) -> Iterator[ast.Call]:
    for call in chain(script, root):
        if isinstance(call.func, ast.Attribute) and call.func.attr == "training":
            yield call


def _has_learners(script: Script, root: ast.Call, batch_name: str) -> bool:
    """train_batch_size is divided by the number of learners; then it is not the size that counts."""
    return batch_name == "train_batch_size" and any(
        isinstance(call.func, ast.Attribute) and call.func.attr in ("learners", "resources")
        for call in chain(script, root)
    )


def drafts(text: str, path: str) -> list[Draft]:
    """Return the run of each configuration object; what only running could tell is not known in it.

    Raises:
        BadInput: it is not Python.
    """
    if not _USES_RAY.search(text):
        return []
    script = read_script(text, path)
    found = [_draft(script, root, algo, path) for root, algo in _roots(script)]
    for number, draft in enumerate(found) if len(found) > 1 else ():
        draft.name = f"{draft.name}:{number + 1}"
    return found


def _roots(script: Script) -> Iterator[tuple[ast.Call, str]]:
    for call in script.calls if script.imports("ray") else ():
        name = script.qualified(call.func) or ""
        algo = CONFIGS.get(name.rpartition(".")[2])
        if algo is not None and name.startswith("ray."):
            yield call, algo


def _draft(script: Script, root: ast.Call, algo: str, path: str) -> Draft:
    draft = Draft(Path(path).stem, path)
    draft.put(("backend",), "rllib")
    draft.put(("algo",), algo, root.lineno)
    draft.put(("env",), {}, root.lineno)
    unused = []
    for name, node in _given(script, root, draft):
        key = OLDER.get(name, name)
        if name == "env":
            put_value(script, node, draft, ("env", "id"))
        elif name in LAYERS:
            _layers(script, node, name, draft)
        elif key in RLLIB_KEYS:
            put_value(script, node, draft, ("hyperparams", key))
        elif any(word in name for word in ("size", "capacity", "buffer", "num_", "length")):
            unused.append(name)
    if unused:
        note(f"not used, though they look like sizes: {', '.join(unused)}")
    return draft


def _given(script: Script, root: ast.Call, draft: Draft) -> Iterator[tuple[str, ast.expr]]:
    """Yield every setting of a configuration, the later ones last."""
    for call in chain(script, root):
        method = call.func.attr if isinstance(call.func, ast.Attribute) else ""
        if method == "environment" and call.args:
            yield "env", call.args[0]
        for keyword in call.keywords:
            if keyword.arg is not None:
                yield keyword.arg, keyword.value
            elif method == "training":
                draft.unknown[("hyperparams", "train_batch_size")] = (call.lineno, unparsed(keyword.value))
    for name, node in set_fields(script, root).items():
        if name is not None:
            yield name, node


def _layers(script: Script, node: ast.expr, name: str, draft: Draft) -> None:
    """Take the widths of a fully connected network; another kind of network is not known."""
    place: Key = ("hyperparams", "fcnet_hiddens")
    if name == "fcnet_hiddens":
        put_value(script, node, draft, place)
        return
    try:
        value = value_of(script, node)
    except Unfoldable:
        value = None
    if not isinstance(value, dict):
        draft.unknown[("policy", "kwargs")] = (node.lineno, unparsed(node))
    elif "fcnet_hiddens" in value:
        draft.put(place, value["fcnet_hiddens"], node.lineno)
    else:
        note(f"not used: the network that {name} describes (line {node.lineno})")
