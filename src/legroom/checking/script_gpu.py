"""Where a script puts something on the GPU, and which of its code certainly runs once and in order."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from legroom.reading.interpreter.scopes import is_main_guard
from legroom.reading.interpreter.script import Script
from legroom.reading.source import walk

_BRANCHES = (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda, ast.If, ast.For, ast.While, ast.Try)


def cuda_calls(script: Script, within: ast.AST, *, perhaps: bool = False) -> Iterator[ast.Call]:
    """Yield the calls that put tensors on a CUDA device: `.cuda()`, `.to("cuda")`, `device="cuda:0"`, in order.

    Args:
        perhaps: count `"cuda" if torch.cuda.is_available() else "cpu"` too.
    """
    calls = [node for node in walk(within) if isinstance(node, ast.Call)]
    for call in sorted(calls, key=lambda node: (node.lineno, node.col_offset)):
        attribute = call.func.attr if isinstance(call.func, ast.Attribute) else ""
        name = script.qualified(call.func) or ""
        if attribute == "cuda" and not call.args and not name.startswith("torch."):
            yield call
        elif (attribute == "to" or name.startswith("torch.")) and not name.startswith(("torch.cuda.", "torch.load")):
            # torch.device("cuda") alone makes no tensor, but who makes it in an environment means to
            takes_it = attribute == "to" or (perhaps and name == "torch.device")
            values = [*(call.args if takes_it else ()), *(k.value for k in call.keywords if k.arg == "device")]
            if any(_is_cuda(value, perhaps) for value in values):
                yield call


def _is_cuda(node: ast.expr, perhaps: bool) -> bool:
    if perhaps and isinstance(node, ast.IfExp):
        return _is_cuda(node.body, perhaps) or _is_cuda(node.orelse, perhaps)
    return isinstance(node, ast.Constant) and isinstance(node.value, str) and node.value.partition(":")[0] == "cuda"


def is_straight(script: Script, node: ast.AST) -> bool:
    """Return whether `node` runs once and always: at module level or under the main guard."""
    return not any(isinstance(a, _BRANCHES) and not is_main_guard(a) for a in script.scopes.ancestors(node))


def environment_settings(script: Script) -> Iterator[tuple[str, ast.Assign]]:
    """Yield (variable, statement) of each `os.environ["NAME"] = ...` in straight code."""
    for node in script.nodes:
        if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Subscript):
            target = node.targets[0]
            key = target.slice.value if isinstance(target.slice, ast.Constant) else None
            if isinstance(key, str) and script.qualified(target.value) == "os.environ" and is_straight(script, node):
                yield key, node
