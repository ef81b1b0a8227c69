"""What a program that was stopped has not reached: places behind the running loop, and branches not taken yet.

A rehearsal stops once the steps repeat. Later on, the program may evaluate, unfreeze, build a second model, or take
larger batches by a schedule. The source tells: of the functions under way when the optimizer steps, all that follows
the running statement, and all of the loops around it, are still to come. Of code that was executed, branches count
whose condition may change while the program runs; conditions on arguments alone do not. A place matters if it may take
GPU memory (`harmless.py`), or changes a whole number that others take as a size.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, field

from legroom.backends.program.harmless import CONFIG, AllocationJudge
from legroom.backends.program.source import (
    Function,
    Loop,
    arguments_of,
    assigned,
    blocks_of,
    first_line,
    given_to,
    last_line,
    name_of,
    names_in,
    own_nodes,
    parsed,
    root_of,
    text_of,
)
from legroom.model.rehearsal import NotReached

Stack = Sequence[tuple[str, int, int]]  # file, line, first line of the function
MOST_PLACES = 20
_CONSTANT_CALLS = (
    "bool", "callable", "endswith", "exists", "getattr", "hasattr", "int", "is_available", "isdir", "isfile",
    "isinstance", "issubclass", "lower", "startswith", "str", "upper",
)  # fmt: skip
_HOOK = re.compile(r"^_?on_|_(step|end|start|epoch)$|^evaluat|^compute_metrics$")
_ENDING = ("__exit__", "__aexit__", "__del__")  # methods that Python itself calls at an end
_DEFERRING = (  # functions of libraries that call later what they are given
    "Timer", "add_done_callback", "call_at", "call_later", "call_soon", "enter", "enterabs", "finalize", "register",
    "signal",
)  # fmt: skip
_DECORATING = frozenset({  # what is decorated by these is called by who defines it
    "abstractmethod", "autocast", "cache", "cached_property", "classmethod", "contextmanager", "custom_bwd",
    "custom_fwd", "dataclass", "enable_grad", "inference_mode", "jit", "lru_cache", "njit", "no_grad", "overload",
    "override", "property", "script", "setter", "staticmethod", "wraps",
})  # fmt: skip
_WHOLE = ("min", "max", "int", "round", "abs")


def places_not_reached(stacks: Sequence[Stack], lines: Mapping[str, Set[int]]) -> list[NotReached]:
    """Return the places that may still take GPU memory, in the order of the files.

    Args:
        stacks: calls under way at the last optimizer step of each thread, the innermost first.
        lines: that were executed while it trained, by file; also of files of which none was.
    """
    files = sorted({*lines, *(at[0] for stack in stacks for at in stack)})
    trees = {file: tree for file in files if (tree := parsed(file))}
    search = _UnreachedSearch(trees, lines)
    search.places = {(file, 0): "its source cannot be read" for file in files if file not in trees}
    for file, line, first in (at for stack in stacks for at in stack):
        if file in trees:
            search.add_under_way(file, line, first)
    search.run()
    return [NotReached(file, line, text) for (file, line), text in sorted(search.places.items())][:MOST_PLACES]


@dataclass
class _UnreachedSearch:
    trees: Mapping[str, ast.Module]
    lines: Mapping[str, Set[int]]
    running: list[tuple[str, Sequence[ast.stmt]]] = field(default_factory=list)  # blocks that run, or will
    loops: list[tuple[Loop, bool]] = field(default_factory=list)  # under way, and whether others are inside of them
    counters: set[str] = field(default_factory=set)  # whole numbers that loops count
    changing: set[str] = field(default_factory=set)  # names that are assigned while it runs
    # whole numbers that change rarely: of outer loops, out of tables, and what is assigned where nothing ran yet
    stepped: set[str] = field(default_factory=set)
    places: dict[tuple[str, int], str] = field(default_factory=dict)

    def add_under_way(self, file: str, line: int, first: int) -> None:
        """Take in one function under way: the loops around its line, and what follows."""
        tree = self.trees[file]
        functions = (each for each in ast.walk(tree) if isinstance(each, Function) and first_line(each) == first)
        function = next((each for each in functions if line <= last_line(each)), None)
        body: list[ast.stmt] = tree.body if function is None else function.body
        loops: list[Loop] = []
        while body:
            at = next((at for at, each in enumerate(body) if first_line(each) <= line <= last_line(each)), None)
            if at is None:
                return
            current = body[at]
            self.running.append((file, body[at + 1 :]))
            if isinstance(current, Loop):
                self.running += [(file, current.body), (file, current.orelse)]
                loops.append(current)
            elif isinstance(current, ast.Try):
                self.running += [(file, current.orelse), (file, current.finalbody)]
            inside = (each for each in blocks_of(current) if first_line(each[0]) <= line <= last_line(each[-1]))
            body = next(inside, [])
        self.loops += [(loop, loop is not loops[-1]) for loop in loops]
        for loop in loops:  # over parts of a table, each as large as it comes
            parts = ast.walk(loop.iter) if not isinstance(loop, ast.While) else ()
            if any(isinstance(each, ast.Call) and name_of(each.func) == "groupby" for each in parts):
                self._note(file, loop, loop)

    def run(self) -> None:
        """Find the places."""
        self.judge = AllocationJudge(list(self.trees.values()))
        for loop, is_outer in self.loops:
            if isinstance(loop, ast.For | ast.AsyncFor) and self._counts(loop):
                names = {each.id for each in ast.walk(loop.target) if isinstance(each, ast.Name)}
                self.counters |= names
                # numbers are counted, or taken out of a list, where any may follow
                counted = isinstance(loop.iter, ast.Call) and name_of(loop.iter.func) == "range"
                self.stepped |= names if is_outer or (self.judge.is_table(loop.iter) and not counted) else set()
        nodes = [(file, each) for file, tree in self.trees.items() for each in ast.walk(tree)]
        live = [(file, each) for file, each in nodes if isinstance(each, Function) and self._is_live(file, each)]
        self.running += [(file, each.body) for file, each in live]
        self.changing = self.counters | {name for _, body in self.running for each in body for name in assigned(each)}
        self.changing |= {arg.arg for _, each in live for arg in ast.walk(each.args) if isinstance(arg, ast.arg)}
        for file, body in self.running:
            self._look(file, body)
        for file, each in nodes:
            self._look_at_hooks(file, each)
        self._look_at_sizes()

    def _note(self, file: str, statement: ast.stmt | ast.expr, text: ast.AST) -> None:
        self.places.setdefault((file, statement.lineno), text_of(text))

    def _look_at_hooks(self, file: str, node: ast.AST) -> None:
        """Find what is called by others, and was not yet.

        That is methods that a library knows by their name (`validation_step`), those that end a block or an object, and
        functions that were given away to be called later (`atexit.register(evaluate)`), if by a decorator.
        """
        later: list[ast.AST] = []
        if isinstance(node, ast.ClassDef):
            methods = (each for each in node.body if isinstance(each, Function))
            later += [each for each in methods if each.name in _ENDING or (node.bases and _HOOK.search(each.name))]
        elif isinstance(node, ast.Call) and name_of(node.func) in _DEFERRING:
            for given in arguments_of(node):
                if isinstance(given, ast.Name | ast.Attribute):
                    later += self.judge.functions.get(name_of(given), [])
                elif isinstance(given, ast.Lambda) and self.judge.may_allocate(given.body):
                    self._note(file, given, given)
        elif isinstance(node, Function):
            calls = (each.func if isinstance(each, ast.Call) else each for each in node.decorator_list)
            names = {name_of(each) for each in calls}
            later += [node] if names - _DECORATING - self.judge.functions.keys() else []
        for method in later:
            if isinstance(method, Function) and not self._is_live(file, method):
                for statement in method.body:
                    self._add(file, statement)

    def _ran(self, file: str, first: int, last: int) -> bool:
        return not self.lines.get(file, frozenset[int]()).isdisjoint(range(first, last + 1))

    def _is_live(self, file: str, function: Function) -> bool:
        return any(self._ran(file, first_line(each), last_line(each)) for each in function.body)

    def _is_reached(self, file: str, statement: ast.stmt) -> bool:
        blocks = blocks_of(statement)
        last = min((first_line(block[0]) - 1 for block in blocks), default=last_line(statement))
        return self._ran(file, first_line(statement), max(last, statement.lineno))

    def _look(self, file: str, body: Sequence[ast.stmt]) -> None:
        """Find what was not executed in a block that was, or will be."""
        for each in body:
            if not self._is_reached(file, each):
                self._add(file, each)
                continue
            if isinstance(each, ast.If):
                changes = self._may_change(each.test)
                for block in filter(None, (each.body, each.orelse)):
                    beside = first_line(block[0]) <= (each.test.end_lineno or 0)  # in the line of the condition
                    if not beside and any(self._is_reached(file, inner) for inner in block):
                        self._look(file, block)
                    elif changes:
                        for inner in block:
                            self._add(file, inner)
                left = isinstance(each.body[-1], ast.Continue | ast.Return | ast.Break)
                if left and self._is_reached(file, each.body[0]) and not changes:
                    return  # with these arguments it always ends here
            elif not isinstance(each, Function | ast.ClassDef):
                handled = [handler.body for handler in getattr(each, "handlers", ())]  # for what goes wrong
                for block in blocks_of(each):
                    if block not in handled:
                        self._look(file, block)

    def _add(self, file: str, statement: ast.stmt) -> None:
        """Take in a statement that was not executed."""
        if isinstance(statement, ast.If) and not self._may_change(statement.test):
            return
        self.stepped |= assigned(statement)
        for each in _simple(statement):
            if self.judge.may_allocate(each):
                self._note(file, each, each)
                return

    def _may_change(self, test: ast.expr) -> bool:
        """Return whether a condition may come out otherwise later in the same run."""
        if isinstance(test, ast.Compare) and isinstance(test.ops[0], ast.Is | ast.IsNot):
            return False
        if any(isinstance(each, ast.Call) and name_of(each.func) not in _CONSTANT_CALLS for each in ast.walk(test)):
            return True
        return any(name_of(each) in self.changing and root_of(each) not in CONFIG for each in names_in(test))

    def _look_at_sizes(self) -> None:
        """Find whole numbers that change in steps, and are given to what takes memory."""
        nodes = [(file, node) for file, body in self.running for each in body for node in own_nodes(each)]
        for _, each in nodes:
            if isinstance(each, ast.AugAssign):
                self.counters.add(name_of(each.target))
            elif isinstance(each, ast.For | ast.AsyncFor) and self._counts(each):
                self.counters |= {name.id for name in ast.walk(each.target) if isinstance(name, ast.Name)}
        grew = -1
        while grew != len(self.stepped):
            grew = len(self.stepped)
            for _, node in nodes:
                if isinstance(node, ast.Assign) and self._is_stepped(node.value):
                    self.stepped |= assigned(node)
                elif isinstance(node, ast.Call):  # numbers go on into functions of the program's own
                    for function in self.judge.functions.get(name_of(node.func), ()):
                        self.stepped |= {name for name, value in given_to(function, node) if self._is_stepped(value)}
        for file, node in nodes:
            sized = [node.lower, node.upper] if isinstance(node, ast.Slice) else []
            sized += self._sizes(node) if isinstance(node, ast.Call) else []
            if any(size is not None and self._is_stepped(size) for size in sized):
                self._note(file, node, node)  # type: ignore[arg-type]

    def _sizes(self, call: ast.Call) -> list[ast.expr | None]:
        """Return the arguments of a call that takes memory which may be sizes."""
        if name_of(call.func) in self.judge.functions or self.judge.is_harmless(call):
            return []
        return [
            each for each in arguments_of(call)
            if not isinstance(each, ast.Call | ast.Subscript) or self.judge.is_number(each)
            or (isinstance(each, ast.Call) and name_of(each.func) in self.judge.functions)
        ]  # fmt: skip

    def _is_stepped(self, node: ast.expr) -> bool:
        """Return whether an expression is a whole number that may change after many steps that were alike."""
        if isinstance(node, ast.IfExp):
            ways = (node.body, node.orelse)
            whole = all(map(self.judge.is_number, ways)) and not any(map(_is_real, ways))
            return (whole and self._may_change(node.test)) or any(map(self._is_stepped, ways))
        if _is_real(node):
            return False
        if isinstance(node, ast.Name | ast.Attribute):
            return name_of(node) in self.stepped
        if isinstance(node, ast.BinOp):
            divided = isinstance(node.op, ast.FloorDiv) and self._is_counted(node)
            return divided or self._is_stepped(node.left) or self._is_stepped(node.right)
        if isinstance(node, ast.Subscript):
            return self.judge.is_table(node.value) and not isinstance(node.slice, ast.Slice) and self._is_counted(node)
        if isinstance(node, ast.Call):
            return self._gives_stepped(node)
        return isinstance(node, ast.Tuple | ast.List) and any(map(self._is_stepped, node.elts))

    def _gives_stepped(self, call: ast.Call) -> bool:
        name = name_of(call.func)
        if name in _WHOLE:
            return any(map(self._is_stepped, call.args)) or (name in ("min", "max") and self._is_counted(call))
        results = [
            each.value for function in self.judge.functions.get(name, ()) for each in ast.walk(function)
            if isinstance(each, ast.Return) and each.value is not None
        ]  # fmt: skip
        whole = bool(results) and all(self.judge.is_number(each) and not _is_real(each) for each in results)
        return whole and any(self._is_counted(each) or self._is_stepped(each) for each in call.args)

    def _counts(self, loop: ast.For | ast.AsyncFor) -> bool:
        return isinstance(loop.iter, ast.Tuple | ast.List) or self.judge.is_numbers(loop.iter)

    def _is_counted(self, node: ast.AST) -> bool:
        return any(name_of(each) in self.counters or name_of(each) in self.stepped for each in names_in(node))


def _is_real(node: ast.expr) -> bool:
    """Return whether a number is no whole one, and so no size."""
    nodes = list(ast.walk(node))
    divided = any(isinstance(each, ast.BinOp) and isinstance(each.op, ast.Div) for each in nodes)
    text = any(isinstance(each, ast.JoinedStr) for each in nodes)
    real = (
        divided or text or any(isinstance(each, ast.Constant) and isinstance(each.value, float | str) for each in nodes)
    )
    return real and not any(isinstance(each, ast.Call) and name_of(each.func) in ("int", "round") for each in nodes)


def _simple(statement: ast.stmt) -> Iterator[ast.stmt]:
    """Yield the simple statements of one, of compound ones the expressions in their first line before their blocks."""
    blocks = blocks_of(statement)
    if not blocks or isinstance(statement, Function | ast.ClassDef):
        yield statement
        return
    for name in ("test", "iter", "items", "subject"):
        value = getattr(statement, name, None)
        for each in value if isinstance(value, list) else [value]:
            if isinstance(each, ast.withitem):
                each = each.context_expr
            if isinstance(each, ast.expr):
                yield ast.copy_location(ast.Expr(each), each)
    for block in blocks:
        for each in block:
            yield from _simple(each)
