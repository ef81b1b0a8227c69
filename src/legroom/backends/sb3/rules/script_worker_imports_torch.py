"""LR055: environment workers that load torch, which they do not need."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator

from legroom.backends.sb3.base_figures import SHIPPED_CPU, SHIPPED_CUDA
from legroom.backends.sb3.script_envs import env_facts, library_class, process_vec_envs, worker_classes
from legroom.checking.rule_helpers import per_script
from legroom.model.rule import Found, Rule
from legroom.reading.interpreter.scopes import is_main_guard
from legroom.reading.interpreter.script import Script
from legroom.reading.source import walk

_HEAVY = ("torch", "torchvision", "stable_baselines3", "sb3_contrib")
_WITH, _WITHOUT = (f"{nbytes / 1e6:.0f} MB" for nbytes in (SHIPPED_CUDA["worker"], SHIPPED_CPU["light_worker"]))
_COST = f"{_WITH} of its own per worker with torch's CUDA build, {_WITHOUT} without torch"


def look(script: Script) -> Iterable[Found]:
    calls = list(process_vec_envs(script))
    if not calls:
        return
    said = set()
    for call, other, cls in worker_classes(script):
        imported = _top_level_torch(other) if other.path != script.path else None
        if imported is not None and other.path not in said:
            said.add(other.path)
            package, line = imported
            yield Found(
                f"{cls.name} runs in worker processes and its module {other.name} imports {package} (line {line}): "
                f"about {_COST}",
                f"import {package.partition(' ')[0]} inside the functions that need it, or move {cls.name} to a module "
                "without it",
                call.lineno,
            )
    if said:
        return
    call, kind = calls[0]
    if kind == "SubprocVecEnv" and not said:
        where = _why(script, call)
        yield Found(f"SubprocVecEnv workers load torch ({where}): about {_COST}",
                    "workers without torch: legroom train, or gymnasium's AsyncVectorEnv with envs in a module of "
                    "their own", call.lineno, severity="info")  # fmt: skip


def _top_level_torch(script: Script, seen: frozenset[str] = frozenset()) -> tuple[str, int] | None:
    """Return the heavy package that the module, or one it imports, imports when it is itself imported; and the line."""
    for name, statement in script.imported:
        package = name.partition(".")[0]
        if not _runs_on_import(script, statement):
            continue
        if package in _HEAVY:
            return package, statement.lineno
        beside = script.modules.get(name)
        if beside is not None and name not in seen:
            inner = _top_level_torch(beside, seen | {name})
            if inner is not None:
                return f"{inner[0]} through {name}" if " through " not in inner[0] else inner[0], statement.lineno
    return None


def _runs_on_import(script: Script, statement: ast.stmt) -> bool:
    for ancestor in script.scopes.ancestors(statement):
        if isinstance(ancestor, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda) or is_main_guard(ancestor):
            return False
        if isinstance(ancestor, ast.If) and "TYPE_CHECKING" in ast.dump(ancestor.test):
            return False
        if isinstance(ancestor, ast.Try):
            return False  # optional there: it may do without
    return True


def _why(script: Script, call: ast.Call) -> str:
    if any(library_class(script, maker) == "Monitor" for maker in _functions_called(script, call)):
        return "SB3's Monitor in the environment maker brings it"
    if script.scopes.function_of(call) is None or any(is_main_guard(node) for node in script.tree.body):
        return "unpickling SB3's wrapper and re-importing this script bring it"
    return "unpickling SB3's wrapper brings it"  # a module: workers import the script that was started


def _functions_called(script: Script, call: ast.Call) -> Iterator[ast.expr]:
    for fact in env_facts(script, call):
        for maker in fact.makers:
            for node in walk(maker):
                if isinstance(node, ast.Call):
                    yield node.func
                    definition = script.definition(node.func)
                    if definition is not None and definition[0] is script:
                        yield from (n.func for n in walk(definition[1]) if isinstance(n, ast.Call))


RULE = Rule(
    code="LR055",
    name="worker-imports-torch",
    severity="warning",
    what="The module of an environment that runs in worker processes imports torch.",
    why=(
        "Every spawn or forkserver worker imports the environment's module. With the CUDA build of torch it has "
        f"{_WITH} of private memory, without torch {_WITHOUT}."
    ),
    example="# envs.py\nimport torch\nclass Arm(gym.Env): ...\n# train.py\nSubprocVecEnv([Arm] * 16)\n",
    remedy="Keep environments in a module of their own that imports no torch; import it inside functions if need be.",
    look=per_script(look),
)
