"""LR051: evaluation that steps the environment the model is being trained on."""

import ast
from collections.abc import Iterable, Iterator

from legroom.backends.sb3.script_calls import callback_name, learn_calls, model_calls
from legroom.backends.sb3.script_envs import library_class, origins_of
from legroom.checking.rule_helpers import per_script
from legroom.model.rule import Found, Rule
from legroom.reading.interpreter.script import Script, argument, dotted, each_function
from legroom.reading.source import walk

_EVALUATING = ("EvalCallback", "MaskableEvalCallback")
_HINT = "make a second environment for evaluation, with the same wrappers"


def look(script: Script) -> Iterable[Found]:
    trained = [origins for model in model_calls(script) if (origins := origins_of(script, model.env))]
    for what, env, line in _evaluations(script):
        evaluated = origins_of(script, env)
        # every way to the evaluation env is the training env: no branch is left in which they differ
        if _is_models_own(script, env) or (evaluated and any(evaluated == origins for origins in trained)):
            yield Found(f"{what} evaluates on the environment that the model trains on", _HINT, line)
    yield from _inside_callbacks(script)


def _evaluations(script: Script) -> Iterator[tuple[str, ast.expr, int]]:
    for call in script.calls:
        name = callback_name(script, call.func)
        if name in _EVALUATING or _derives(script, call):
            env = argument(call, "eval_env", 0)
            if env is not None:
                yield name or "EvalCallback", env, call.lineno
    for call in learn_calls(script):
        env = argument(call, "eval_env")
        if env is not None and not isinstance(env, ast.Constant):
            yield "learn(eval_env=...)", env, call.lineno


def _derives(script: Script, call: ast.Call) -> bool:
    """Return whether the call makes an object of a subclass of EvalCallback that keeps its constructor."""
    definition = script.definition(call.func)
    if definition is None:
        return False
    other, cls = definition
    if not isinstance(cls, ast.ClassDef):
        return False
    evaluating = any(base.rpartition(".")[2] in _EVALUATING for base in other.bases(cls))
    return evaluating and not any(f.name == "__init__" for f in each_function(cls))


def _is_models_own(script: Script, env: ast.expr) -> bool:
    """Return whether it is `model.get_env()` or `model.env` of a model of this script."""
    if isinstance(env, ast.Name):
        bindings = script.scopes.reaching(env)
        if len(bindings) != 1 or bindings[0].kind != "assign" or bindings[0].value is None:
            return False
        env = bindings[0].value
    owner: ast.expr | None = None
    if (
        isinstance(env, ast.Call)
        and isinstance(env.func, ast.Attribute)
        and env.func.attr == "get_env"
        and not env.args
    ):
        owner = env.func.value
    elif isinstance(env, ast.Attribute) and env.attr == "env":
        owner = env.value
    if not isinstance(owner, ast.Name):
        return False
    made = [b.value for b in script.scopes.reaching(owner)]
    models = {id(model.call) for model in model_calls(script)}
    return bool(made) and all(id(value) in models for value in made)


def _inside_callbacks(script: Script) -> Iterator[Found]:
    """`evaluate_policy(self.model, self.training_env)` while learn() is collecting."""
    for cls in script.classes:
        if not any(base.rpartition(".")[2] == "BaseCallback" for base in script.bases(cls)):
            continue
        for method in each_function(cls):
            if method.name not in ("_on_step", "_on_rollout_start", "_on_rollout_end", "on_step"):
                continue
            for call in walk(method):
                if isinstance(call, ast.Call) and library_class(script, call.func) == "evaluate_policy":
                    env = argument(call, "env", 1)
                    own = env is not None and (
                        dotted(env) in ("self.training_env", "self.model.env")
                        or (isinstance(env, ast.Call) and dotted(env.func) == "self.model.get_env")
                    )
                    if own:
                        message = "evaluate_policy in a callback steps the environment that the model trains on"
                        yield Found(message, _HINT, call.lineno)


RULE = Rule(
    code="LR051",
    name="eval-on-training-env",
    severity="warning",
    what="EvalCallback is given the same environment that the model trains on.",
    why=(
        "Evaluation resets and steps that environment in the middle of a rollout. The next training step continues "
        "with an observation that is no longer current, and with VecNormalize the statistics mix too."
    ),
    example='model = PPO("MlpPolicy", env)\neval_callback = EvalCallback(env, eval_freq=10_000)\n',
    remedy="eval_env = make_vec_env(...) of its own, wrapped alike; EvalCallback(eval_env).",
    look=per_script(look),
)
