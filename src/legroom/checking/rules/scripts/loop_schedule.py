"""LR070: schedules and warm-ups of hand-written loops that are longer than the training."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Iterator

from legroom.checking.rule_helpers import per_script
from legroom.model.rule import Found, Rule
from legroom.reading.interpreter.asker import integer_of, number_of
from legroom.reading.interpreter.script import Script, argument, dotted
from legroom.reading.source import walk

_WARM_UP = ("learning_starts", "learning_start", "learn_start", "start_training", "warmup_steps", "warm_up_steps",
            "start_steps", "min_replay_size", "replay_start_size", "learning_starts_at")  # fmt: skip
_LINEAR = ("linear_schedule", "linear_decay", "linear_epsilon")
_SCHEDULE = re.compile(r"decay|anneal|explor|eps|warm_?up", re.I)
MARGIN = 1.02  # a schedule that ends with the training may end a step late


def look(script: Script) -> Iterable[Found]:
    for loop in script.nodes:
        steps = _steps(script, loop)
        # the counter of an inner loop starts again each time
        if steps and not any(isinstance(around, ast.For | ast.While) for around in script.scopes.ancestors(loop)):
            for find in (_warm_up, _schedules, _quotients):
                yield from find(script, loop, *steps)


def _steps(script: Script, loop: ast.AST) -> tuple[str, int] | None:
    """Return (step counter, steps in all) of `for step in range(total)` and `while step < total`."""
    match loop:
        case ast.For(target=target, iter=numbers):
            stop = _stop(script, numbers)
            stop_name = (dotted(stop) or "").lower() if stop else ""
        case ast.While(test=ast.Compare(left=target, ops=[ast.Lt() | ast.LtE()], comparators=[stop])):
            stop_name = ""
        case _:
            return None
    counter, total = dotted(target), integer_of(script, stop)
    if counter and total is not None and ("step" in counter or "step" in stop_name or "frame" in stop_name):
        return counter, total
    return None


def _stop(script: Script, numbers: ast.expr) -> ast.expr | None:
    """Return `total` of `range(total)`, `range(0, total)` and `tqdm(range(total))`."""
    match numbers:
        case ast.Call(func=bar, args=[inner, *_]) if (script.qualified(bar) or "").endswith("tqdm"):
            return _stop(script, inner)
        case ast.Call(func=function, args=[stop] | [_, stop, *_]) if script.qualified(function) == "range":
            return stop
    return None


def _warm_up(script: Script, loop: ast.AST, counter: str, total: int) -> Iterator[Found]:
    for node in walk(loop):
        if not (isinstance(node, ast.Compare) and len(node.ops) == 1 and dotted(node.left) == counter):
            continue
        name = (dotted(node.comparators[0]) or "").rpartition(".")[2].lower()
        starts = integer_of(script, node.comparators[0])
        if name in _WARM_UP and starts is not None and starts >= total and _guards(script, node):
            yield Found(
                f"learning starts after {starts:,} steps, and training ends after {total:,}: nothing is learned",
                f"{name} well below {total:,}",
                node.lineno,
            )
            return


def _guards(script: Script, node: ast.Compare) -> bool:
    """Return whether learning depends on it: `if step > learning_starts:`, or `if step < learning_starts: continue`."""
    parent = script.scopes.parents.get(id(node))
    if isinstance(node.ops[0], ast.Gt | ast.GtE):
        return isinstance(parent, ast.If) or (isinstance(parent, ast.BoolOp) and isinstance(parent.op, ast.And))
    skips = isinstance(parent, ast.If) and isinstance(parent.body[-1], ast.Continue)
    return isinstance(node.ops[0], ast.Lt | ast.LtE) and skips


def _schedules(script: Script, loop: ast.AST, counter: str, total: int) -> Iterator[Found]:
    for call, *numbers in _linear(script, loop, counter):
        first, last, duration = (number_of(script, number) for number in numbers)
        if first is None or last is None or duration is None or duration <= total * MARGIN or first == last:
            continue
        reached = first + (last - first) * total / duration
        yield Found(
            f"the schedule from {first:g} to {last:g} takes {duration:,.0f} steps and training ends after {total:,}: "
            f"it stops at {reached:.3g}",
            f"at most {total:,} steps", call.lineno,
        )  # fmt: skip


def _linear(
    script: Script, loop: ast.AST, counter: str
) -> Iterator[tuple[ast.Call, ast.expr | None, ast.expr | None, ast.expr | None]]:
    """Yield (call, start, end, duration) of the schedules that depend on the counter.

    `linear_schedule(start, end, duration, step)` and `np.interp(step, [0, duration], [start, end])`.
    """
    for call in walk(loop):
        match call:
            case ast.Call(func=ast.Attribute(attr=name) | ast.Name(id=name)) if name in _LINEAR:
                at = argument(call, "t", 3)
                if at is not None and dotted(at) == counter and _is_linear_of_four(script, call):
                    yield call, argument(call, "start_e", 0), argument(call, "end_e", 1), argument(call, "duration", 2)
            case ast.Call(
                func=function,
                args=[
                    at,
                    ast.List(elts=[begin, duration]) | ast.Tuple(elts=[begin, duration]),
                    ast.List(elts=[first, last]) | ast.Tuple(elts=[first, last]),
                ],
            ) if script.qualified(function) == "numpy.interp" and dotted(at) == counter:
                if integer_of(script, begin) == 0:
                    yield call, first, last, duration


def _quotients(script: Script, loop: ast.AST, counter: str, total: int) -> Iterator[Found]:
    """`step / EPS_DECAY_STEPS` in a linear formula; under exp() there is no end to reach."""
    for node in walk(loop):
        if not (isinstance(node, ast.BinOp) and isinstance(node.op, ast.Div)):
            continue
        name = (dotted(node.right) or "").rpartition(".")[2]
        over = number_of(script, node.right)
        if not _SCHEDULE.search(name) or over is None or over <= total * MARGIN or not _ends_with(node.left, counter):
            continue
        around = list(script.scopes.ancestors(node))
        statement = next((i for i, a in enumerate(around) if isinstance(a, ast.stmt)), 0)
        calls = [dotted(a.func) or "" for a in around[:statement] if isinstance(a, ast.Call)]
        powers = any(isinstance(a, ast.BinOp) and isinstance(a.op, ast.Pow) for a in around[:statement])
        if powers or any(call.rpartition(".")[2] not in ("min", "max", "float", "clip") for call in calls):
            continue
        yield Found(
            f"{name} is {over:,.0f} steps and training ends after {total:,}: the schedule gets {total / over:.0%} of "
            "its way",
            f"at most {total:,} steps",
            node.lineno,
        )


def _ends_with(node: ast.expr, counter: str) -> bool:
    """Return whether a product ends with the counter: `step`, `(start - end) * step`."""
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Mult):
        return dotted(node.right) == counter or dotted(node.left) == counter
    return dotted(node) == counter


def _is_linear_of_four(script: Script, call: ast.Call) -> bool:
    """Return whether the function is the usual one of (start, end, duration, t), as far as the folder defines it."""
    definition = script.definition(call.func)
    if definition is None or not isinstance(definition[1], ast.FunctionDef):
        return False
    return len(definition[1].args.args) == 4 and len(call.args) + len(call.keywords) == 4


RULE = Rule(
    code="LR070",
    name="schedule-never-completes",
    severity="warning",
    what="A warm-up or an exploration schedule of a hand-written loop is longer than the training.",
    why="With learning_starts past the end nothing is learned; epsilon that decays too slowly leaves the agent random.",
    example="for step in range(100_000):\n    eps = linear_schedule(1.0, 0.05, 1_000_000, step)\n",
    remedy="Durations as a fraction of the total: exploration_fraction * total_timesteps.",
    look=per_script(look),
)
