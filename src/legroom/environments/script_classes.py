"""Classes that stand in a training script, lifted out of it: its definitions are executed, its training is not.

`train.py:Net` names the class Net of the script. Executed are, in order, imports, classes, functions, and assignments
of plain constants; no other statement, and nothing that stands behind `if __name__ == "__main__"`. A
definition that raises (its base class is computed by a statement that was not executed) is left out, and whoever asks
for it is told why.

Only for scripts that the user trusts: importing a module runs it.
"""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

from legroom.errors import BadInput
from legroom.model.run import Run

MAIN = "__main__:"
_DEFINITIONS = (ast.Import, ast.ImportFrom, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
# Expressions without calls: evaluating them does nothing but make a value.
_PLAIN = (
    ast.Constant, ast.Name, ast.Attribute, ast.Tuple, ast.List, ast.Dict, ast.Set, ast.BinOp, ast.UnaryOp, ast.BoolOp,
    ast.Compare, ast.IfExp, ast.Subscript, ast.Slice, ast.JoinedStr, ast.FormattedValue, ast.Starred, ast.operator,
    ast.unaryop, ast.boolop, ast.cmpop, ast.expr_context,
)  # fmt: skip

_lifted: dict[str, ModuleType] = {}


def named_by_file(run: Run, file: Path | None) -> Run:
    """Return the run with classes of its script (`__main__:Net`) named by the script's file, so that all find them."""
    if file is None or file.suffix != ".py" or MAIN not in run.key:
        return run
    return Run.model_validate(_renamed(run.model_dump(), f"{file.absolute()}:"))


def _renamed(data: Any, script: str) -> Any:
    if isinstance(data, dict):
        return {key: _renamed(value, script) for key, value in data.items()}
    if isinstance(data, list | tuple):
        return [_renamed(value, script) for value in data]
    return script + data.removeprefix(MAIN) if isinstance(data, str) and data.startswith(MAIN) else data


def lift(path: str) -> ModuleType:
    """Return a module with the definitions of the script; the same one whenever it is asked for.

    Raises:
        BadInput: it cannot be read, or is not Python.
    """
    found = _lifted.get(path)
    if found is None:
        try:
            tree = ast.parse(Path(path).read_bytes(), path)
        except OSError as error:
            raise BadInput(f"cannot be read: {error.strerror}", path=path) from None
        except (SyntaxError, ValueError, RecursionError) as error:
            raise BadInput(f"not valid Python: {error}", path=path) from None
        found = ModuleType(f"script_{Path(path).stem}")
        found.__file__ = path
        found.__dict__["__failed__"] = {}
        sys.modules[found.__name__] = _lifted[path] = found  # dataclasses and pickle look their modules up
        _execute(tree, found)
    return found


def why_missing(module: ModuleType, name: str) -> str:
    """Return why a script's module has no such name: what its definition raised."""
    failed: dict[str, str] = module.__dict__.get("__failed__", {})
    return failed.get(name.partition(".")[0], "only imports, classes, functions and constants of a script are executed")


def _execute(tree: ast.Module, module: ModuleType) -> None:
    for statement in tree.body:
        if not _is_definition(statement):
            continue
        code = compile(ast.Module([statement], []), str(module.__file__), "exec", dont_inherit=True)
        try:
            exec(code, module.__dict__)
        except Exception as wrong:  # a user's definition may raise anything; it matters only if it is the one wanted
            line = getattr(statement, "lineno", 0)
            for name in _bound(statement):
                module.__dict__["__failed__"][name] = f"line {line} raised {type(wrong).__name__}: {wrong}"


def _is_definition(statement: ast.stmt) -> bool:
    if isinstance(statement, _DEFINITIONS):
        return True
    if isinstance(statement, ast.Assign | ast.AnnAssign):
        return statement.value is not None and all(_bound(statement)) and _is_plain(statement.value)
    if isinstance(statement, ast.If):  # by version, or for type checkers
        return _is_plain(statement.test) and not _is_main(statement.test) and _are_definitions(statement)
    return isinstance(statement, ast.Try) and _are_definitions(statement)  # an import that may fail


def _are_definitions(statement: ast.If | ast.Try) -> bool:
    parts = [*statement.body, *statement.orelse]
    if isinstance(statement, ast.Try):
        parts += [*statement.finalbody, *(each for handler in statement.handlers for each in handler.body)]
    return all(isinstance(part, ast.Pass) or _is_definition(part) for part in parts)


def _is_main(test: ast.expr) -> bool:
    return any(isinstance(part, ast.Name) and part.id == "__name__" for part in ast.walk(test))


def _is_plain(value: ast.expr) -> bool:
    return all(isinstance(part, _PLAIN) for part in ast.walk(value))


def _bound(statement: ast.stmt) -> Iterator[str]:
    """Yield the names that a statement binds; "" for one that is no plain name."""
    if isinstance(statement, ast.Import | ast.ImportFrom):
        yield from ((each.asname or each.name).partition(".")[0] for each in statement.names)
    elif isinstance(statement, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
        yield statement.name
    elif isinstance(statement, ast.Assign | ast.AnnAssign):
        targets = statement.targets if isinstance(statement, ast.Assign) else [statement.target]
        for target in targets:
            parts = target.elts if isinstance(target, ast.Tuple | ast.List) else [target]
            yield from (part.id if isinstance(part, ast.Name) else "" for part in parts)
