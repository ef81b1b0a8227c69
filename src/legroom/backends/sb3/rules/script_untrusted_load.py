"""LR053, of SB3: a model, replay buffer or normaliser from elsewhere."""

import ast
from collections.abc import Iterable
from dataclasses import replace

from legroom.backends.sb3.script_calls import is_algorithm
from legroom.backends.sb3.script_envs import library_class
from legroom.checking.rule_helpers import per_script
from legroom.checking.rules.scripts import untrusted_load
from legroom.model.rule import Found
from legroom.reading.interpreter.script import Script, argument


def look(script: Script) -> Iterable[Found]:
    return untrusted_load.untrusted_loads(script, _loading)


def _loading(script: Script, call: ast.Call) -> tuple[str, ast.expr | None] | None:
    if not isinstance(call.func, ast.Attribute):
        return None
    owner = call.func.value
    if call.func.attr == "load":
        algorithm = is_algorithm(script, owner)
        if algorithm is not None:
            return f"{algorithm}.load", argument(call, "path", 0)
        if library_class(script, owner) == "VecNormalize":
            return "VecNormalize.load", argument(call, "load_path", 0)
    if call.func.attr == "load_replay_buffer":
        return "load_replay_buffer", argument(call, "path", 0)
    return None


RULE = replace(untrusted_load.RULE, look=per_script(look))
