"""Who binds a name, who uses it, and which binding reaches a use: Python's scoping rules on a syntax tree.

Rules ask "is this object ever used?" and "is it the same object as over there?". Both need names resolved as Python
does (function scopes, closures, class bodies that closures skip), and the second needs to know which of several
assignments can be the one that a use sees. Where several can, all are returned, and the caller stays silent unless
they agree.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, Literal

from legroom.reading.reading_budget import pay
from legroom.reading.source import children_of

Kind = Literal["assign", "unpack", "augmented", "parameter", "import", "definition", "loop", "with", "other"]
Position = tuple[int, int]
FunctionNode = ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda
_COMPREHENSIONS = ast.ListComp | ast.SetComp | ast.DictComp | ast.GeneratorExp
_OPENING = FunctionNode | ast.ClassDef | _COMPREHENSIONS


@dataclass(frozen=True, eq=False)
class Binding:
    """One place that gives a name its value."""

    name: str
    kind: Kind
    node: ast.AST  # the statement, argument or expression that binds
    value: ast.expr | None = None  # the expression that is assigned, where it is one
    target: str = ""  # for imports the qualified name, e.g. `stable_baselines3.PPO`.


_BINDS_NOTHING = frozenset({
    ast.Constant, ast.Attribute, ast.Call, ast.keyword, ast.BinOp, ast.Subscript, ast.Tuple, ast.List, ast.Dict,
    ast.Compare, ast.UnaryOp, ast.BoolOp, ast.JoinedStr, ast.FormattedValue, ast.Starred, ast.IfExp, ast.Slice,
    ast.alias, ast.Add, ast.Sub, ast.Mult, ast.Div, ast.Eq, ast.Gt, ast.Lt, ast.USub, ast.Not, ast.And,
})  # fmt: skip


@dataclass(eq=False)
class NameScope:
    """A module, function, class body or comprehension with the names it binds and the uses that mean those."""

    node: ast.AST
    parent: NameScope | None = None
    bindings: dict[str, list[Binding]] = field(default_factory=dict)
    uses: dict[str, list[ast.Name]] = field(default_factory=dict)
    elsewhere: dict[str, str] = field(default_factory=dict)  # names declared global or nonlocal here
    stars: list[str] = field(default_factory=list)  # modules of `from x import *`

    def enclosing(self) -> Iterator[NameScope]:
        """Yield this scope and those around it that its names can come from."""
        yield self
        scope = self.parent
        while scope is not None:
            if not isinstance(scope.node, ast.ClassDef):
                yield scope
            scope = scope.parent


def imported_module(node: ast.ImportFrom, package: str) -> str:
    """Return the module that `from ... import` names, in the package that relative ones start from."""
    if not node.level:
        return node.module or ""
    parts = package.split(".") if package else []
    parts = parts[: len(parts) - (node.level - 1)] if node.level > 1 else parts
    return ".".join([*parts, *([node.module] if node.module else [])])


class Scopes:
    """The scopes of one module, and the parents of its nodes.

    Args:
        package: the dotted package that relative imports start from; "" for a script.
    """

    def __init__(self, tree: ast.Module, package: str = "") -> None:
        self.package = package
        self.root = NameScope(tree)
        self.all: list[NameScope] = [self.root]
        self.parents: dict[int, ast.AST] = {}
        self._scope_at: dict[int, NameScope] = {}
        self._loads: list[tuple[ast.Name, NameScope]] = []
        for statement in tree.body:
            self.parents[id(statement)] = tree
            self._visit(statement, self.root)
        for name, scope in self._loads:
            home = self.home(name.id, scope)
            (home or self.root).uses.setdefault(name.id, []).append(name)

    # -- questions ---------------------------------------------------------------------------------------------------

    def scope_of(self, node: ast.AST) -> NameScope:
        return self._scope_at.get(id(node), self.root)

    def home(self, name: str, scope: NameScope) -> NameScope | None:
        """Return the scope whose binding `name` means when it is used in `scope`; None for builtins and the like."""
        if scope.elsewhere.get(name) == "global":
            return self.root if name in self.root.bindings else None
        for candidate in scope.enclosing():
            if name in candidate.bindings and candidate.elsewhere.get(name) is None:
                return candidate
        return None

    def ancestors(self, node: ast.AST) -> Iterator[ast.AST]:
        """Yield the nodes around `node`, innermost first."""
        while (parent := self.parents.get(id(node))) is not None:
            yield parent
            node = parent

    def statement_of(self, node: ast.AST) -> ast.stmt | None:
        if isinstance(node, ast.stmt):
            return node
        return next((a for a in self.ancestors(node) if isinstance(a, ast.stmt)), None)

    def function_of(self, node: ast.AST) -> FunctionNode | None:
        return next((a for a in self.ancestors(node) if isinstance(a, FunctionNode)), None)

    def class_of(self, node: ast.AST) -> ast.ClassDef | None:
        return next((a for a in self.ancestors(node) if isinstance(a, ast.ClassDef)), None)

    def uses_of(self, made: ast.AST) -> list[ast.Name]:
        """Return the uses of the name that the statement around `made` assigns it to; none where it is no name."""
        statement = self.parents.get(id(made))
        if not (isinstance(statement, ast.Assign) and isinstance(statement.targets[0], ast.Name)):
            return []
        name = statement.targets[0].id
        home = self.home(name, self.scope_of(statement))
        return home.uses.get(name, []) if home is not None else []

    def chained(self, node: ast.AST) -> Iterator[ast.Call]:
        """Yield the method calls on `node`, one on the result of the other: `node.a().b()`."""
        while isinstance(attribute := self.parents.get(id(node)), ast.Attribute):
            call = self.parents.get(id(attribute))
            if not (isinstance(call, ast.Call) and call.func is attribute):
                return
            yield call
            node = call

    def reaching(self, name: ast.Name) -> list[Binding]:
        """Return the bindings that the use `name` can see, nearest first; a closure can see all of them."""
        here = self.scope_of(name)
        home = self.home(name.id, here)
        if home is None:
            return []
        bindings = home.bindings[name.id]
        pay(len(bindings), name.lineno)
        while here is not home and isinstance(here.node, _COMPREHENSIONS) and here.parent is not None:
            here = here.parent
        if here is not home:
            return list(reversed(bindings))
        around = {id(node): node for node in (name, *self.ancestors(name))}
        before, later = list[Binding](), list[Binding]()
        for binding in sorted(bindings, key=lambda each: start(each.node), reverse=True):
            own = id(binding.node) in around and binding.kind in ("assign", "augmented", "unpack")  # x = f(x)
            inside = self._loops(binding.node)
            if start(binding.node) < start(name) and not own:
                before.append(binding)
                if self._always_before(binding.node, around):
                    later = [] if any(id(loop) in around for loop in inside) else later  # it runs in every turn
                    break
            elif any(id(loop) in around for loop in inside):
                later.append(binding)  # of an earlier turn of the loop
        return before + later

    def _loops(self, node: ast.AST) -> list[ast.AST]:
        return [each for each in self.ancestors(node) if isinstance(each, ast.For | ast.AsyncFor | ast.While)]

    def _always_before(self, node: ast.AST, around: dict[int, ast.AST]) -> bool:
        """Return whether a run comes to what is `around` a later place through `node`: no branch is taken between."""
        for parent in self.ancestors(node):
            if id(parent) in around:
                block = next((b for _, b in ast.iter_fields(parent) if isinstance(b, list) and node in b), None)
                return block is None or any(id(each) in around for each in block)
            if not is_main_guard(parent) and not isinstance(parent, ast.With | ast.AsyncWith):
                return False
            node = parent
        return True

    # -- construction ------------------------------------------------------------------------------------------------

    def _bind(self, scope: NameScope, binding: Binding) -> None:
        declared = scope.elsewhere.get(binding.name)
        if declared == "global":
            scope = self.root
        elif declared == "nonlocal":
            outer = [s for s in list(scope.enclosing())[1:] if binding.name in s.bindings]
            scope = outer[0] if outer else scope
        scope.bindings.setdefault(binding.name, []).append(binding)

    def _visit(self, node: ast.AST, scope: NameScope) -> None:
        self._scope_at[id(node)] = scope
        inner = scope
        if isinstance(node, _OPENING):
            if not isinstance(node, ast.Lambda | _COMPREHENSIONS):
                self._bind(scope, Binding(node.name, "definition", node))
            inner = NameScope(node, scope)
            self.all.append(inner)
        elif type(node) not in _BINDS_NOTHING:  # a third of all nodes
            self._bind_by_name(node, scope)
        outer = ("decorator_list", "bases", "keywords")
        outside = [each for name in outer for each in getattr(node, name, ())] + [getattr(node, "returns", None)]
        for child in children_of(node):
            self.parents[id(child)] = node
            if isinstance(node, ast.arg) or (isinstance(node, ast.arguments) and not isinstance(child, ast.arg)):
                self._visit(child, scope.parent or scope)  # annotations and defaults
            else:
                self._visit(child, scope if any(child is each for each in outside) else inner)

    def _bind_by_name(self, node: ast.AST, scope: NameScope) -> None:
        match node:
            case ast.Name(ctx=ast.Load()):
                self._loads.append((node, scope))
            case ast.Name(ctx=ast.Store()):
                self._bind_stored(node, scope)
            case ast.arg():
                scope.bindings.setdefault(node.arg, []).append(Binding(node.arg, "parameter", node))
            case ast.Global() | ast.Nonlocal():
                scope.elsewhere.update(dict.fromkeys(node.names, type(node).__name__.lower()))
            case (
                ast.ExceptHandler(name=str() as name)
                | ast.MatchAs(name=str() as name)
                | ast.MatchStar(name=str() as name)
                | ast.MatchMapping(rest=str() as name)
                | ast.Name(id=name, ctx=ast.Del())
            ):
                self._bind(scope, Binding(name, "other", node))
            case ast.Import():
                for alias in node.names:
                    name = alias.asname or alias.name.partition(".")[0]
                    self._bind(scope, Binding(name, "import", node, target=alias.name if alias.asname else name))
            case ast.ImportFrom():
                module = imported_module(node, self.package)
                for alias in node.names:
                    if alias.name == "*":
                        scope.stars.append(module)
                    else:
                        full = f"{module}.{alias.name}" if module else alias.name
                        self._bind(scope, Binding(alias.asname or alias.name, "import", node, target=full))

    def _bind_stored(self, name: ast.Name, scope: NameScope) -> None:
        """Bind a name that is set, with the expression that it is set to where that is one of its own."""
        path: list[tuple[Any, ast.AST]] = []  # from the name to the whole target
        part, around = name, self.parents[id(name)]
        while isinstance(around, ast.Tuple | ast.List | ast.Starred):
            path.append((around, part))
            part, around = around, self.parents[id(around)]  # type: ignore[assignment]
        value: ast.expr | None = None if path else getattr(around, "value", None)
        kind: Kind = "assign"
        match around:
            case ast.Assign():
                value = around.value
                for target, inner in reversed(path):
                    value = _element(target, inner, value)
                kind = "assign" if value is not None else "unpack"
            case ast.AnnAssign(value=None):
                return
            case ast.NamedExpr():
                scope = next((s for s in scope.enclosing() if isinstance(s.node, FunctionNode | ast.Module)), scope)
            case ast.AugAssign():
                kind = "augmented"
            case ast.withitem():
                kind, value, around = "with", None if path else around.context_expr, self.parents[id(around)]
            case ast.For() | ast.AsyncFor() | ast.comprehension():
                kind = "loop"
        self._bind(scope, Binding(name.id, kind, around, value))


def _element(target: Any, part: ast.AST, value: ast.expr | None) -> ast.expr | None:
    """Return what one of several targets gets of a tuple that is written out."""
    if not isinstance(value, ast.Tuple | ast.List) or isinstance(target, ast.Starred):
        return None
    starred = any(isinstance(each, ast.Starred) for each in target.elts)
    return None if starred or len(value.elts) != len(target.elts) else value.elts[target.elts.index(part)]


def start(node: ast.AST) -> Position:
    return getattr(node, "lineno", 0), getattr(node, "col_offset", 0)


def is_main_guard(node: ast.AST) -> bool:
    """Return whether `node` is `if __name__ == "__main__":`."""
    if not isinstance(node, ast.If):
        return False
    test = node.test
    if not (isinstance(test, ast.Compare) and len(test.ops) == 1 and isinstance(test.ops[0], ast.Eq)):
        return False
    sides = (test.left, test.comparators[0])
    return any(isinstance(s, ast.Name) and s.id == "__name__" for s in sides) and any(
        isinstance(s, ast.Constant) and s.value == "__main__" for s in sides
    )
