"""RLlib configurations as scripts write them, `PPOConfig().training(...)` in a chain or in statements; their rules."""

import ast
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from legroom.backends.rllib.translation import RLLIB_KEYS
from legroom.checking.rule_helpers import script_rule
from legroom.model.draft import Draft, Key
from legroom.model.rule import Found
from legroom.reading.interpreter.known_values import integer_of, put_value, value_of
from legroom.reading.interpreter.script import Script, read_script
from legroom.reading.interpreter.values import Unfoldable
from legroom.reading.reading_notes import note
from legroom.reading.source import unparsed

# ray/rllib/algorithms/ppo/ppo.py, release 2.60
DEFAULT_BATCH, DEFAULT_MINIBATCH = 4000, 128
_BATCH = ("train_batch_size_per_learner", "train_batch_size")
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
    for root, algo in _roots(script):
        settings = _settings(script, root) if algo == "PPO" else None
        if settings is not None:
            yield settings


def _settings(script: Script, root: ast.Call) -> RllibSettings | None:
    given = {OLDER.get(name, name): node for name, node in _given(script, root)}
    batch_name = next((name for name in _BATCH if name in given), "train_batch_size")
    # train_batch_size is divided by the number of learners; then it is not the size that counts
    spread = batch_name == "train_batch_size" and not {"learners", "resources"}.isdisjoint(
        map(_method, chain(script, root))
    )
    if "" in given or spread:
        return None
    nodes = given.get(batch_name), given.get("minibatch_size")
    place = nodes[1] or nodes[0]
    batch, small = (
        default if node is None else integer_of(script, node)
        for node, default in zip(nodes, (DEFAULT_BATCH, DEFAULT_MINIBATCH), strict=True)
    )
    if batch is None or small is None or place is None:
        return None
    return RllibSettings(batch, small, nodes[0] is not None, nodes[1] is not None, place.lineno, batch_name)


def chain(script: Script, root: ast.Call) -> Iterator[ast.Call]:
    """Yield the method calls on a configuration: those chained to it, and those on the name it is bound to."""
    last = root
    for last in script.scopes.chained(root):
        yield last
    for use in script.scopes.uses_of(last):
        yield from script.scopes.chained(use)


def _method(call: ast.Call) -> str:
    return call.func.attr if isinstance(call.func, ast.Attribute) else ""


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
    for name, node in _given(script, root):
        key = OLDER.get(name, name)
        if not name:
            draft.unknown[("hyperparams", "train_batch_size")] = (node.lineno, unparsed(node))
        elif name == "env":
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


def _given(script: Script, root: ast.Call) -> Iterator[tuple[str, ast.expr]]:
    """Yield every setting of a configuration, the later ones last; `training(**settings)` has no name."""
    *_, last = root, *script.scopes.chained(root)
    for call in chain(script, root):
        if _method(call) == "environment" and call.args:
            yield "env", call.args[0]
        for keyword in call.keywords:
            if keyword.arg is not None or _method(call) == "training":
                yield keyword.arg or "", keyword.value
    for use in script.scopes.uses_of(last):  # config.minibatch_size = 512
        target = script.scopes.parents.get(id(use))
        where = script.scopes.parents.get(id(target))
        if isinstance(target, ast.Attribute) and isinstance(where, ast.Assign) and target in where.targets:
            yield target.attr, where.value


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


@script_rule("LR006")
def minibatch_exceeds_batch(script: Script) -> Iterable[Found]:
    """A minibatch over the train batch, which RLlib refuses."""
    for settings in rllib_settings(script):
        if settings.minibatch > settings.batch:
            default = "" if settings.gives_minibatch else " (RLlib's default)"
            whole = "" if settings.gives_batch else " (RLlib's default)"
            yield Found(
                f"minibatch_size {settings.minibatch:,}{default} is over {settings.batch_name} {settings.batch:,}"
                f"{whole}: RLlib raises ValueError",
                f"minibatch_size={settings.batch} or less",
                settings.line,
            )


@script_rule("LR007")
def minibatch_rest(script: Script) -> Iterable[Found]:
    """A train batch that is no whole number of minibatches."""
    for settings in rllib_settings(script):
        if not (settings.gives_batch and settings.gives_minibatch and settings.minibatch):
            continue
        rest = settings.batch % settings.minibatch
        if rest and settings.batch > settings.minibatch:
            yield Found(
                f"{settings.batch:,} samples are not a multiple of minibatch_size {settings.minibatch:,}; RLlib fills "
                f"the last minibatch of the pass with repeated samples",
                "a minibatch_size that divides the train batch", settings.line, severity="info",
            )  # fmt: skip


SCRIPT_RULES = (minibatch_exceeds_batch, minibatch_rest)
