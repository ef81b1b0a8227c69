"""LR070: schedules and warm-ups of hand-written loops that are longer than the training."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Iterator

from legroom.checking.rule_helpers import per_script
from legroom.model.rule import Found, Rule
from legroom.reading.interpreter.asker import integer_of, number_of
from legroom.reading.interpreter.script import Script, argument, dotted

_WARM_UP = ("learning_starts", "learning_start", "learn_start", "start_training", "warmup_steps", "warm_up_steps",
            "start_steps", "min_replay_size", "replay_start_size", "learning_starts_at")  # fmt: skip
_SCHEDULE = re.compile(r"decay|anneal|explor|eps|warm_?up", re.I)
MARGIN = 1.02  # a schedule that ends with the training may end a step late


def look(script: Script) -> Iterable[Found]:
    for loop, counter, total in _training_loops(script):
        yield from _warm_up(script, loop, counter, total)
        yield from _schedules(script, loop, counter, total)
        yield from _quotients(script, loop, counter, total)


def _training_loops(script: Script) -> Iterator[tuple[ast.For | ast.While, str, int]]:
    """Yield (loop, step counter, steps in all) of `for step in range(total)` and `while step < total`."""
    for node in script.nodes:
        if isinstance(node, ast.For):
            call = node.iter
            if isinstance(call, ast.Call) and call.args and (script.qualified(call.func) or "").endswith("tqdm"):
                call = call.args[0]
            counter = dotted(node.target)
            if isinstance(call, ast.Call) and script.qualified(call.func) == "range" and counter and call.args:
                stop = call.args[1] if len(call.args) > 1 else call.args[0]
                total = integer_of(script, stop)
                name = (dotted(stop) or "").lower()
                if total is not None and ("step" in counter or "step" in name or "frame" in name):
                    yield node, counter, total
        elif isinstance(node, ast.While) and isinstance(node.test, ast.Compare) and len(node.test.ops) == 1:
            counter, total = dotted(node.test.left), integer_of(script, node.test.comparators[0])
            if isinstance(node.test.ops[0], ast.Lt | ast.LtE) and counter and total is not None and "step" in counter:
                yield node, counter, total


def _is_whole_training(script: Script, loop: ast.For | ast.While) -> bool:
    """Return whether the loop is the outermost one: an inner loop's counter starts again each time."""
    return not any(isinstance(a, ast.For | ast.While) for a in script.scopes.ancestors(loop))


def _warm_up(script: Script, loop: ast.For | ast.While, counter: str, total: int) -> Iterator[Found]:
    if not _is_whole_training(script, loop):
        return
    for node in ast.walk(loop):
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


def _schedules(script: Script, loop: ast.For | ast.While, counter: str, total: int) -> Iterator[Found]:
    """`linear_schedule(start, end, duration, step)` and `np.interp(step, [0, duration], [start, end])`."""
    if not _is_whole_training(script, loop):
        return
    for call in ast.walk(loop):
        if not isinstance(call, ast.Call):
            continue
        name = call.func.attr if isinstance(call.func, ast.Attribute) else getattr(call.func, "id", "")
        first = last = duration = None
        if name in ("linear_schedule", "linear_decay", "linear_epsilon") and _is_linear_of_four(script, call):
            at = argument(call, "t", 3)
            if at is None or dotted(at) != counter:
                continue
            first, last = number_of(script, argument(call, "start_e", 0)), number_of(script, argument(call, "end_e", 1))
            duration = number_of(script, argument(call, "duration", 2))
        elif script.qualified(call.func) == "numpy.interp" and len(call.args) == 3 and dotted(call.args[0]) == counter:
            ends, values = call.args[1], call.args[2]
            if not (isinstance(ends, ast.List | ast.Tuple) and isinstance(values, ast.List | ast.Tuple)):
                continue
            if len(ends.elts) == len(values.elts) == 2 and integer_of(script, ends.elts[0]) == 0:
                duration = number_of(script, ends.elts[1])
                first, last = number_of(script, values.elts[0]), number_of(script, values.elts[1])
        if first is None or last is None or duration is None or duration <= total * MARGIN or first == last:
            continue
        reached = first + (last - first) * total / duration
        yield Found(
            f"the schedule from {first:g} to {last:g} takes {duration:,.0f} steps and training ends after {total:,}: "
            f"it stops at {reached:.3g}",
            f"at most {total:,} steps", call.lineno,
        )  # fmt: skip


def _quotients(script: Script, loop: ast.For | ast.While, counter: str, total: int) -> Iterator[Found]:
    """`step / EPS_DECAY_STEPS` in a linear formula; under exp() there is no end to reach."""
    if not _is_whole_training(script, loop):
        return
    for node in ast.walk(loop):
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
