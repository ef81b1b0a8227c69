"""A Script: the facts about one Python file that rules ask for, found by its syntax tree; nothing is executed.

Names are resolved as Python would: through aliases of imports, through modules beside the script and through plain
renamings, to a qualified name (`stable_baselines3.common.callbacks.EvalCallback`) or to the class or function that the
script's own folder defines. What can be several things is nothing: every question here answers None then, and the
rule that asked stays silent.
"""

from __future__ import annotations

import ast
import builtins
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cached_property, lru_cache
from pathlib import Path
from typing import Any, NamedTuple

from legroom.backends.base import backends
from legroom.errors import BadInput
from legroom.reading.interpreter.scopes import Binding, Scopes, imported_module
from legroom.reading.reading_budget import pay
from legroom.reading.source import KEPT_TREES, last_name, module_file, nodes_of, parse_module
from legroom.reading.user_files import read_text

MOST_MODULES = 40  # beside the script that are followed
MOST_NEIGHBOURS = 200  # files of the script's folder that are searched for a name
DEEPEST_ALIAS = 8  # a = b, b = c, ...

Definition = ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef


class _Meaning(NamedTuple):
    """What a name stands for: a qualified name, and the definition where one of the folder's own modules has it."""

    name: str | None = None
    definition: tuple[Script, Definition] | None = None


@lru_cache(maxsize=KEPT_TREES)
def _scopes(tree: ast.Module, package: str) -> Scopes:
    return Scopes(tree, package)


@lru_cache(maxsize=KEPT_TREES)
def _calls(tree: ast.Module) -> tuple[ast.Call, ...]:
    return tuple(sorted((n for n in nodes_of(tree) if isinstance(n, ast.Call)), key=lambda n: (n.lineno, n.col_offset)))


@lru_cache(maxsize=KEPT_TREES)
def _imported(tree: ast.Module, package: str) -> tuple[tuple[str, ast.stmt], ...]:
    found: list[tuple[str, ast.stmt]] = []
    for node in nodes_of(tree):
        if isinstance(node, ast.Import):
            found += [(alias.name, node) for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            found.append((imported_module(node, package), node))
    return tuple(found)


@dataclass(frozen=True, eq=False)
class Script:
    """The tree of a file, and of the modules beside it that it imports, by their name."""

    path: str
    text: str
    tree: ast.Module
    name: str = "__main__"
    modules: dict[str, Script] = field(default_factory=dict, repr=False)
    seen: dict[int, list[Any]] | None = field(default=None, repr=False)  # values of expressions, once it is followed
    _meanings: dict[int, _Meaning] = field(default_factory=dict, repr=False)

    # -- parts -------------------------------------------------------------------------------------------------------

    @cached_property
    def package(self) -> str:
        """The dotted package that its relative imports start from."""
        return self.name if Path(self.path).name == "__init__.py" else self.name.rpartition(".")[0]

    @cached_property
    def scopes(self) -> Scopes:
        return _scopes(self.tree, self.package)

    @cached_property
    def nodes(self) -> tuple[ast.AST, ...]:
        """Every node of the tree, outer ones first."""
        return nodes_of(self.tree)

    @cached_property
    def calls(self) -> tuple[ast.Call, ...]:
        return _calls(self.tree)

    @cached_property
    def calls_by_name(self) -> dict[str, list[ast.Call]]:
        """The calls by the last name of what they call: `step` of `env.step(action)`."""
        found: dict[str, list[ast.Call]] = {}
        for call in self.calls:
            found.setdefault(last_name(call.func), []).append(call)
        return found

    @cached_property
    def classes(self) -> tuple[ast.ClassDef, ...]:
        return tuple(n for n in self.nodes if isinstance(n, ast.ClassDef))

    @cached_property
    def lines(self) -> tuple[str, ...]:
        return tuple(self.text.splitlines())

    @cached_property
    def stores(self) -> dict[str, list[ast.Attribute]]:
        """Where attributes are assigned or deleted, by their name."""
        found: dict[str, list[ast.Attribute]] = {}
        for node in self.nodes:
            if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store | ast.Del):
                found.setdefault(node.attr, []).append(node)
        return found

    def stores_of(self, attribute: str) -> Iterator[tuple[ast.Attribute, ast.stmt | None]]:
        """Yield (target, statement) where an attribute of that name is assigned or deleted."""
        stores = self.stores.get(attribute, ())
        pay(len(stores) + 1)
        for node in stores:
            yield node, self.scopes.statement_of(node)

    @property
    def beside(self) -> tuple[Script, ...]:
        """The modules beside the script that it imports; a module has none of its own."""
        return tuple(self.modules.values()) if self.name == "__main__" else ()

    @property
    def followed(self) -> tuple[Script, ...]:
        """This script and the modules beside it that it imports."""
        return (self, *self.beside)

    # -- names -------------------------------------------------------------------------------------------------------

    def qualified(self, node: ast.expr | None) -> str | None:
        """Return the dotted name that `node` stands for with aliases resolved; None for what is no fixed object."""
        return self._meaning(node).name

    def definition(self, node: ast.expr | None) -> tuple[Script, Definition] | None:
        """Return the class or function of this folder that `node` names, and the script that defines it."""
        return self._meaning(node).definition

    def defined_as(self, name: str) -> tuple[Script, Definition] | None:
        return self._exported(name, "", 0).definition

    def calls_of(self, *names: str) -> Iterator[ast.Call]:
        for call in self.calls:
            if self.qualified(call.func) in names:
                yield call

    def imports(self, package: str) -> bool:
        return any(name == package or name.startswith(f"{package}.") for name, _ in self.imported)

    @cached_property
    def imported(self) -> tuple[tuple[str, ast.stmt], ...]:
        """(module, statement) of every import."""
        return _imported(self.tree, self.package)

    def bases(self, cls: ast.ClassDef, depth: int = 0) -> set[str]:
        """Return the qualified names of all library classes that `cls` derives from, through classes of the folder."""
        found: set[str] = set()
        for base in cls.bases:
            own = self.definition(base)
            if own is not None and isinstance(own[1], ast.ClassDef):
                if depth < DEEPEST_ALIAS:
                    found |= own[0].bases(own[1], depth + 1)
            elif (name := self.qualified(base)) is not None:
                found.add(name)
        return found

    def _meaning(self, node: ast.expr | None) -> _Meaning:
        """Return what `node` stands for; rules ask again and again, and the answer does not change."""
        found = self._meanings.get(id(node))
        if found is None:
            found = self._meant(node, 0)
            if isinstance(node, ast.Name | ast.Attribute) and hasattr(node, "lineno"):
                self._meanings[id(node)] = found  # the tree keeps its nodes, so their ids stay theirs
        return found

    def _meant(self, node: ast.expr | None, depth: int) -> _Meaning:
        if isinstance(node, ast.Attribute) and depth <= DEEPEST_ALIAS:
            base = self._meant(node.value, depth + 1).name
            return _Meaning() if base is None else self._member(f"{base}.{node.attr}", depth)
        if not isinstance(node, ast.Name) or depth > DEEPEST_ALIAS:
            return _Meaning()
        bindings = self.scopes.reaching(node)
        if not bindings:
            return self._from_star(node.id, depth + 1)
        meanings = [self._bound(binding, depth) for binding in bindings]
        if len(meanings) == 1:
            return meanings[0]
        return _Meaning(meanings[0].name if len({meaning.name for meaning in meanings}) == 1 else None)

    def _bound(self, binding: Binding, depth: int) -> _Meaning:
        if binding.kind == "definition" and isinstance(binding.node, Definition):
            return _Meaning(None, (self, binding.node))
        if binding.kind == "import":
            return self._member(binding.target, depth)
        if binding.kind == "assign" and isinstance(binding.value, ast.Name | ast.Attribute):
            return self._meant(binding.value, depth + 1)
        return _Meaning()

    def _member(self, name: str, depth: int) -> _Meaning:
        """Follow the name of something in a module beside the script to where that module has it from."""
        module, _, last = name.rpartition(".")
        beside = self.modules.get(module) if depth <= DEEPEST_ALIAS else None
        return _Meaning(name) if beside is None else beside._exported(last, name, depth)

    def _exported(self, name: str, full: str, depth: int) -> _Meaning:
        """Return what a module-level name of this script means; `full` is what others call it."""
        bindings = self.scopes.root.bindings.get(name, [])
        meaning = self._bound(bindings[0], depth + 1) if len(bindings) == 1 else _Meaning()
        return _Meaning(meaning.name or full, meaning.definition)

    def _from_star(self, name: str, depth: int) -> _Meaning:
        stars = self.scopes.root.stars
        for module in stars:
            if module in self.modules and name in self.modules[module].scopes.root.bindings:
                return self._member(f"{module}.{name}", depth)
        outside = [module for module in stars if module not in self.modules]
        if not outside or hasattr(builtins, name):
            return _Meaning(name)
        # only who exports a name can tell; of several, a training library is what the rules ask about
        known = {package for backend in backends() for package in backend.script_packages}
        training = [module for module in outside if module.partition(".")[0] in known]
        return _Meaning(f"{(training or outside)[0]}.{name}")

    # -- places ------------------------------------------------------------------------------------------------------

    def comment(self, line: int) -> str:
        """Return the comment at the end of `line`, as far as a line alone can tell."""
        text = self.lines[line - 1] if 0 < line <= len(self.lines) else ""
        return text.partition("#")[2]

    @cached_property
    def importers(self) -> tuple[str, ...]:
        """The texts of files of the folder that import this one, or import one that does: they see its names."""
        own = Path(self.path)
        try:
            files = sorted(f for f in own.parent.iterdir() if f.suffix in (".py", ".ipynb") and f.name != own.name)
            texts = {file.stem: _text_at(str(file), file.stat().st_mtime_ns) for file in files[:MOST_NEIGHBOURS]}
        except (OSError, ValueError):
            return ()
        found: dict[str, str] = {}
        stems = {own.parent.name if own.stem == "__init__" else own.stem}
        while stems:
            speaks = re.compile(rf"\b(?:{'|'.join(map(re.escape, stems))})\b")
            new = {stem: text for stem, text in texts.items() if stem not in found and speaks.search(text)}
            found |= new
            stems = new.keys() - {"__init__"}
        return tuple(found.values())


@lru_cache(maxsize=128)
def _text_at(path: str, changed: int) -> str:
    """Return the text of a file as it was at a time, empty where it is none: each script of a folder asks for all."""
    try:
        return read_text(path)
    except BadInput:
        return ""


def argument(call: ast.Call, name: str, position: int | None = None) -> ast.expr | None:
    """Return the argument of a call by keyword or position; None where it is not given (or hidden in * or **)."""
    for keyword in call.keywords:
        if keyword.arg == name:
            return keyword.value
    if position is not None and position < len(call.args):
        before = call.args[: position + 1]
        if not any(isinstance(a, ast.Starred) for a in before):
            return call.args[position]
    return None


def has_hidden_arguments(call: ast.Call) -> bool:
    """Return whether the call passes `*args` or `**kwargs`, so that what is absent may be given all the same."""
    return any(isinstance(a, ast.Starred) for a in call.args) or any(k.arg is None for k in call.keywords)


def dotted(node: ast.AST) -> str | None:
    if isinstance(node, ast.Name):
        return node.id
    if isinstance(node, ast.Attribute):
        base = dotted(node.value)
        return None if base is None else f"{base}.{node.attr}"
    return None


def read_script(text: str, path: str) -> Script:
    """Return the facts of a script, with the modules beside it that it imports (at most 40).

    Raises:
        BadInput: it is not Python, or nested too deeply.
    """
    modules: dict[str, Script] = {}
    main = Script(path, text, parse_module(text, path), modules=modules)
    try:
        _follow(main, Path(path).parent, modules)
        for module in main.followed:
            _ = module.scopes
        return main
    except RecursionError:
        raise BadInput("nested too deeply to follow", path=path, hint="split the expression up") from None


def _follow(script: Script, folder: Path, modules: dict[str, Script]) -> None:
    """Read the modules that `script` imports and that lie in its folder (or the folder's package), and so on."""
    wanted: list[str] = []
    for name, statement in script.imported:
        wanted.append(name)
        if isinstance(statement, ast.ImportFrom):
            wanted += [f"{name}.{alias.name}" if name else alias.name for alias in statement.names]
    for call in script.calls:  # gym.register(..., entry_point="module:Class")
        entry = argument(call, "entry_point")
        if isinstance(entry, ast.Constant) and isinstance(entry.value, str):
            wanted.append(entry.value.partition(":")[0])
    for name in wanted:
        file = module_file(name, folder)
        if not name or name in modules or file is None or len(modules) >= MOST_MODULES or str(file) == script.path:
            continue
        try:
            text = read_text(str(file))
            module = Script(str(file), text, parse_module(text, str(file)), name=name, modules=modules)
        except BadInput:
            continue  # then nothing of it is known
        modules[name] = module
        _follow(module, folder, modules)


def each_function(cls: ast.ClassDef) -> Iterator[ast.FunctionDef | ast.AsyncFunctionDef]:
    for statement in cls.body:
        if isinstance(statement, ast.FunctionDef | ast.AsyncFunctionDef):
            yield statement
