"""Callbacks and evaluation in SB3's scripts: never run, on the wrong environment, or in other steps than it seems."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Iterator

from legroom.backends.sb3.script_calls import (
    callback_name,
    learn_calls,
    library_class,
    model_calls,
    origins_of,
    training_envs,
)
from legroom.checking.rule_helpers import script_rule
from legroom.model.rule import Found
from legroom.reading.interpreter.known_values import integer_of
from legroom.reading.interpreter.scopes import Binding, NameScope
from legroom.reading.interpreter.script import Script, argument, dotted, each_function, has_hidden_arguments
from legroom.reading.source import walk

# a list that is only added to is not used
_ADDING = ("append", "extend", "insert")
_HIDDEN_USES = ("globals", "locals", "vars", "eval", "exec")


@script_rule("LR050")
def callback_not_used(script: Script) -> Iterable[Found]:
    """A callback that is made but never handed to anything."""
    if not any(True for _ in learn_calls(script)):
        return  # a module that only makes callbacks hands them to others
    if any(script.qualified(call.func) in _HIDDEN_USES for call in script.calls):
        return
    for binding in (each for scope in script.scopes.all for each in _unused(script, scope)):
        what = _callback(script, binding.value) or "list of callbacks"
        yield Found(
            f"{binding.name} ({what}) is created but never passed to learn(), so it never runs",
            hint=f"learn(..., callback=[..., {binding.name}]), or add it to the CallbackList",
            line=getattr(binding.node, "lineno", None),
        )
    yield from _dropped(script)
    yield from _attributes(script)


def _unused(script: Script, scope: NameScope) -> Iterator[Binding]:
    """Yield callbacks (and lists of them) bound in `scope` to a name that nobody reads."""
    if isinstance(scope.node, ast.ClassDef):
        return
    for name, bindings in scope.bindings.items():
        if name.startswith("_") or any(b.kind != "assign" for b in bindings):
            continue
        if not all(_callback(script, b.value) or _is_list_of_callbacks(script, b.value) for b in bindings):
            continue
        if scope is script.scopes.root and any(_mentions(text, name) for text in script.importers):
            continue  # another file may import it
        if not any(_counts(script, use) for use in scope.uses.get(name, ())):
            yield bindings[-1]


def _callback(script: Script, node: ast.expr | None) -> str | None:
    return callback_name(script, node.func) if isinstance(node, ast.Call) else None


def _is_list_of_callbacks(script: Script, node: ast.expr | None) -> bool:
    """Return whether `node` is a list literal that holds at least one callback and nothing else."""
    if not isinstance(node, ast.List) or not node.elts:
        return False
    for item in node.elts:
        if isinstance(item, ast.Name):
            bindings = script.scopes.reaching(item)
            if len(bindings) != 1 or not _callback(script, bindings[0].value):
                return False
        elif not _callback(script, item):
            return False
    return True


def _counts(script: Script, use: ast.Name) -> bool:
    """Return whether a load of the name can lead to the callback being run."""
    parent = script.scopes.parents.get(id(use))
    if isinstance(parent, ast.Call) and script.qualified(parent.func) == "print":
        return False
    if isinstance(parent, ast.Attribute) and parent.attr in _ADDING:
        return False
    return not isinstance(parent, ast.Expr)  # a notebook cell that shows it


def _mentions(text: str, name: str) -> bool:
    return re.search(rf"\b{re.escape(name)}\b", text) is not None


def _dropped(script: Script) -> Iterator[Found]:
    for node in script.nodes:
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Call):
            what = callback_name(script, node.value.func)
            if what is not None:
                yield Found(f"{what} is created and discarded", "pass it to learn(callback=...)", node.lineno)


def _attributes(script: Script) -> Iterator[Found]:
    """`self.eval_callback = EvalCallback(...)` where the attribute is mentioned nowhere else, here or beside."""
    for node in script.nodes:
        if not (isinstance(node, ast.Assign) and len(node.targets) == 1 and isinstance(node.targets[0], ast.Attribute)):
            continue
        target, what = node.targets[0], _callback(script, node.value)
        if what is None or not (isinstance(target.value, ast.Name) and target.value.id == "self"):
            continue
        cls = script.scopes.class_of(node)
        learns = cls is not None and any(
            isinstance(n, ast.Call) and isinstance(n.func, ast.Attribute) and n.func.attr == "learn" for n in walk(cls)
        )
        mentioned = len(re.findall(rf"\b{re.escape(target.attr)}\b", script.text))
        if learns and mentioned == 1 and not any(_mentions(text, target.attr) for text in script.importers):
            yield Found(
                f"self.{target.attr} ({what}) is created but never passed to learn(), so it never runs",
                f"learn(..., callback=[..., self.{target.attr}])", node.lineno,
            )  # fmt: skip


_EVALUATING = ("EvalCallback", "MaskableEvalCallback")
_HINT = "make a second environment for evaluation, with the same wrappers"


@script_rule("LR051")
def eval_on_training_env(script: Script) -> Iterable[Found]:
    """Evaluation that steps the environment the model is being trained on."""
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


# the argument and its position in SB3 2.9; EveryNTimesteps counts environment steps and is not here
COUNTED = {
    "CheckpointCallback": ("save_freq", 0),
    "EvalCallback": ("eval_freq", 4),
    "MaskableEvalCallback": ("eval_freq", 4),
    "WandbCallback": ("model_save_freq", None),
}
_ON_POLICY_STEPS = {"PPO": 2048, "MaskablePPO": 2048, "TRPO": 2048, "RecurrentPPO": 128, "A2C": 5}
# the author says that they know: "per env", "in vec steps", "calls of env.step()", "times num_envs"
_KNOWN = re.compile(
    r"\b(per|each)[ _-]?(sub[ _-]?)?env|_per_env|vec\w*[ _-](env[ _-])?steps?\b|env\.step\(|\bcalls\b"
    r"|(\*|×|x|times) ?n(um)?_?envs?\b",
    re.I,
)
_ENVS = re.compile(r"env|cpu|proc|worker|parallel", re.I)
_EPISODE = re.compile(r"ep(isode)?_?(len|steps)|^n_steps$|^num_steps$|horizon|rollout", re.I)


@script_rule("LR052")
def frequency_in_vec_steps(script: Script) -> Iterable[Found]:
    """Save_freq and eval_freq count calls of env.step, each of which is n_envs steps."""
    counts = training_envs(script)
    n_envs = counts.pop() if len(counts) == 1 else None
    if n_envs is None or n_envs < 2:
        return
    for call, name, key, value in _frequencies(script):
        frequency = integer_of(script, value)
        if frequency is None or frequency < 2 or _is_adjusted(script, value, n_envs) or _says_so(script, call, value):
            continue
        steps, never = frequency * n_envs, _never(script, frequency * n_envs)
        message = (
            f"{name} counts vec-steps: {key} {frequency:,} × {n_envs} envs is every {steps:,} env steps"
            f"{_in_rollouts(script, steps, n_envs)}{never}"
        )
        yield Found(
            message, f"{key}=max({frequency} // {n_envs}, 1) for every {frequency:,} env steps", value.lineno,
            severity="warning" if never and not _is_about_episodes(value) else None,
        )  # fmt: skip


def _frequencies(script: Script) -> Iterator[tuple[ast.Call, str, str, ast.expr]]:
    for call in script.calls:
        name = callback_name(script, call.func)
        if name in COUNTED:
            key, position = COUNTED[name]
            value = argument(call, key, position)
            if value is not None:
                yield call, name, key, value


def _is_adjusted(script: Script, node: ast.expr, n_envs: int, depth: int = 0) -> bool:
    """Return whether the expression, or a constant it is made of, is divided by the number of environments."""
    for part in walk(node):
        if isinstance(part, ast.BinOp) and isinstance(part.op, ast.FloorDiv | ast.Div):
            divisor = integer_of(script, part.right)
            if divisor is None or divisor == n_envs or _ENVS.search(ast.unparse(part.right)):
                return True
        if isinstance(part, ast.Name | ast.Attribute) and depth < 4:
            for other, value in _definitions(script, part):
                if _is_adjusted(other, value, n_envs, depth + 1):
                    return True
    return False


def _definitions(script: Script, node: ast.Name | ast.Attribute) -> Iterator[tuple[Script, ast.expr]]:
    """Yield the expressions that a name stands for, also in a module beside the script."""
    if isinstance(node, ast.Name):
        bindings = script.scopes.reaching(node)
        targets = [binding.target for binding in bindings if binding.kind == "import"]
        yield from ((script, b.value) for b in bindings if b.kind == "assign" and b.value is not None)
    else:
        targets = [f"{script.qualified(node.value)}.{node.attr}"]
        for place, statement in script.stores_of(node.attr):
            if dotted(place) == dotted(node) and isinstance(statement, ast.Assign):
                yield script, statement.value
    for target in targets:
        module, _, last = target.rpartition(".")
        other = script.modules.get(module)
        for binding in other.scopes.root.bindings.get(last, []) if other is not None else []:
            if other is not None and binding.value is not None:
                yield other, binding.value


def _is_about_episodes(node: ast.expr) -> bool:
    """Return whether the interval is an episode or a rollout of one environment: vec-steps are meant then, perhaps."""
    names = ((dotted(part) or "").rpartition(".")[2] for part in walk(node))
    return any(_EPISODE.search(name) for name in names)


def _says_so(script: Script, call: ast.Call, value: ast.expr) -> bool:
    """Return whether a comment at the argument, or the name of the constant, says that vec-steps are meant."""
    texts = [script.comment(line) for line in range(call.lineno, (call.end_lineno or call.lineno) + 1)]
    above = script.lines[call.lineno - 2].strip() if call.lineno > 1 else ""
    texts.append(above if above.startswith("#") else "")
    for part in walk(value):
        if isinstance(part, ast.Name | ast.Attribute):
            texts.append(part.id if isinstance(part, ast.Name) else part.attr)
            texts += [other.comment(node.lineno) for other, node in _definitions(script, part)]
    return any(_KNOWN.search(text) for text in texts)


def _in_rollouts(script: Script, steps: int, n_envs: int) -> str:
    """Return ", i.e. every 10 rollouts of 16,384" where one on-policy model says how long a rollout is."""
    models = list(model_calls(script))
    if len(models) != 1 or models[0].algorithm not in _ON_POLICY_STEPS:
        return ""
    given = argument(models[0].call, "n_steps", 3)
    default = None if has_hidden_arguments(models[0].call) else _ON_POLICY_STEPS[models[0].algorithm]
    n_steps = default if given is None else integer_of(script, given)
    rollout = (n_steps or 0) * n_envs
    if not rollout or steps % rollout or steps == rollout:
        return ""
    return f", i.e. every {steps // rollout:,} rollouts of {rollout:,}"


def _never(script: Script, steps: int) -> str:
    """Return what follows when the whole training is shorter than one interval; callbacks count on in the next one."""
    calls = list(learn_calls(script))
    if len(calls) != 1 or any(isinstance(a, ast.For | ast.While) for a in script.scopes.ancestors(calls[0])):
        return ""
    total = integer_of(script, argument(calls[0], "total_timesteps", 0))
    return f"; training ends after {total:,}, so it never happens" if total is not None and total < steps else ""


_KEPT = "SB3 goes on from the observation that it kept (_last_obs)"


@script_rule("LR102")
def reset_not_seen(script: Script) -> Iterator[Found]:
    """`learn(reset_num_timesteps=False)` in a loop, which resets nothing and sees no reset of others."""
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
