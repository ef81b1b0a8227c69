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

from legroom.backends.program.harmless import AllocationJudge
from legroom.backends.program.source import KEEPING, Function, assigned, covers, name_of, own_nodes, parsed, text_of
from legroom.model.rehearsal import NotReached

_COMPUTING = ("abs", "bool", "ceil", "float", "floor", "int", "max", "min", "range", "round", "sum")
_JOINING = frozenset({"cat", "concat", "concatenate", "hstack", "vstack", "dstack", "stack", "pad"})
Scope = ast.Module | Function
Branch = ast.If | ast.While
Assignment = ast.Assign | ast.AugAssign | ast.AnnAssign


def undecided_places(readers: Sequence[tuple[str, int]], lines: Mapping[str, Set[int]]) -> list[NotReached]:
    """Return the first statement of each branch that an assumed value kept from running.

    Args:
        readers: lines that read values which were assumed.
        lines: that ran, of the program's own files.
    """
    found: dict[tuple[str, int], NotReached] = {}
    trees = {file: parsed(file) for file, _ in readers}
    judges = {file: AllocationJudge([tree]) for file, tree in trees.items() if tree is not None}
    for file, line in readers:
        tree = trees[file]
        if tree is None:
            continue
        own, judge = file in lines, judges[file]
        taking: list[ast.stmt | None] = [
            next((each for each in block if (own and judge.may_allocate(each)) or _keeps(each, judge, set())), None)
            for branch in _branches(tree, line) for block in (branch.body, branch.orelse)
            if block and not _ran(block, lines.get(file, frozenset()))
        ]  # fmt: skip
        taking += [_taking(counted, judge) for counted in _counted(tree, line)] if own else []
        for each in taking:
            if each is not None:
                found.setdefault((file, each.lineno), NotReached(file, each.lineno, text_of(each)))
    return list(found.values())


def _branches(tree: ast.Module, line: int) -> Iterator[Branch]:
    """Yield the conditions that a value read in a line decides: in the line itself, or by names assigned there."""
    nodes = list(own_nodes(ast.Module(_scope(tree, line).body, [])))

    def assigns(each: ast.AST, names: set[str]) -> set[str]:
        if isinstance(each, Assignment) and each.value and (covers(each, line) or _uses(each.value, names)):
            return {name for target in _targets(each) for name in _named(target)}
        return set()

    names = _grown(nodes, assigns)
    for each in nodes:
        if isinstance(each, Branch) and (covers(each.test, line) or _uses(each.test, names)):
            yield each


def _grown(nodes: Sequence[ast.AST], assigns: Callable[[ast.AST, set[str]], set[str]]) -> set[str]:
    """Return the names that nodes assign, given those that others do."""
    names: set[str] = set()
    grew = -1
    while grew != len(names):
        grew = len(names)
        for each in nodes:
            names |= assigns(each, names)
    return names


def _targets(assignment: Assignment) -> list[ast.expr]:
    return assignment.targets if isinstance(assignment, ast.Assign) else [assignment.target]


def _counted(tree: ast.Module, line: int) -> Iterator[tuple[ast.stmt, bool]]:
    """Yield what a value read in a line decides the number of: passes of loops, keys of a dict.

    And whether the loop would make as many passes in any case, all of which may take memory (`range(n)`), or go on
    until a value ends it: by its condition, a `break` or a `return`. Only numbers made of the value count: the
    environment that was given an action decides by itself when its episode ends.
    """
    nodes = list(own_nodes(ast.Module(_scope(tree, line).body, [])))

    def decided(one: ast.expr, by: Set[str] | None = None) -> bool:
        return covers(one, line) or _is_made_of(one, names if by is None else by)

    def assigns(each: ast.AST, by: set[str]) -> set[str]:
        if isinstance(each, Assignment) and each.value and decided(each.value, by):
            parts = (part for target in _targets(each) for part in getattr(target, "elts", [target]))
            return {part.id for part in parts if isinstance(part, ast.Name)}
        return assigned(each) if isinstance(each, ast.If) and decided(each.test, by) else set()

    names = _grown(nodes, assigns)
    for each in nodes:
        decides: list[ast.expr] = []
        if isinstance(each, ast.While | ast.For):
            counts = (
                isinstance(each, ast.For) and isinstance(each.iter, ast.Call) and name_of(each.iter.func) == "range"
            )
            if counts and decided(each.iter):  # type: ignore[union-attr]
                yield each, True
            decides = [inner.test for inner in own_nodes(each) if isinstance(inner, ast.If) and _leaves(inner)]
            decides += [each.test] if isinstance(each, ast.While) else []
        elif isinstance(each, ast.Assign):
            decides = [target.slice for target in each.targets if isinstance(target, ast.Subscript)]
        if isinstance(each, ast.stmt) and any(map(decided, decides)):
            yield each, False


def _leaves(branch: ast.If) -> bool:
    return any(isinstance(each, ast.Break | ast.Return) for each in own_nodes(branch))


def _taking(counted: tuple[ast.stmt, bool], judge: AllocationJudge) -> ast.stmt | None:
    """Return what takes more memory with every pass of a loop, or with every key."""
    whole, each_pass_takes = counted
    if not isinstance(whole, ast.While | ast.For):
        return whole if _keeps(whole, judge) else None
    called = {name_of(each.func) for each in own_nodes(whole) if isinstance(each, ast.Call)}
    no_graph = called & {"backward", "no_grad", "inference_mode", "zero_grad"}
    for each in whole.body:
        if (each_pass_takes and judge.may_allocate(each)) or _keeps(each, judge, _JOINING if no_graph else None):
            return each
    return None


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


def _keeps(statement: ast.stmt, judge: AllocationJudge, made_by: Set[str] | None = _JOINING) -> bool:
    """Return whether a statement keeps more whenever it runs.

    Args:
        made_by: calls that make something of what it was before: `tokens = torch.cat([tokens, new])`; None: all do, as
            where a graph leads to all that came before.
    """
    for each in own_nodes(statement):
        if isinstance(each, ast.Call) and name_of(each.func) in KEEPING and not all(map(judge.is_number, each.args)):
            return True
        if not isinstance(each, ast.Assign) or judge.is_number(each.value):
            continue
        stored = [target.value for target in each.targets if isinstance(target, ast.Subscript)]
        if any(map(judge.is_dict, stored)):
            return True
        calls = [part for part in ast.walk(each.value) if isinstance(part, ast.Call)]
        calls = [call for call in calls if made_by is None or name_of(call.func) in made_by]
        before = {ast.unparse(part) for target in each.targets for part in getattr(target, "elts", [target])}
        if any(ast.unparse(part) in before for call in calls for part in ast.walk(call) if isinstance(part, ast.expr)):
            return True
    return False
