"""LR052: save_freq and eval_freq count calls of env.step, each of which is n_envs steps."""

import ast
import re
from collections.abc import Iterable, Iterator

from legroom.backends.sb3.script_calls import callback_name, learn_calls, model_calls, training_envs
from legroom.checking.rule_helpers import per_script
from legroom.model.rule import Found, Rule
from legroom.reading.interpreter.asker import attribute_stores, integer_of
from legroom.reading.interpreter.script import Script, argument, dotted, has_hidden_arguments
from legroom.reading.source import walk

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


def look(script: Script) -> Iterable[Found]:
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
        for place, statement in attribute_stores(script, node.attr):
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


RULE = Rule(
    code="LR052",
    name="frequency-in-vec-steps",
    severity="info",
    what="save_freq or eval_freq is given as a number of steps, while the training has several environments.",
    why=(
        "SB3's callbacks count calls of env.step, and each is one step in every environment. With 8 environments, "
        "save_freq=10_000 saves every 80,000 steps. It is a warning where the training ends before the first one."
    ),
    example='env = make_vec_env("CartPole-v1", n_envs=8)\nCheckpointCallback(save_freq=10_000, save_path="models")\n',
    remedy="save_freq=max(10_000 // n_envs, 1).",
    look=per_script(look),
)
