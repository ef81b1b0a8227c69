"""LR093: a MaskablePPO evaluated by what knows no masks."""

import ast
from collections.abc import Iterable

from legroom.backends.sb3.script_calls import callback_name, model_calls
from legroom.checking.rule_helpers import per_script
from legroom.model.rule import Found, Rule
from legroom.reading.interpreter.script import Script, argument

_PLAIN = "stable_baselines3.common.evaluation.evaluate_policy"


def look(script: Script) -> Iterable[Found]:
    models = {model.algorithm for model in model_calls(script)}
    if models != {"MaskablePPO"}:
        return
    for call in script.calls:
        name = script.qualified(call.func) or ""
        if name == _PLAIN and isinstance(argument(call, "model", 0), ast.Name | ast.Attribute):
            what, other = "evaluate_policy of stable_baselines3", "sb3_contrib.common.maskable.evaluation"
        elif callback_name(script, call.func) == "EvalCallback" and name.startswith("stable_baselines3."):
            what, other = "EvalCallback", "MaskableEvalCallback of sb3_contrib.common.maskable.callbacks"
        else:
            continue
        yield Found(
            f"{what} asks MaskablePPO for actions without masks: it is judged by invalid actions",
            f"use {other}",
            call.lineno,
        )


RULE = Rule(
    code="LR093",
    name="masks-ignored",
    severity="warning",
    what="A MaskablePPO is evaluated by stable_baselines3's own EvalCallback or evaluate_policy.",
    why="They call predict() without action_masks, so the policy may choose what the environment forbids. The best "
    "model is then chosen by actions that never occur in training.",
    example='model = MaskablePPO("MlpPolicy", env)\nmodel.learn(10_000, callback=EvalCallback(eval_env))\n',
    remedy="MaskableEvalCallback, or evaluate_policy of sb3_contrib.common.maskable.evaluation.",
    look=per_script(look),
)
