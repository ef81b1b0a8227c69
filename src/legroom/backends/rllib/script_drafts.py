"""Runs of RLlib configuration objects: `PPOConfig().environment("CartPole-v1").training(lr=1e-4)`, read by syntax."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

from legroom.backends.rllib.script_calls import chain, set_fields
from legroom.backends.rllib.translation import RLLIB_KEYS
from legroom.model.draft import Draft, Key
from legroom.reading.interpreter.asker import put_value, value_of
from legroom.reading.interpreter.script import Script, read_script
from legroom.reading.interpreter.values import Unfoldable
from legroom.reading.reading_notes import note
from legroom.reading.source import unparsed

CONFIGS = {"PPOConfig": "PPO", "DQNConfig": "DQN", "SACConfig": "SAC"}
# Words of older releases, and where they belong now.
OLDER = {
    "num_rollout_workers": "num_env_runners", "num_workers": "num_env_runners", "sgd_minibatch_size": "minibatch_size",
    "num_envs_per_worker": "num_envs_per_env_runner", "num_cpus_per_worker": "num_cpus_per_env_runner",
    "num_sgd_iter": "num_epochs",
}  # fmt: skip
_USES_RAY = re.compile(r"^\s*(?:from|import)\s+ray\b", re.MULTILINE)
LAYERS = ("fcnet_hiddens", "model", "model_config", "model_config_dict")


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
