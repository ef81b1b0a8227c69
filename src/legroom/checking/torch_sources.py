"""What rules about plain PyTorch ask of a source: networks, gradients, loops. What is not certain is answered with no.

A network is a name that is bound to an instance of `torch.nn.Module`, of a class of the folder or of torch itself. A
call runs without gradients where it, its function or a caller of it stands under `no_grad`; callers in files that are
not read may do that too, so files that import this one are searched for the word.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from legroom.reading.interpreter.scopes import FunctionNode
from legroom.reading.interpreter.script import Script, dotted

LOOPS = (ast.For, ast.AsyncFor, ast.While)
_OFF = ("torch.no_grad", "torch.inference_mode", "torch.autograd.no_grad", "torch.autograd.inference_mode")
_OFF_WORDS = re.compile(r"no_grad|inference_mode|set_grad_enabled|requires_grad_\(False|requires_grad\s*=\s*False")
MOST_CALLERS = 4  # from a function to who calls it, and so on
_Defined = ast.FunctionDef | ast.AsyncFunctionDef


def loops_of(script: Script, node: ast.AST) -> list[ast.AST]:
    found: list[ast.AST] = []
    for ancestor in script.scopes.ancestors(node):
        if isinstance(ancestor, FunctionNode):
            break
        if isinstance(ancestor, LOOPS):
            found.append(ancestor)
    return found


def method_calls(script: Script, *names: str) -> Iterator[ast.Call]:
    return (call for call in script.calls if isinstance(call.func, ast.Attribute) and call.func.attr in names)


def backward_calls(script: Script) -> Iterator[tuple[ast.Call, ast.expr]]:
    for call in method_calls(script, "backward"):
        assert isinstance(call.func, ast.Attribute)
        yield call, call.func.value


def steps_environment(node: ast.AST) -> bool:
    if not (isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "step"):
        return False
    return "env" in (dotted(node.func.value) or "")


def without_gradients(script: Script, node: ast.AST) -> bool:
    """Return whether `node` runs, or may run, where no gradients are recorded, by itself or by who calls it."""
    places: list[tuple[Script, ast.AST]] = [(script, node)]
    seen: set[int] = set()
    for _ in range(MOST_CALLERS + 1):
        functions: list[tuple[Script, _Defined]] = []
        for each, place in places:
            for ancestor in each.scopes.ancestors(place):
                if isinstance(ancestor, ast.With | ast.AsyncWith):
                    if any(_is_off(each, item.context_expr) for item in ancestor.items):
                        return True
                elif isinstance(ancestor, ast.FunctionDef | ast.AsyncFunctionDef):
                    if any(_is_off(each, decorator) for decorator in ancestor.decorator_list):
                        return True
                    functions += [(each, ancestor)] if id(ancestor) not in seen else []
                    seen.add(id(ancestor))
        places = [call for each, function in functions for call in _calls_of(each, function)]
    return any(_OFF_WORDS.search(text) for text in script.importers) or _frozen(script)


def _frozen(script: Script) -> bool:
    """Return whether the source turns gradients off for good, of a network or of everything."""
    return any(
        re.search(r"requires_grad_\(False|requires_grad\s*=\s*False|set_grad_enabled", s.text) for s in script.followed
    )


def _calls_of(script: Script, function: _Defined) -> Iterator[tuple[Script, ast.AST]]:
    for other in script.followed:
        for call in other.calls_by_name.get(function.name, ()):
            if other.scopes.function_of(call) is not function:
                yield other, call


def _is_off(script: Script, node: ast.expr) -> bool:
    if isinstance(node, ast.Call):
        name = script.qualified(node.func) or ""
        if name == "torch.set_grad_enabled":
            return True  # as the argument says, which may be False
        return name in _OFF or name.rpartition(".")[2] in ("no_grad", "inference_mode")
    return script.qualified(node) in _OFF
