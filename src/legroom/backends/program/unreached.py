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
from legroom.backends.program.source import Function, assigned, name_of, own_nodes, parsed, root_of, text_of
from legroom.model.rehearsal import NotReached

Stack = Sequence[tuple[str, int, int]]  # file, line, first line of the function
Loop = ast.For | ast.AsyncFor | ast.While
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
    """Return the places that may still take GPU memory.

    Args:
        stacks: calls under way at the last optimizer step of each thread, the innermost first.
        lines: that were executed while it trained, by file; also of files of which none was.
    """
    files = sorted({*lines, *(at[0] for stack in stacks for at in stack)})
    trees = {file: tree for file in files if (tree := parsed(file))}
    search = _UnreachedSearch(trees, lines)
    search.places = {(file, 0): "its source cannot be read" for file in files if file not in trees}
    for stack in stacks:
        for file, line, first in stack:
            if file in trees:
                search.add_under_way(file, line, first)
    return search.found()


@dataclass
class _UnreachedSearch:
    trees: Mapping[str, ast.Module]
    lines: Mapping[str, Set[int]]
    coming: list[tuple[str, list[ast.stmt]]] = field(default_factory=list)  # blocks that run, or will
    loops: list[tuple[Loop, bool]] = field(default_factory=list)  # under way, and whether others are inside of them
    counters: set[str] = field(default_factory=set)  # whole numbers that loops count
    rare: set[str] = field(default_factory=set)  # those of outer loops, which change rarely, and those out of tables
    places: dict[tuple[str, int], str] = field(default_factory=dict)

    def add_under_way(self, file: str, line: int, first: int) -> None:
        """Take in one function under way: the loops around its line, and what follows."""
        function = _function_at(self.trees[file], first, line)
        body: list[ast.stmt] = function.body if function is not None else self.trees[file].body
        loops: list[Loop] = []
        while body:
            at = next((at for at, each in enumerate(body) if _first(each) <= line <= _last(each)), None)
            if at is None:
                return
            current = body[at]
            self.coming.append((file, body[at + 1 :]))
            if isinstance(current, Loop):
                self.coming += [(file, current.body), (file, current.orelse)]
                loops.append(current)
            elif isinstance(current, ast.Try):
                self.coming += [(file, current.orelse), (file, current.finalbody)]
            inner = [block for block in _blocks(current) if block and _first(block[0]) <= line <= _last(block[-1])]
            body = inner[0] if inner else []
        self.loops += [(loop, loop is not loops[-1]) for loop in loops]
        for loop in loops:  # over parts of a table, each as large as it comes
            parts = ast.walk(loop.iter) if not isinstance(loop, ast.While) else ()
            if any(isinstance(each, ast.Call) and name_of(each.func) == "groupby" for each in parts):
                self.places.setdefault((file, loop.lineno), text_of(loop))

    def found(self) -> list[NotReached]:
        """Return the places, in the order of the files."""
        self.judge = AllocationJudge(list(self.trees.values()))
        for loop, is_outer in self.loops:
            if isinstance(loop, ast.For | ast.AsyncFor) and self._counts(loop):
                names = {each.id for each in ast.walk(loop.target) if isinstance(each, ast.Name)}
                self.counters |= names
                self.rare |= names if is_outer or self._is_list(loop.iter) else set()
        live = [
            (file, each) for file, tree in self.trees.items() for each in ast.walk(tree)
            if isinstance(each, Function) and self._is_live(file, each)
        ]  # fmt: skip
        running = [*self.coming, *((file, each.body) for file, each in live)]
        self.changing = self.counters | {name for _, body in running for each in body for name in assigned(each)}
        for _, function in live:
            self.changing |= {each.arg for each in ast.walk(function.args) if isinstance(each, ast.arg)}
        self.stepped: dict[str, tuple[str, ast.AST]] = {name: ("", ast.Pass()) for name in self.rare}
        for file, body in running:
            self._look(file, body)
        for file, tree in self.trees.items():
            self._look_at_hooks(file, tree)
        self._look_at_sizes(running)
        ordered = sorted(self.places.items())
        return [NotReached(file, line, text) for (file, line), text in ordered][:MOST_PLACES]

    def _look_at_hooks(self, file: str, tree: ast.Module) -> None:
        """Find what is called by others, and was not yet.

        That is methods that a library knows by their name (`validation_step`), those that end a block or an object, and
        functions that were given away to be called later (`atexit.register(evaluate)`), if by a decorator.
        """
        later: list[ast.AST] = []
        for each in ast.walk(tree):
            if isinstance(each, ast.ClassDef):
                later += [
                    method for method in each.body if isinstance(method, Function)
                    and (method.name in _ENDING or (each.bases and _HOOK.search(method.name)))
                ]  # fmt: skip
            elif isinstance(each, ast.Call) and name_of(each.func) in _DEFERRING:
                for given in (*each.args, *(keyword.value for keyword in each.keywords)):
                    named = isinstance(given, ast.Name | ast.Attribute)
                    later += self.judge.functions.get(name_of(given), []) if named else []
                    if isinstance(given, ast.Lambda) and self.judge.may_allocate(given.body):
                        self.places.setdefault((file, given.lineno), ast.unparse(given)[:80])
            elif isinstance(each, Function) and any(map(self._gives_away, each.decorator_list)):
                later.append(each)
        for method in later:
            if isinstance(method, Function) and not self._is_live(file, method):
                for statement in method.body:
                    self._add(file, statement)

    def _gives_away(self, decorator: ast.expr) -> bool:
        name = name_of(decorator.func if isinstance(decorator, ast.Call) else decorator)
        return name not in _DECORATING and name not in self.judge.functions

    def _is_live(self, file: str, function: Function) -> bool:
        lines = {line for each in function.body for line in range(_first(each), _last(each) + 1)}
        return not lines.isdisjoint(self.lines.get(file, ()))

    def _is_reached(self, file: str, statement: ast.stmt) -> bool:
        blocks = [block for block in _blocks(statement) if block]
        last = min((_first(block[0]) - 1 for block in blocks), default=_last(statement))
        return not self.lines.get(file, set()).isdisjoint(range(_first(statement), max(last, statement.lineno) + 1))

    def _look(self, file: str, body: Sequence[ast.stmt]) -> None:
        """Find what was not executed in a block that was, or will be."""
        for each in body:
            if not self._is_reached(file, each):
                self._add(file, each)
                continue
            if isinstance(each, ast.If):
                self._look_at_branches(file, each)
                left = each.body and isinstance(each.body[-1], ast.Continue | ast.Return | ast.Break)
                if left and self._is_reached(file, each.body[0]) and not self._may_change(each.test):
                    return  # with these arguments it always ends here
            elif isinstance(each, ast.Try):
                for block in (each.body, each.orelse, each.finalbody):  # handlers are for what goes wrong
                    self._look(file, block)
            elif not isinstance(each, Function | ast.ClassDef):
                for block in _blocks(each):
                    self._look(file, block)

    def _look_at_branches(self, file: str, statement: ast.If) -> None:
        for block in (statement.body, statement.orelse):
            beside = block and _first(block[0]) <= (statement.test.end_lineno or 0)  # in the line of the condition
            if block and not beside and any(self._is_reached(file, each) for each in block):
                self._look(file, block)
            elif block and self._may_change(statement.test):
                for each in block:
                    self._add(file, each)

    def _add(self, file: str, statement: ast.stmt) -> None:
        """Take in a statement that was not executed."""
        if isinstance(statement, ast.If) and not self._may_change(statement.test):
            return
        for name in assigned(statement):
            self.stepped.setdefault(name, (file, statement))
        for each in _simple(statement):
            if self.judge.may_allocate(each):
                self.places.setdefault((file, each.lineno), text_of(each))
                return

    def _may_change(self, test: ast.expr) -> bool:
        """Return whether a condition may come out otherwise later in the same run."""
        if isinstance(test, ast.Compare) and isinstance(test.ops[0], ast.Is | ast.IsNot):
            return False
        for each in ast.walk(test):
            if isinstance(each, ast.Call) and name_of(each.func) not in _CONSTANT_CALLS:
                return True
        named = [each for each in ast.walk(test) if isinstance(each, ast.Name | ast.Attribute)]
        return any(name_of(each) in self.changing and root_of(each) not in CONFIG for each in named)

    def _look_at_sizes(self, running: Sequence[tuple[str, list[ast.stmt]]]) -> None:
        """Find whole numbers that change in steps, and are given to what takes memory."""
        nodes = [(file, node) for file, body in running for each in body for node in own_nodes(each)]
        self.counters |= {name_of(each.target) for _, each in nodes if isinstance(each, ast.AugAssign)}
        for _, each in nodes:
            if isinstance(each, ast.For | ast.AsyncFor) and self._counts(each):
                self.counters |= {name.id for name in ast.walk(each.target) if isinstance(name, ast.Name)}
        grew = -1
        while grew != len(self.stepped):
            grew = len(self.stepped)
            for file, node in nodes:
                if isinstance(node, ast.Assign) and self._is_stepped(node.value):
                    for name in assigned(node):
                        self.stepped.setdefault(name, (file, node))
                elif isinstance(node, ast.Call) and name_of(node.func) in self.judge.functions:
                    self._pass_on(file, node)
        for file, node in nodes:
            sized = [*_sizes_of(node)] if not isinstance(node, ast.Call) else self._arguments(node)
            if any(self._is_stepped(size) for size in sized):
                self.places.setdefault((file, node.lineno), text_of(node))  # type: ignore[attr-defined]

    def _arguments(self, call: ast.Call) -> list[ast.expr]:
        if name_of(call.func) in self.judge.functions or self.judge.is_harmless(call):
            return []
        given = [*call.args, *(each.value for each in call.keywords)]
        own = [each for each in given if isinstance(each, ast.Call) and name_of(each.func) in self.judge.functions]
        others = [each for each in given if not isinstance(each, ast.Call | ast.Subscript)]
        return [*own, *others, *(each for each in given if self.judge.is_number(each))]

    def _pass_on(self, file: str, call: ast.Call) -> None:
        """Follow numbers into functions of the program's own."""
        for function in self.judge.functions[name_of(call.func)]:
            names = [each.arg for each in (*function.args.posonlyargs, *function.args.args)]
            names = names[1:] if names[:1] == ["self"] else names
            for name, value in (*zip(names, call.args, strict=False), *((k.arg, k.value) for k in call.keywords)):
                if name and self._is_stepped(value):
                    self.stepped.setdefault(name, (file, call))

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

    def _is_list(self, node: ast.expr) -> bool:
        """Return whether numbers are taken out of a list, where any may follow, and not counted."""
        return self.judge.is_table(node) and not (isinstance(node, ast.Call) and name_of(node.func) == "range")

    def _is_counted(self, node: ast.AST) -> bool:
        counters = self.counters | self.stepped.keys()
        return any(isinstance(each, ast.Name | ast.Attribute) and name_of(each) in counters for each in ast.walk(node))


def _sizes_of(node: ast.AST) -> Iterator[ast.expr]:
    """Yield what a node takes as sizes: bounds of slices."""
    if isinstance(node, ast.Slice):
        yield from (each for each in (node.lower, node.upper) if each is not None)


def _is_real(node: ast.expr) -> bool:
    """Return whether a number is no whole one, and so no size."""
    return any(
        (isinstance(each, ast.BinOp) and isinstance(each.op, ast.Div))
        or isinstance(each, ast.JoinedStr)
        or (isinstance(each, ast.Constant) and isinstance(each.value, float | str))
        for each in ast.walk(node)
    ) and not any(isinstance(each, ast.Call) and name_of(each.func) in ("int", "round") for each in ast.walk(node))


def _simple(statement: ast.stmt) -> Iterator[ast.stmt]:
    """Yield the simple statements of one, of compound ones the expressions in their first line before their blocks."""
    blocks = [block for block in _blocks(statement) if block]
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


def _blocks(statement: ast.stmt) -> list[list[ast.stmt]]:
    found = [getattr(statement, name, None) or [] for name in ("body", "orelse", "finalbody")]
    found += [handler.body for handler in getattr(statement, "handlers", ())]
    return found + [case.body for case in getattr(statement, "cases", ())]


def _function_at(tree: ast.Module, first: int, line: int) -> Function | None:
    """Return the function that begins in a line, its decorators included; None: the module itself."""
    functions = [each for each in ast.walk(tree) if isinstance(each, Function) and _first(each) == first]
    return next((each for each in functions if _first(each) <= line <= _last(each)), None)


def _first(statement: ast.stmt) -> int:
    decorators = [each.lineno for each in getattr(statement, "decorator_list", ())]
    return min([statement.lineno, *decorators])


def _last(statement: ast.stmt) -> int:
    return statement.end_lineno or statement.lineno
