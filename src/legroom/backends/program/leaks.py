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
from collections.abc import Sequence

from legroom.backends.program.allocation_ledger import LiveBlock, ProcessBook
from legroom.backends.program.journals import Site
from legroom.backends.program.source import KEEPING, Function, covers, name_of, parsed
from legroom.model.rehearsal import Leak

WARM_UP = 2  # iterations in which optimizers make their state
LEAST_SURVIVORS = 4  # iterations whose blocks are still there
SHARE = 0.6  # of the iterations in which the line asked for memory
EARLY = 10  # iterations in which what is made once may be made
READING_CALLS = {"item", "tolist", "numpy", "cpu", "float", "int", "backward", "size", "dim"}


def find_leaks(book: ProcessBook) -> list[Leak]:
    """Return what the process leaks, one per card at most."""
    return [leak for device in book.devices for leak in _of_device(book, device)]


def _of_device(book: ProcessBook, device: int) -> list[Leak]:
    known = set().union(*book.roles.values())
    by_site: dict[int, list[LiveBlock]] = defaultdict(list)
    for block in book.devices[device].live.values():
        if WARM_UP <= block.interval < len(book.intervals) and block.number not in known:
            by_site[block.site].append(block)
    leaking = {site: blocks for site, blocks in by_site.items() if _leaks(book, site, blocks)}
    leaking = leaking or {site: blocks for site, blocks in by_site.items() if _leaks_rarely(book, site, blocks)}
    if not leaking:
        return []
    kept = [block for blocks in leaking.values() for block in blocks]
    steps = {block.interval for block in kept}
    last = max(steps)
    newest_first = sorted((block for block in kept if block.interval == last), key=lambda block: -block.birth)
    forward_first = sorted(newest_first, key=lambda block: block.phase != 0)
    made, held = _held_at([book.site(block.site) for block in forward_first])
    nbytes = sum(block.nbytes for block in kept) // len(steps)
    return [Leak(*held, nbytes, len(steps), made)]


def _leaks(book: ProcessBook, site: int, blocks: list[LiveBlock]) -> bool:
    surviving = {block.interval for block in blocks}
    asked = [at for at, interval in enumerate(book.intervals) if at >= WARM_UP and site in interval.sites]
    if len(surviving) < max(LEAST_SURVIVORS, SHARE * len(asked)):
        return False
    # what was made in the first half is still there: not only the last epoch's
    return min(surviving) <= asked[len(asked) // 2]


def _leaks_rarely(book: ProcessBook, site: int, blocks: list[LiveBlock]) -> bool:
    """Return whether a container got all that a line made in a few late iterations."""
    asked = {at for at, interval in enumerate(book.intervals) if site in interval.sites}
    if len(asked) >= LEAST_SURVIVORS or min(asked) < EARLY or asked != {block.interval for block in blocks}:
        return False
    return any(_is_collected(file, line) for file, line, _ in book.site(site).frames)


def _is_collected(file: str, line: int) -> bool:
    """Return whether what the statement at `line` makes is put into a container, beside what is in it."""
    tree, held = parsed(file), storing_line(file, line)
    statement = None if tree is None or held is None else _statement_at(tree, held)[1]
    if isinstance(statement, ast.Assign):
        keys = [target.slice for target in statement.targets if isinstance(target, ast.Subscript)]
        return any(not isinstance(key, ast.Constant | ast.Slice) for key in keys)
    return isinstance(statement, ast.Expr)


def _held_at(sites: list[Site]) -> tuple[tuple[str, int], tuple[str, int]]:
    """Return where the kept tensor is made, and the line that stores it."""
    framed = [site for site in sites if site.frames]
    for site in framed:
        for file, line, _ in site.frames:
            found = storing_line(file, line)
            if found is not None:
                return site.frames[0][:2], (file, found)
    if not framed:
        return ("", 0), ("", 0)
    made = framed[0].frames[0][:2]
    return made, made


def storing_line(file: str, line: int) -> int | None:
    """Return the line that stores what the statement at `line` makes, None where the source does not tell."""
    tree = parsed(file)
    if tree is None:
        return None
    scope, statement = _statement_at(tree, line)
    if statement is None:
        return None
    if _stores(statement, None):
        return statement.lineno
    names = {node.id for node in ast.walk(statement) if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)}
    others = [node for node in ast.walk(scope) if isinstance(node, ast.stmt) and not _has_body(node)]
    later = sorted(others, key=lambda node: (node.lineno < line, node.lineno))
    direct = next((node.lineno for node in later if node is not statement and _stores(node, names)), None)
    return direct or _stored_by_callee(tree, later, names) or _stored_by_hook(tree)


def _stored_by_callee(tree: ast.Module, statements: Sequence[ast.stmt], names: set[str]) -> int | None:
    """Return the line of a function of this file that is given one of the names and stores it."""
    calls = [node for statement in statements for node in ast.walk(statement) if isinstance(node, ast.Call)]
    for call in calls:
        for function in _functions(tree, name_of(call.func)):
            given = _parameters_given(call, function, names)
            if given and (line := _storing_in(function, given)):
                return line
    return None


def _stored_by_hook(tree: ast.Module) -> int | None:
    """Return the line of a hook of this file that stores what it gets."""
    for call in (node for node in ast.walk(tree) if isinstance(node, ast.Call)):
        name = call.func.attr if isinstance(call.func, ast.Attribute) else ""
        if name.startswith("register_") and name.endswith("hook"):
            for given in (argument for argument in call.args if isinstance(argument, ast.Name)):
                for function in _functions(tree, given.id):
                    if line := _storing_in(function, {argument.arg for argument in function.args.args}):
                        return line
    return None


def _functions(tree: ast.Module, name: str) -> list[ast.FunctionDef]:
    return [node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef) and node.name == name]


def _parameters_given(call: ast.Call, function: ast.FunctionDef, names: set[str]) -> set[str]:
    """Return the parameters of a function that a call gives one of the names to."""
    parameters = [argument.arg for argument in function.args.args]
    if parameters[:1] == ["self"]:
        parameters = parameters[1:]
    given = {parameter for parameter, value in zip(parameters, call.args, strict=False) if _mentions(value, names)}
    return given | {word.arg for word in call.keywords if word.arg and _mentions(word.value, names)}


def _storing_in(function: ast.FunctionDef, names: set[str]) -> int | None:
    statements = [node for node in ast.walk(function) if isinstance(node, ast.stmt) and not _has_body(node)]
    return next((node.lineno for node in statements if _stores(node, names)), None)


def _statement_at(tree: ast.Module, line: int) -> tuple[ast.AST, ast.stmt | None]:
    """Return the innermost function around a line, and the statement on it that has no body of its own."""
    scope: ast.AST = tree
    found: ast.stmt | None = None
    for node in ast.walk(tree):  # outer ones come before inner ones
        if isinstance(node, ast.stmt) and covers(node, line):
            if isinstance(node, Function):
                scope = node
            elif not _has_body(node):
                found = node
    return scope, found


def _has_body(node: ast.stmt) -> bool:
    return hasattr(node, "body")


def _stores(statement: ast.stmt, names: set[str] | None) -> bool:
    """Return whether a statement keeps one of the names (None: whatever it makes) beyond its own iteration."""
    if isinstance(statement, ast.AugAssign):
        return _mentions(statement.value, names)
    if isinstance(statement, ast.Assign):
        kept = any(isinstance(target, ast.Subscript | ast.Attribute) for target in statement.targets)
        return kept and _mentions(statement.value, names)
    if isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Call):
        call = statement.value
        if isinstance(call.func, ast.Attribute) and call.func.attr in KEEPING:
            given = [*call.args, *(keyword.value for keyword in call.keywords)]
            return any(_mentions(argument, names) for argument in given)
    return False


def _mentions(node: ast.expr, names: set[str] | None) -> bool:
    """Return whether an expression hands on a tensor of that name, and not only a number read from it."""
    if isinstance(node, ast.Call):
        if name_of(node.func) in READING_CALLS:
            return False
        inner = [*node.args, *(keyword.value for keyword in node.keywords)]
        inner += [node.func.value] if isinstance(node.func, ast.Attribute) else []
        return names is None or any(_mentions(each, names) for each in inner)
    if isinstance(node, ast.Name):
        return names is None or node.id in names
    if isinstance(node, ast.Constant):
        return False
    children = [child for child in ast.iter_child_nodes(node) if isinstance(child, ast.expr)]
    return any(_mentions(child, names) for child in children)
