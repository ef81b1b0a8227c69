"""brax training calls of a script: `ppo.train(...)`, also through `functools.partial`, with their arguments."""

import ast
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from legroom.backends.base import find_algorithm
from legroom.backends.brax.vocabulary import NETWORKS, TRAIN
from legroom.model.draft import Draft
from legroom.reading.interpreter.known_values import integer_of, put_value, value_of
from legroom.reading.interpreter.script import Script, read_script
from legroom.reading.interpreter.values import Unfoldable
from legroom.reading.source import unparsed

_TRAIN = {"brax.training.agents.ppo.train.train": "PPO", "brax.training.agents.sac.train.train": "SAC",
          "brax.training.agents.ppo.train": "PPO", "brax.training.agents.sac.train": "SAC"}  # fmt: skip
# Arguments that are functions or objects of the user's program; a bill has nothing to do with them.
_OBJECTS = frozenset({"environment", "eval_env", "progress_fn", "policy_params_fn", "randomization_fn", "wrap_env_fn"})


@dataclass(frozen=True)
class BraxCall:
    """One training call."""

    algorithm: str
    call: ast.Call
    given: Mapping[str, ast.expr]  # the keyword arguments as expressions; those of `**settings` as their values
    complete: bool  # whether what is not in `given` certainly has brax's default


def follows(script: Script) -> bool | None:
    """Return whether the sizes of a training of the script are known; None where it has none."""
    calls = list(brax_calls(script))
    return any(_has_known_envs(script, each) for each in calls) if calls else None


def _has_known_envs(script: Script, call: BraxCall) -> bool:
    given = call.given.get("num_envs")
    return call.complete if given is None else bool(integer_of(script, given))


def brax_calls(script: Script) -> Iterator[BraxCall]:
    """Yield the brax PPO and SAC trainings."""
    if not any(s.imports("brax") for s in script.followed):
        return
    for call in script.calls:
        algorithm = _TRAIN.get(script.qualified(call.func) or "")
        if algorithm is not None:
            yield _read(script, algorithm, [call])
        elif (script.qualified(call.func) or "").endswith("partial") and call.args:
            algorithm = _TRAIN.get(script.qualified(call.args[0]) or "")
            if algorithm is not None:
                yield _read(script, algorithm, [call, *_later_calls(script, call)])


def _read(script: Script, algorithm: str, calls: list[ast.Call]) -> BraxCall:
    given: dict[str, ast.expr] = {}
    complete = True
    for call in calls:
        for keyword in call.keywords:
            if keyword.arg is not None:
                given[keyword.arg] = keyword.value
                continue
            try:
                settings = value_of(script, keyword.value)
            except Unfoldable:
                settings = None
            if isinstance(settings, dict):
                place = keyword.value
                given |= {str(k): ast.copy_location(ast.Constant(v), place) for k, v in settings.items()}
            else:
                complete = False
    if len(calls) == 1 and not isinstance(calls[0].func, ast.Attribute | ast.Name):
        complete = False
    return BraxCall(algorithm, calls[0], given, complete)


def _later_calls(script: Script, partial: ast.Call) -> Iterator[ast.Call]:
    """Yield the calls of the name that a partial is bound to."""
    for use in script.scopes.uses_of(partial):
        call = script.scopes.parents.get(id(use))
        if isinstance(call, ast.Call) and call.func is use:
            yield call


def drafts(text: str, path: str) -> list[Draft]:
    """Return the runs of a script's training calls; what only running could tell is not known in them.

    Raises:
        BadInput: it is not Python.
    """
    if "brax" not in text:
        return []
    script = read_script(text, path)
    found = [_draft(script, call, path) for call in brax_calls(script)]
    for number, draft in enumerate(found) if len(found) > 1 else ():
        draft.name = f"{draft.name}:{number + 1}"
    return found


def _draft(script: Script, call: BraxCall, path: str) -> Draft:
    draft = Draft(Path(path).stem, path)
    line = call.call.lineno
    draft.put(("backend",), "brax")
    draft.put(("algo",), call.algorithm, line)
    draft.put(("env",), {}, line)
    algorithm = find_algorithm("brax", call.algorithm)
    assert algorithm is not None
    for name, node in call.given.items():
        place = TRAIN.get(name, ("seed",) if name == "seed" else ("hyperparams", name))
        if name == "network_factory":
            _networks(script, node, draft)
        elif name == "environment":
            _environment(script, node, draft)
        elif name not in _OBJECTS and (name in algorithm.defaults or name in TRAIN or name == "seed"):
            put_value(script, node, draft, place)
    if not call.complete:
        draft.unknown[("env", "n_envs")] = (line, "passed in arguments that are not known")
    return draft


def _networks(script: Script, node: ast.expr, draft: Draft) -> None:
    """Take layer widths from `functools.partial(make_ppo_networks, policy_hidden_layer_sizes=...)`."""
    call = _bound(script, node)
    if not isinstance(call, ast.Call):
        draft.unknown[("policy", "kwargs")] = (node.lineno, unparsed(node))
        return
    for keyword in call.keywords:
        if keyword.arg is not None and keyword.arg in NETWORKS:
            put_value(script, keyword.value, draft, NETWORKS[keyword.arg])
        elif keyword.arg is None:
            draft.unknown[("policy", "kwargs")] = (node.lineno, unparsed(keyword.value))


def _environment(script: Script, node: ast.expr, draft: Draft) -> None:
    """Take the name from `envs.get_environment("ant")`; an environment of the user's own has no id."""
    call = _bound(script, node)
    name = script.qualified(call.func) or "" if isinstance(call, ast.Call) else ""
    if isinstance(call, ast.Call) and name.startswith("brax.") and name.endswith((".get_environment", ".create")):
        given = call.args[0] if call.args else next((k.value for k in call.keywords if k.arg == "env_name"), None)
        if given is not None:
            put_value(script, given, draft, ("env", "id"))


def _bound(script: Script, node: ast.expr) -> ast.expr | None:
    """Return the expression itself, or the one that its name is bound to."""
    found = script.scopes.reaching(node) if isinstance(node, ast.Name) else []
    return found[0].value if len(found) == 1 else node
