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
from legroom.backends.program.source import (
    KEEPING,
    around,
    assigned,
    covers,
    last_line,
    name_of,
    names_in,
    own_nodes,
    parsed,
    scope_of,
    text_of,
)
from legroom.model.rehearsal import NotReached

_COMPUTING = ("abs", "bool", "ceil", "float", "floor", "int", "max", "min", "range", "round", "sum")
_JOINING = frozenset({"cat", "concat", "concatenate", "hstack", "vstack", "dstack", "stack", "pad"})
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
        scope = scope_of(around(tree, line))[0]
        nodes = list(own_nodes(ast.Module(scope.body, [])))  # type: ignore[attr-defined]
        own, judge, ran = file in lines, judges[file], lines.get(file, frozenset())
        taking: list[ast.stmt | None] = [
            next((each for each in block if (own and judge.may_allocate(each)) or _keeps(each, judge, set())), None)
            for branch in _branches(nodes, line) for block in (branch.body, branch.orelse)
            if block and ran.isdisjoint(range(block[0].lineno, last_line(block[-1]) + 1))
        ]  # fmt: skip
        taking += [_taking(*counted, judge) for counted in _counted(nodes, line)] if own else []
        for each in taking:
            if each is not None:
                found.setdefault((file, each.lineno), NotReached(file, each.lineno, text_of(each)))
    return list(found.values())


def _branches(nodes: Sequence[ast.AST], line: int) -> Iterator[ast.If | ast.While]:
    """Yield the conditions that a value read in a line decides: in the line itself, or by names assigned there."""

    def uses(node: ast.AST, names: Set[str]) -> bool:
        return any(name_of(each) in names for each in names_in(node))

    def assigns(each: ast.AST, names: set[str]) -> set[str]:
        if isinstance(each, Assignment) and each.value and (covers(each, line) or uses(each.value, names)):
            return {name_of(part) for target in _targets(each) for part in names_in(target)} - {"self"}
        return set()

    names = _grown(nodes, assigns)
    for each in nodes:
        if isinstance(each, ast.If | ast.While) and (covers(each.test, line) or uses(each.test, names)):
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


def _counted(nodes: Sequence[ast.AST], line: int) -> Iterator[tuple[ast.stmt, bool]]:
    """Yield what a value read in a line decides the number of: passes of loops, keys of a dict.

    And whether the loop would make as many passes in any case, all of which may take memory (`range(n)`), or go on
    until a value ends it: by its condition, a `break` or a `return`. Only numbers made of the value count: the
    environment that was given an action decides by itself when its episode ends.
    """

    def made_of(node: ast.AST, by: Set[str]) -> bool:
        if isinstance(node, ast.Name):
            return node.id in by
        if isinstance(node, ast.Call) and name_of(node.func) not in _COMPUTING:
            return False
        return any(made_of(each, by) for each in ast.iter_child_nodes(node))

    def decided(one: ast.expr, by: Set[str]) -> bool:
        return covers(one, line) or made_of(one, by)

    def assigns(each: ast.AST, by: set[str]) -> set[str]:
        if isinstance(each, Assignment) and each.value and decided(each.value, by):
            parts = (part for target in _targets(each) for part in getattr(target, "elts", [target]))
            return {part.id for part in parts if isinstance(part, ast.Name)}
        return assigned(each) if isinstance(each, ast.If) and decided(each.test, by) else set()

    names = _grown(nodes, assigns)
    for each in nodes:
        decides: list[ast.expr] = []
        if isinstance(each, ast.While | ast.For):
            over = each.iter if isinstance(each, ast.For) else None
            if isinstance(over, ast.Call) and name_of(over.func) == "range" and decided(over, names):
                yield each, True
            tests = (inner for inner in own_nodes(each) if isinstance(inner, ast.If))
            leaving = (test for test in tests if any(isinstance(e, ast.Break | ast.Return) for e in own_nodes(test)))
            decides = [*(test.test for test in leaving), *([each.test] if isinstance(each, ast.While) else [])]
        elif isinstance(each, ast.Assign):
            decides = [target.slice for target in each.targets if isinstance(target, ast.Subscript)]
        if isinstance(each, ast.stmt) and any(decided(one, names) for one in decides):
            yield each, False


def _taking(whole: ast.stmt, each_pass_takes: bool, judge: AllocationJudge) -> ast.stmt | None:
    """Return what takes more memory with every pass of a loop, or with every key."""
    if not isinstance(whole, ast.While | ast.For):
        return whole if _keeps(whole, judge) else None
    called = {name_of(each.func) for each in own_nodes(whole) if isinstance(each, ast.Call)}
    no_graph = called & {"backward", "no_grad", "inference_mode", "zero_grad"}
    for each in whole.body:
        if (each_pass_takes and judge.may_allocate(each)) or _keeps(each, judge, _JOINING if no_graph else None):
            return each
    return None


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
        if any(isinstance(target, ast.Subscript) and judge.is_dict(target.value) for target in each.targets):
            return True
        calls = (part for part in ast.walk(each.value) if isinstance(part, ast.Call))
        makers = (call for call in calls if made_by is None or name_of(call.func) in made_by)
        before = {ast.unparse(part) for target in each.targets for part in getattr(target, "elts", [target])}
        if any(ast.unparse(part) in before for call in makers for part in ast.walk(call) if isinstance(part, ast.expr)):
            return True
    return False
