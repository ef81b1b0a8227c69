"""Code that did not run because a value was assumed, and may take or keep GPU memory.

The simulated GPU answers reads of values that it does not have by assumption. Most answers decide nothing: they are
printed, or compared to stop early. One that guards `history.append(x)`, as in LBFGS, decides how many tensors stay
alive. The lines that read are looked up in the source: conditions that stand there, or that use a name assigned there.
Of the branches that did not run, those count that may take or keep GPU memory; in installed libraries those alone that
keep something in a container. How often code runs may be decided by such a value, too: of the program's own, loops
count that may take memory in each pass (`for _ in range(n)`) or keep something (`while`), and values that are kept by a
key which was assumed, also where they ran.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping, Sequence, Set
from pathlib import Path

from legroom.backends.program.harmless import Function, Judge, name_of, own_nodes
from legroom.model.rehearsal import NotReached

KEEPING = ("append", "appendleft", "extend", "insert", "add", "put", "push", "update")
_COMPUTING = ("abs", "bool", "ceil", "float", "floor", "int", "max", "min", "range", "round", "sum")
Scope = ast.Module | Function
Branch = ast.If | ast.While


def undecided_places(readers: Sequence[tuple[str, int]], lines: Mapping[str, Set[int]]) -> list[NotReached]:
    """Return the first statement of each branch that an assumed value kept from running.

    Args:
        readers: lines that read values which were assumed.
        lines: that ran, of the program's own files.
    """
    found: dict[tuple[str, int], NotReached] = {}
    sources = {file: _source(file) for file, _ in readers}
    for file, line in readers:
        source = sources[file]
        if source is None:
            continue
        tree, judge = source
        for branch in _branches(tree, line):
            for block in (branch.body, branch.orelse):
                if not block or _ran(block, lines.get(file, frozenset())):
                    continue
                taking = next((each for each in block if _takes(each, judge, own=file in lines)), None)
                if taking is not None:
                    text = ast.unparse(taking).splitlines()[0][:80]
                    found.setdefault((file, taking.lineno), NotReached(file, taking.lineno, text))
        for counted in _counted(tree, line) if file in lines else ():
            block = counted.body if isinstance(counted, ast.While | ast.For) else [counted]
            taking = next((each for each in block if _takes(each, judge, own=isinstance(counted, ast.For))), None)
            if taking is not None:
                text = ast.unparse(taking).splitlines()[0][:80]
                found.setdefault((file, taking.lineno), NotReached(file, taking.lineno, text))
    return list(found.values())


def _source(file: str) -> tuple[ast.Module, Judge] | None:
    try:
        tree = ast.parse(Path(file).read_bytes())
    except (OSError, SyntaxError, ValueError, RecursionError):
        return None
    return tree, Judge([tree])


def _branches(tree: ast.Module, line: int) -> Iterator[Branch]:
    """Yield the conditions that a value read in a line decides: in the line itself, or by names assigned there."""
    scope = _scope(tree, line)
    nodes = list(own_nodes(ast.Module(scope.body, [])))
    names: set[str] = set()
    grew = -1
    while grew != len(names):
        grew = len(names)
        for each in nodes:
            if isinstance(each, ast.Assign | ast.AugAssign | ast.AnnAssign) and each.value is not None:
                targets = each.targets if isinstance(each, ast.Assign) else [each.target]
                if _covers(each, line) or _uses(each.value, names):
                    names |= {name_of(name) for target in targets for name in ast.walk(target)
                              if isinstance(name, ast.Name | ast.Attribute)} - {"self"}  # fmt: skip
    for each in nodes:
        if isinstance(each, Branch) and (_covers(each.test, line) or _uses(each.test, names)):
            yield each


def _counted(tree: ast.Module, line: int) -> Iterator[ast.While | ast.For | ast.Assign]:
    """Yield what a value read in a line decides the number of: passes of loops, keys of a dict.

    Only numbers made of it count: the environment that was given an action decides by itself when its episode ends.
    """
    nodes = list(own_nodes(ast.Module(_scope(tree, line).body, [])))
    names: set[str] = set()
    grew = -1
    while grew != len(names):
        grew = len(names)
        for each in nodes:
            if isinstance(each, ast.Assign) and (_covers(each, line) or _is_made_of(each.value, names)):
                names |= {target.id for target in each.targets if isinstance(target, ast.Name)}
    for each in nodes:
        if isinstance(each, ast.While):
            decides: list[ast.expr] = [each.test]
        elif isinstance(each, ast.For) and isinstance(each.iter, ast.Call) and name_of(each.iter.func) == "range":
            decides = [each.iter]
        elif isinstance(each, ast.Assign):
            decides = [target.slice for target in each.targets if isinstance(target, ast.Subscript)]
        else:
            continue
        if any(_covers(one, line) or _is_made_of(one, names) for one in decides):
            yield each


def _is_made_of(node: ast.AST, names: Set[str]) -> bool:
    """Return whether a number is computed from one of these names."""
    if isinstance(node, ast.Name):
        return node.id in names
    if isinstance(node, ast.Call) and name_of(node.func) not in _COMPUTING:
        return False
    return any(_is_made_of(each, names) for each in ast.iter_child_nodes(node))


def _scope(tree: ast.Module, line: int) -> Scope:
    inner = [each for each in ast.walk(tree) if isinstance(each, Function) and _covers(each, line)]
    return inner[-1] if inner else tree


def _covers(node: ast.stmt | ast.expr, line: int) -> bool:
    return node.lineno <= line <= (node.end_lineno or node.lineno)


def _uses(node: ast.AST, names: Set[str]) -> bool:
    """Return whether an expression uses one of these names by its value: not as an argument, or to call it."""
    return any(isinstance(each, ast.Name | ast.Attribute) and name_of(each) in names for each in ast.walk(node))


def _ran(block: Sequence[ast.stmt], lines: Set[int]) -> bool:
    return any(line in lines for line in range(block[0].lineno, (block[-1].end_lineno or block[-1].lineno) + 1))


def _takes(statement: ast.stmt, judge: Judge, *, own: bool) -> bool:
    if own and judge.may_allocate(statement):
        return True
    for each in own_nodes(statement):
        if isinstance(each, ast.Call) and name_of(each.func) in KEEPING and not all(map(judge.is_number, each.args)):
            return True
        if isinstance(each, ast.Assign) and not judge.is_number(each.value):
            stored = [target.value for target in each.targets if isinstance(target, ast.Subscript)]
            if any(map(judge.is_dict, stored)):
                return True
    return False
