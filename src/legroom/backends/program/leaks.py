"""What grows on the card from step to step, and the line that holds it.

A line leaks if the blocks it asked for in most of its iterations are still alive. A buffer that is cleared every epoch,
or a queue of fixed length, does not do that for long. A line that ran in few iterations, late ones, leaks if all its
blocks are alive and a container got them: a snapshot every thousand steps. The graph of a loss that is kept has many
such lines; the one to name is that of the tensor made last, which holds all others. The source then tells where that
tensor is stored away: `losses.append(loss)`, `total += loss`, `self.last = out`; also in a function of the same file
that gets it, or a hook.
"""

from __future__ import annotations

import ast
from collections import defaultdict
from collections.abc import Iterator

from legroom.backends.program.allocation_ledger import LiveBlock, ProcessBook
from legroom.backends.program.journals import Site
from legroom.backends.program.source import (
    KEEPING,
    Function,
    arguments_of,
    around,
    given_to,
    name_of,
    names_in,
    parsed,
    scope_of,
)
from legroom.model.rehearsal import Leak

WARM_UP = 2  # iterations in which optimizers make their state
LEAST_SURVIVORS = 4  # iterations whose blocks are still there
SHARE = 0.6  # of the iterations in which the line asked for memory
EARLY = 10  # iterations in which what is made once may be made
READING_CALLS = {"item", "tolist", "numpy", "cpu", "float", "int", "backward", "size", "dim"}


def find_leaks(book: ProcessBook) -> Iterator[Leak]:
    """Yield what the process leaks, one per card at most."""
    known = set().union(*book.roles.values())
    for device in book.devices.values():
        by_site: dict[int, list[LiveBlock]] = defaultdict(list)
        for block in device.live.values():
            if WARM_UP <= block.interval < len(book.intervals) and block.number not in known:
                by_site[block.site].append(block)
        leaking = [blocks for site, blocks in by_site.items() if _leaks(book, site, blocks)]
        leaking = leaking or [blocks for site, blocks in by_site.items() if _leaks_rarely(book, site, blocks)]
        kept = [block for blocks in leaking for block in blocks]
        if kept:
            steps = {block.interval for block in kept}
            newest = [block for block in kept if block.interval == max(steps)]
            newest.sort(key=lambda block: (block.phase != 0, -block.birth))  # of forward passes first
            made, held = _held_at([book.site(block.site) for block in newest])
            yield Leak(*held, sum(block.nbytes for block in kept) // len(steps), len(steps), made)


def _leaks(book: ProcessBook, site: int, blocks: list[LiveBlock]) -> bool:
    surviving = {block.interval for block in blocks}
    asked = [at for at, interval in enumerate(book.intervals) if at >= WARM_UP and site in interval.sites]
    if len(surviving) < max(LEAST_SURVIVORS, SHARE * len(asked)):
        return False
    # what was made in the first half is still there: not only the last epoch's
    return min(surviving) <= asked[len(asked) // 2]


def _leaks_rarely(book: ProcessBook, site: int, blocks: list[LiveBlock]) -> bool:
    """Return whether a container got all that a line made in a few late iterations, beside what is in it."""
    asked = {at for at, interval in enumerate(book.intervals) if site in interval.sites}
    if len(asked) >= LEAST_SURVIVORS or min(asked) < EARLY or asked != {block.interval for block in blocks}:
        return False
    for file, line, _ in book.site(site).frames:
        tree, held = parsed(file), storing_line(file, line)
        statement = around(tree, held)[-1] if tree is not None and held is not None else None
        keys = [each.slice for each in getattr(statement, "targets", ()) if isinstance(each, ast.Subscript)]
        if isinstance(statement, ast.Expr) or any(not isinstance(key, ast.Constant | ast.Slice) for key in keys):
            return True
    return False


def _held_at(sites: list[Site]) -> tuple[tuple[str, int], tuple[str, int]]:
    """Return where the kept tensor is made, and the line that stores it."""
    framed = [site for site in sites if site.frames]
    for site in framed:
        for file, line, _ in site.frames:
            if found := storing_line(file, line):
                return site.frames[0][:2], (file, found)
    made = framed[0].frames[0][:2] if framed else ("", 0)
    return made, made


def storing_line(file: str, line: int) -> int | None:
    """Return the line that stores what the statement at `line` makes, None where the source does not tell."""
    tree = parsed(file)
    path = scope_of(around(tree, line)) if tree is not None else [ast.Module([], [])]
    scope, statement = path[0], path[-1]
    if tree is None or not isinstance(statement, ast.stmt) or hasattr(statement, "body"):
        return None
    if _stores(statement, None):
        return line
    names = {each.id for each in names_in(statement) if isinstance(each, ast.Name) and isinstance(each.ctx, ast.Store)}
    later = sorted(_simple(scope), key=lambda node: (node.lineno < line, node.lineno))
    if direct := next((node.lineno for node in later if node is not statement and _stores(node, names)), None):
        return direct
    functions = [node for node in ast.walk(tree) if isinstance(node, Function)]
    calls = [node for each in later for node in ast.walk(each) if isinstance(node, ast.Call)]
    given = [
        (function, {name for name, value in given_to(function, call) if _mentions(value, names)})
        for call in calls for function in functions if function.name == name_of(call.func)
    ]  # fmt: skip
    given += [(each, {argument.arg for argument in each.args.args}) for each in functions if each.name in _hooks(tree)]
    inside = ((node, names) for function, names in given if names for node in _simple(function))
    return next((node.lineno for node, names in inside if _stores(node, names)), None)


def _simple(scope: ast.AST) -> Iterator[ast.stmt]:
    """Yield the statements in a scope that have no body of their own."""
    return (node for node in ast.walk(scope) if isinstance(node, ast.stmt) and not hasattr(node, "body"))


def _hooks(tree: ast.Module) -> set[str]:
    """Return the names of functions that are given to a module as a hook."""
    calls = (node for node in ast.walk(tree) if isinstance(node, ast.Call))
    names = ((name_of(call.func), call.args) for call in calls)
    hooks = (args for name, args in names if name.startswith("register_") and name.endswith("hook"))
    return {each.id for args in hooks for each in args if isinstance(each, ast.Name)}


def _stores(statement: ast.stmt, names: set[str] | None) -> bool:
    """Return whether a statement keeps one of the names (None: whatever it makes) beyond its own iteration."""
    if isinstance(statement, ast.AugAssign):
        return _mentions(statement.value, names)
    if isinstance(statement, ast.Assign):
        kept = any(isinstance(target, ast.Subscript | ast.Attribute) for target in statement.targets)
        return kept and _mentions(statement.value, names)
    call = statement.value if isinstance(statement, ast.Expr) else None
    if isinstance(call, ast.Call) and isinstance(call.func, ast.Attribute) and call.func.attr in KEEPING:
        return any(_mentions(argument, names) for argument in arguments_of(call))
    return False


def _mentions(node: ast.expr, names: set[str] | None) -> bool:
    """Return whether an expression hands on a tensor of that name, and not only a number read from it."""
    if isinstance(node, ast.Call):
        if name_of(node.func) in READING_CALLS:
            return False
        inner = [*arguments_of(node), *([node.func.value] if isinstance(node.func, ast.Attribute) else [])]
        return names is None or any(_mentions(each, names) for each in inner)
    if isinstance(node, ast.Name):
        return names is None or node.id in names
    if isinstance(node, ast.Constant):
        return False
    return any(_mentions(each, names) for each in ast.iter_child_nodes(node) if isinstance(each, ast.expr))
