"""LR064: an interval named in steps that is compared with a count of iterations."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable

from legroom.checking.rule_helpers import per_script
from legroom.checking.script_strides import moduli
from legroom.checking.torch_sources import steps_environment
from legroom.model.rule import Found, Rule
from legroom.reading.interpreter.asker import integer_of
from legroom.reading.interpreter.script import Script, argument
from legroom.reading.source import walk

_ITERATION = re.compile(r"^(iteration|iter|it|update|epoch|n_iter|i_iter|iter_num|rollout)$", re.I)
_STEPS = re.compile(r"(time|env|global_?)?_?steps?(_|$)|_timesteps", re.I)
_OTHER_STEPS = re.compile(r"grad|update|optim|learn|train", re.I)  # steps of the optimizer
MANY_ITERATIONS = 10_000  # an RLlib checkpoint every so many iterations is meant in steps


def look(script: Script) -> Iterable[Found]:
    for node in script.nodes:
        if not isinstance(node, ast.If):
            continue
        for counter, interval in moduli(node.test):
            name = _last_name(interval)
            counts = isinstance(counter, ast.Name) and _ITERATION.match(counter.id) and _is_of_rollouts(script, counter)
            steps = _STEPS.search(name) and not _OTHER_STEPS.search(name)
            if isinstance(counter, ast.Name) and counts and steps:
                value = integer_of(script, interval)
                number = f" ({value:,})" if value is not None else ""
                yield Found(f"{name}{number} is compared with {counter.id}, which counts iterations, not steps",
                                "count environment steps, or rename the interval", node.lineno)  # fmt: skip
    for call in script.calls:
        if (script.qualified(call.func) or "").endswith(("ray.train.CheckpointConfig", "ray.tune.CheckpointConfig",
                                                         "ray.air.CheckpointConfig")):  # fmt: skip
            given = argument(call, "checkpoint_frequency")
            value = integer_of(script, given)
            if given is not None and value is not None and value >= MANY_ITERATIONS:
                yield Found(f"checkpoint_frequency {value:,} counts training iterations, not steps",
                            "a number of train() iterations, such as 10", given.lineno)  # fmt: skip


def _last_name(node: ast.expr) -> str:
    return node.id if isinstance(node, ast.Name) else node.attr if isinstance(node, ast.Attribute) else ""


def _is_of_rollouts(script: Script, name: ast.Name) -> bool:
    """Return whether the name counts the turns of a loop whose turns are many steps: one in it steps environments."""
    for binding in script.scopes.reaching(name):
        inner = (n for n in walk(binding.node) if isinstance(n, ast.For | ast.While) and n is not binding.node)
        if binding.kind == "loop" and any(steps_environment(part) for loop in inner for part in walk(loop)):
            return True
    return False


RULE = Rule(
    code="LR064",
    name="interval-in-iterations",
    severity="info",
    what="An interval whose name says steps is compared with a counter of iterations.",
    why="One iteration is a whole rollout. The checkpoint comes n_steps × n_envs times later than its name says.",
    example="for iteration in range(num_iterations):\n    for _ in range(2048): envs.step(act())\n"
    "    if iteration % SAVE_EVERY_STEPS == 0: save()\n",
    remedy="Compare with the step counter, or name the interval after what it counts.",
    look=per_script(look),
)
