"""LR071: an interval that the step counter mostly jumps over."""

from __future__ import annotations

import ast
from collections.abc import Iterable

from legroom.checking.rule_helpers import per_script
from legroom.checking.script_strides import firing, moduli, offset_of, stride_of
from legroom.model.finding import Severity
from legroom.model.rule import Found, Rule
from legroom.reading.interpreter.asker import integer_of
from legroom.reading.interpreter.script import Script, dotted

RARER = 2  # times rarer than the interval says is worth a word
_LOGGING = ("print", "add_scalar", "add_scalars", "log", "info", "debug", "write", "record", "set_description", "flush")


def look(script: Script) -> Iterable[Found]:
    for node in script.nodes:
        if isinstance(node, ast.If):
            yield from _look_at(script, node)


def _look_at(script: Script, node: ast.If) -> Iterable[Found]:
    own = _conditions(script, node.test)
    if len(own) != 1:
        return
    name, offset, interval, source = own[0]
    stride = stride_of(script, name, node)
    if stride is None:
        return
    around = _conditions_around(script, node, name)
    if around is None:
        return
    fires = firing([(offset, interval), *((o, m) for o, m, _ in around)], stride)
    if fires is None:
        return
    severity: Severity | None = "info" if _only_logs(node) else None
    reason = f"{name} moves by {stride.by}" if stride.by > 1 else ""
    if around:
        inside = " and ".join(str(m) for _, m, _ in around)
        reason += f"{' and ' if reason else ''}the check stands inside one for multiples of {inside}"
    if fires.times == 0:
        message = f"{name} % {source} ({interval:,}) is never 0: {reason}"
        yield Found(
            message, "compare with the step of the last time: if step - last >= interval", node.lineno, severity
        )
        return
    every = fires.period / fires.times
    # a stride of several intervals fires at every look: as often as can be
    finest = max([stride.by, *(m for _, m, _ in around)])
    if every >= RARER * interval and every >= RARER * finest:
        yield Found(
            f"{name} % {source} == 0 happens every {every:,.0f} steps, not every {interval:,}: {reason}",
            f"an interval that is a multiple of {finest:,}, or if step - last >= interval", node.lineno, severity,
        )  # fmt: skip


def _conditions(script: Script, test: ast.expr) -> list[tuple[str, int, int, str]]:
    """Return (counter, offset, interval, the interval as written) of each modulus whose interval is known."""
    found = []
    for counter, interval in moduli(test):
        place, value = offset_of(script, counter), integer_of(script, interval)
        if place is not None and value is not None and value > 0:
            found.append((place[0], place[1], value, dotted(interval) or str(value)))
    return found


def _conditions_around(script: Script, node: ast.If, name: str) -> list[tuple[int, int, str]] | None:
    """Return the moduli of the same counter around `node`; None when one of them is not known."""
    found: list[tuple[int, int, str]] = []
    child: ast.AST = node
    for ancestor in script.scopes.ancestors(node):
        if isinstance(ancestor, ast.FunctionDef | ast.AsyncFunctionDef):
            break
        if isinstance(ancestor, ast.If):
            if any(child is c for c in ancestor.orelse):
                return None  # the other way of a condition: not a matter of multiples
            for counter, interval in moduli(ancestor.test):
                place, value = offset_of(script, counter), integer_of(script, interval)
                if place is None or place[0] != name:
                    continue
                if value is None or value < 1:
                    return None
                found.append((place[1], value, dotted(interval) or ""))
        child = ancestor
    return found


def _only_logs(node: ast.If) -> bool:
    """Return whether the block does nothing but write numbers down."""
    for statement in node.body:
        call = statement.value if isinstance(statement, ast.Expr) else None
        if not isinstance(call, ast.Call):
            return False
        name = call.func.attr if isinstance(call.func, ast.Attribute) else getattr(call.func, "id", "")
        if name not in _LOGGING:
            return False
    return True


RULE = Rule(
    code="LR071",
    name="sync-stride",
    severity="warning",
    what="An `if step % interval == 0` fires much more rarely than the interval says.",
    why=(
        "Inside `if step % 10 == 0`, an interval of 1,005 fires every 2,010 steps; with a counter that moves by 3 "
        "environments, one of 1,000 fires every 3,000. The target network is then updated far too rarely."
    ),
    example=(
        "for step in range(500_000):\n    if step % 10 == 0:\n        train()\n"
        "        if step % 1005 == 0:\n            sync_target()\n"
    ),
    remedy="Intervals that are multiples of the stride, or remember the step of the last time.",
    look=per_script(look),
)
