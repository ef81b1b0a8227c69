"""LR074: a vectorised environment of one's own that returns the very array it goes on changing."""

import ast
from collections.abc import Iterable, Iterator

from legroom.checking.rule_helpers import per_script
from legroom.model.rule import Found, Rule
from legroom.reading.interpreter.script import Script, dotted, each_function
from legroom.reading.source import walk

_BASES = ("VecEnv",)


def look(script: Script) -> Iterable[Found]:
    for cls in script.classes:
        bases = {b.rpartition(".")[2] for b in script.bases(cls) if b.startswith("stable_baselines3.")}
        if not bases & set(_BASES):
            continue  # gymnasium environments are copied by SB3's own vectorised ones
        for method in each_function(cls):
            if method.name == "step_wait":
                yield from _look_at(cls, method)


def _look_at(cls: ast.ClassDef, method: ast.FunctionDef | ast.AsyncFunctionDef) -> Iterator[Found]:
    for node in walk(method):
        if not (isinstance(node, ast.Return) and isinstance(node.value, ast.Tuple) and node.value.elts):
            continue
        name = dotted(node.value.elts[0]) or ""
        if name.startswith("self.") and name.count(".") == 1 and _only_in_place(cls, name):
            yield Found(
                f"step_wait returns {name} itself and changes it in place at the next step: SB3 stores an observation "
                "after the step that follows it, so every stored one is a step late",
                f"return {name}.copy()", node.lineno,
            )  # fmt: skip


def _only_in_place(cls: ast.ClassDef, name: str) -> bool:
    """Return whether methods other than __init__ change the array in place and never put a new one there."""
    changed = False
    for method in each_function(cls):
        if method.name == "__init__":
            continue
        for node in walk(method):
            if isinstance(node, ast.Assign):
                if any(dotted(target) == name for target in node.targets):
                    return False
                changed |= any(isinstance(t, ast.Subscript) and dotted(t.value) == name for t in node.targets)
            elif isinstance(node, ast.AugAssign):
                target = node.target.value if isinstance(node.target, ast.Subscript) else node.target
                changed |= dotted(target) == name
            elif isinstance(node, ast.Call):
                changed |= any(k.arg == "out" and dotted(k.value) == name for k in node.keywords)
    return changed


RULE = Rule(
    code="LR074",
    name="live-observation",
    severity="warning",
    what="step_wait of a VecEnv returns an attribute that later steps change in place.",
    why=(
        "SB3 adds the last observation to its buffer after the next env.step. If that is the same array, it already "
        "holds the next observation: training sees every action with the wrong state."
    ),
    example=(
        "def step_wait(self):\n    self.obs[:] = simulate()\n"
        "    return self.obs, self.rewards, self.dones, self.infos\n"
    ),
    remedy="return self.obs.copy(), or write into two arrays in turn.",
    look=per_script(look),
)
