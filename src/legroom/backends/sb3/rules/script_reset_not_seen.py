"""LR102: `learn(reset_num_timesteps=False)` in a loop, which resets nothing and sees no reset of others."""

import ast
from collections.abc import Iterator

from legroom.backends.sb3.script_calls import learn_calls, model_calls
from legroom.backends.sb3.script_envs import origins_of
from legroom.checking.rule_helpers import per_script
from legroom.model.rule import Found, Rule
from legroom.reading.interpreter.script import Script, argument, dotted
from legroom.reading.source import walk

_KEPT = "SB3 goes on from the observation that it kept (_last_obs)"


def look(script: Script) -> Iterator[Found]:
    models = list(model_calls(script))
    for loop in (node for node in script.nodes if isinstance(node, ast.For | ast.While)):
        inside = {id(part) for part in walk(loop)}
        if any(id(model.call) in inside for model in models):
            continue  # a new model has kept nothing
        for learn in learn_calls(script):
            goes_on = argument(learn, "reset_num_timesteps", 4)
            if id(learn) not in inside or not (isinstance(goes_on, ast.Constant) and goes_on.value is False):
                continue
            reset = next((call for call in script.calls if id(call) in inside and _resets(script, call, learn)), None)
            if reset is None:
                message = f"learn(reset_num_timesteps=False) in a loop resets no environment: {_KEPT}"
                yield Found(message, "none needed where episodes may go on", learn.lineno, "info")
            else:
                message = (
                    f"this reset is not seen by learn(reset_num_timesteps=False) in line {learn.lineno}: {_KEPT}, so "
                    "the first step of every call is stored with an observation of the episode before"
                )
                yield Found(message, "remove it, or set model._last_obs to what it returns", reset.lineno)


def _resets(script: Script, call: ast.Call, learn: ast.Call) -> bool:
    """Return whether a call resets an environment that a model of the script trains on."""
    if not (isinstance(call.func, ast.Attribute) and call.func.attr == "reset"):
        return False
    env, owner = call.func.value, dotted(learn.func.value) if isinstance(learn.func, ast.Attribute) else None
    name = dotted(env.func if isinstance(env, ast.Call) else env)
    if owner and name in (f"{owner}.get_env", f"{owner}.env"):
        return True
    trained = [model.env for model in model_calls(script) if model.env is not None]
    return any(
        (name is not None and name == dotted(each)) or origins_of(script, env) & origins_of(script, each)
        for each in trained
    )


RULE = Rule(
    code="LR102",
    name="reset-not-seen",
    severity="warning",
    what="learn(reset_num_timesteps=False) in a loop that resets the environment by hand, or relies on a reset.",
    why=(
        "SB3 resets its environments only where reset_num_timesteps is True or nothing was learned yet. Otherwise the "
        "next call continues with the observation that it kept: a reset in between is not noticed, and the first "
        "transition joins two episodes."
    ),
    example="for _ in range(10):\n    env.reset()\n    model.learn(16_384, reset_num_timesteps=False)\n",
    remedy="One call of learn; or leave out the reset: episodes end by themselves, and the environment then resets.",
    look=per_script(look),
)
