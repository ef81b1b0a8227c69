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
from collections.abc import Callable, Iterator, Mapping, Sequence, Set

from legroom.backends.program.harmless import Judge
from legroom.backends.program.source import KEEPING, Function, covers, name_of, own_nodes, parsed, text_of
from legroom.model.rehearsal import NotReached

_COMPUTING = ("abs", "bool", "ceil", "float", "floor", "int", "max", "min", "range", "round", "sum")
Scope = ast.Module | Function
Branch = ast.If | ast.While
Assignment = ast.Assign | ast.AugAssign | ast.AnnAssign
Uses = Callable[[ast.AST, Set[str]], bool]


def undecided_places(readers: Sequence[tuple[str, int]], lines: Mapping[str, Set[int]]) -> list[NotReached]:
    """Return the first statement of each branch that an assumed value kept from running.

    Args:
        readers: lines that read values which were assumed.
        lines: that ran, of the program's own files.
    """
    found: dict[tuple[str, int], NotReached] = {}
    trees = {file: parsed(file) for file, _ in readers}
    judges = {file: Judge([tree]) for file, tree in trees.items() if tree is not None}
    for file, line in readers:
        tree = trees[file]
        if tree is None:
            continue
        own, judge = file in lines, judges[file]
        blocks: list[tuple[Sequence[ast.stmt], bool]] = [
            (block, own) for branch in _branches(tree, line) for block in (branch.body, branch.orelse)
            if block and not _ran(block, lines.get(file, frozenset()))
        ]  # fmt: skip
        for counted in _counted(tree, line) if own else ():
            body: Sequence[ast.stmt] = counted.body if isinstance(counted, ast.While | ast.For) else [counted]
            blocks.append((body, isinstance(counted, ast.For)))
        for block, also_new in blocks:
            taking = next((each for each in block if _takes(each, judge, own=also_new)), None)
            if taking is not None:
                found.setdefault((file, taking.lineno), NotReached(file, taking.lineno, text_of(taking)))
    return list(found.values())


def _branches(tree: ast.Module, line: int) -> Iterator[Branch]:
    """Yield the conditions that a value read in a line decides: in the line itself, or by names assigned there."""
    nodes = list(own_nodes(ast.Module(_scope(tree, line).body, [])))
    assignments = [each for each in nodes if isinstance(each, Assignment)]
    names = _grown(assignments, line, _uses, _named)
    for each in nodes:
        if isinstance(each, Branch) and (covers(each.test, line) or _uses(each.test, names)):
            yield each


def _grown(
    assignments: Sequence[Assignment], line: int, uses: Uses, stored: Callable[[ast.expr], set[str]]
) -> set[str]:
    """Return the names that get a value read in a line, or one that uses such a name."""
    names: set[str] = set()
    grew = -1
    while grew != len(names):
        grew = len(names)
        for each in assignments:
            if each.value is not None and (covers(each, line) or uses(each.value, names)):
                targets = each.targets if isinstance(each, ast.Assign) else [each.target]
                names |= {name for target in targets for name in stored(target)}
    return names


def _counted(tree: ast.Module, line: int) -> Iterator[ast.While | ast.For | ast.Assign]:
    """Yield what a value read in a line decides the number of: passes of loops, keys of a dict.

    Only numbers made of it count: the environment that was given an action decides by itself when its episode ends.
    """
    nodes = list(own_nodes(ast.Module(_scope(tree, line).body, [])))
    assignments = [each for each in nodes if isinstance(each, ast.Assign)]
    names = _grown(assignments, line, _is_made_of, lambda each: {each.id} if isinstance(each, ast.Name) else set())
    for each in nodes:
        if isinstance(each, ast.While):
            decides: list[ast.expr] = [each.test]
        elif isinstance(each, ast.For) and isinstance(each.iter, ast.Call) and name_of(each.iter.func) == "range":
            decides = [each.iter]
        elif isinstance(each, ast.Assign):
            decides = [target.slice for target in each.targets if isinstance(target, ast.Subscript)]
        else:
            continue
        if any(covers(one, line) or _is_made_of(one, names) for one in decides):
            yield each


def _named(target: ast.expr) -> set[str]:
    return {name_of(each) for each in ast.walk(target) if isinstance(each, ast.Name | ast.Attribute)} - {"self"}


def _is_made_of(node: ast.AST, names: Set[str]) -> bool:
    """Return whether a number is computed from one of these names."""
    if isinstance(node, ast.Name):
        return node.id in names
    if isinstance(node, ast.Call) and name_of(node.func) not in _COMPUTING:
        return False
    return any(_is_made_of(each, names) for each in ast.iter_child_nodes(node))


def _scope(tree: ast.Module, line: int) -> Scope:
    inner = [each for each in ast.walk(tree) if isinstance(each, Function) and covers(each, line)]
    return inner[-1] if inner else tree


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
