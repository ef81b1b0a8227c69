"""Follows a script statement by statement, as a run of it would go, without executing anything.

It follows what scripts do before they train: constants (also of modules beside the script), argparse defaults,
functions, environments and their wrappers, spaces of environment classes. It binds names to plain data, to
environments as far as they are described, or to "not known". A backend derives from it and writes down the calls of
its library.

A loop over constants is followed pass by pass. What only running could decide is followed on every way, and what the
ways do not agree on is not known (`effects`). Nor is an object that is built by code outside the script's folder, nor
what such code may have changed. Where a script can bind names that are not followed (`exec`, a patched class), nothing
in it is known any more: `not_followed`.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from legroom.errors import BadInput
from legroom.model.draft import merged
from legroom.reading.constants import argument_default
from legroom.reading.interpreter.builtin_calls import DECIDING, BuiltinCalls, View, is_harmless_call
from legroom.reading.interpreter.effects import MISSING, Broken, Continued, Leaving, Raised, Returned
from legroom.reading.interpreter.evaluator import OPERATORS, binary
from legroom.reading.interpreter.file_calls import FileRef, file_method
from legroom.reading.interpreter.gym_calls import ENV_CALLS, Env, is_foreign, is_space, wrapped_by_library
from legroom.reading.interpreter.scopes import imported_module, is_main_guard
from legroom.reading.interpreter.script import dotted
from legroom.reading.interpreter.values import (
    LONGEST,
    OPEN,
    Bound,
    Class,
    Frame,
    Function,
    Module,
    Names,
    Namespace,
    NotKnown,
    Parser,
    Partial,
    Super,
    Symbol,
    is_plain,
    is_settled,
    made,
    plain,
)
from legroom.reading.reading_budget import pay
from legroom.reading.source import last_name, module_file, nodes_of, parse_module, walk
from legroom.reading.user_files import read_text

DEEPEST_CALL = 12
MOST_CALLS = 5_000  # of functions of the script, in all
MOST_MODULES = 40
MOST_PASSES = 64  # of a loop that are followed one by one
MOST_LOOPED = 2_000  # statements that the passes of a loop are followed for, one by one
MOST_STATEMENTS = 10_000  # followed in all, those of loops and functions each time
MOST_ROUNDS = 20  # of a loop whose passes are not counted, until nothing more becomes unknown
_DEFINITIONS = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef, ast.Lambda)
_ENDINGS = ("sys.exit", "exit", "quit", "os._exit")
_SETTINGS_MAKERS = ("tyro.cli", "simple_parsing.parse", "pyrallis.parse", "tap.Tap")
_OWN_WAYS = ("__setattr__", "__getattribute__", "__getattr__", "__new__")


class Interpreter(BuiltinCalls):
    """Follows a script, and knows environments and spaces; those who derive from it know other calls of libraries."""

    everywhere = False  # whether code is looked into that a run would not come to

    def __init__(self, path: str) -> None:
        super().__init__()
        self.path = path
        self.folder = Path(path).parent
        self.definitions: list[Function | Class] = []
        self.visited: set[int] = set()
        self.objects: dict[int, Namespace] = {}  # by the id of their class's node, the one made last
        self.modules: dict[str, Module | None] = {}
        self.registered: dict[str, tuple[Any, dict[str, Any]]] = {}
        self.trees: list[ast.Module] = []  # keeps node ids alive
        self.loaded: list[tuple[dict[Any, Any], int]] = []  # settings from files, and the lines that load them
        self.supers: list[Super | None] = []  # of the functions under way
        self.calls = 0
        self.followed = 0  # statements so far
        self.current = Module("__main__", Frame())

    # -- modules -------------------------------------------------------------------------------------------------------

    def follow(self, tree: ast.Module, name: str = "__main__") -> Module:
        """Follow a whole module.

        Raises:
            BadInput: it is nested too deeply.
        """
        module = Module(name, Frame())
        self.trees.append(tree)
        before, self.current = self.current, module
        try:
            self.block(tree.body, module.frame)
        except RecursionError:
            hint = "give the settings in a run file"
            raise BadInput("nested too deeply to follow", path=self.path, hint=hint) from None
        self.current = before
        return module

    def beside(self, name: str) -> Module | None:
        """Return the module of that name beside the script, followed like the script itself."""
        if name not in self.modules:
            self.modules[name] = None  # also while it is being read: modules may import each other
            file = module_file(name, self.folder)
            if file is not None and len(self.modules) <= MOST_MODULES and str(file) != self.path:
                with suppress(BadInput):  # then nothing in it is known
                    self.modules[name] = self.follow(parse_module(read_text(str(file)), str(file)), name)
        return self.modules[name]

    def pay_for(self, node: ast.AST) -> None:
        several = len(self.trees) > 1  # then nobody knows whose line it is
        pay(1, None if several else getattr(node, "lineno", None))

    def file(self) -> str | None:
        if self.current.name == "__main__":
            return self.path
        found = module_file(self.current.name, self.folder)
        return None if found is None else str(found)

    def package(self) -> str:
        """The dotted package that relative imports of the module under way start from."""
        name = "" if self.current.name == "__main__" else self.current.name
        inside = name and Path(self.file() or "").name == "__init__.py"
        return name if inside else name.rpartition(".")[0]

    def see(self, found: Any, node: ast.Call) -> None:
        if isinstance(found, dict):
            self.loaded.append((found, node.lineno))

    # -- what nobody calls ---------------------------------------------------------------------------------------------

    def follow_uncalled(self, wanted: Callable[[ast.AST], bool] = lambda node: True) -> None:
        """Follow the functions that were not called, with their defaults: `train` may be called by another script.

        What a call in a branch that is not taken gives them (`if args.train: train(args.steps)`) is not known.
        """
        for found in self.definitions:  # it grows
            if id(found.node) in self.visited or found.module.name != "__main__" or isinstance(found.node, ast.Lambda):
                continue
            if isinstance(found, Class):
                self.follow_methods(found, wanted)
            elif wanted(found.node):
                self.call_function(found, [], self.given_elsewhere(found.node, found.node.name))

    def follow_methods(self, cls: Class, wanted: Callable[[ast.AST], bool]) -> None:
        """Follow the methods of a class that were not called, on an object of it."""
        init = cls.method("__init__")
        for node in cls.node.body:
            if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) or not wanted(node):
                continue
            if id(node) not in self.visited and id(cls.node) not in self.objects:
                given = {} if init is None else self.given_elsewhere(init.node, cls.node.name, after=1)
                made = ast.Call(ast.Name(cls.node.name), [], [], lineno=cls.node.lineno, col_offset=0)
                self.instance(cls, [], given, made)
            if id(node) not in self.visited:
                given = self.given_elsewhere(node, node.name, after=1)
                self.object_method(self.objects[id(cls.node)], node.name, [], given)

    def given_elsewhere(self, function: Any, called: str, after: int = 0) -> dict[str, Any]:
        """Return the parameters that some call in the source gives, each as not known.

        Args:
            after: how many parameters no call gives: `self`.
        """
        names = [parameter.arg for parameter in function.args.args[after:]]
        given: set[str] = set()
        for node in nodes_of(self.trees[0]):
            if isinstance(node, ast.Call) and last_name(node.func) == called:
                given |= {
                    *names[: len(node.args)],
                    *(k.arg for k in node.keywords if k.arg is not None and k.arg in names),
                }
        return {name: NotKnown(f"the argument {name}", function.lineno) for name in given}

    # -- statements ----------------------------------------------------------------------------------------------------

    def block(self, body: Sequence[ast.stmt], frame: Frame) -> None:
        for statement in body:
            self.pay_for(statement)
            self.followed += 1
            if self.followed > MOST_STATEMENTS:
                self.lose(statement)
                return
            method = getattr(self, f"do_{type(statement).__name__.lower()}", None)
            if method is not None:
                method(statement, frame)

    def do_assign(self, node: ast.Assign, frame: Frame) -> None:
        value = self.value(node.value, frame)
        for target in node.targets:
            self.bind(target, value, frame)

    def do_annassign(self, node: ast.AnnAssign, frame: Frame) -> None:
        if node.value is not None:
            self.bind(node.target, self.value(node.value, frame), frame)

    def do_augassign(self, node: ast.AugAssign, frame: Frame) -> None:
        old, new = self.value(node.target, frame), self.value(node.value, frame)
        function = OPERATORS.get(type(node.op))
        result = self.unknown(node) if function is None else self.attempt(node, binary, function, old, new)
        if isinstance(old, list | dict):  # changed where it is, for whoever else has it
            if not isinstance(result, type(old)):
                self.forget(old, node)
            elif isinstance(old, list):
                self.rewrite(old, result)
            else:
                self.update(old, result, node)
            result = old
        self.bind(node.target, result, frame)

    def do_delete(self, node: ast.Delete, frame: Frame) -> None:
        for target in node.targets:
            self.bind(target, MISSING, frame)

    def do_global(self, node: ast.Global, frame: Frame) -> None:
        frame.elsewhere |= dict.fromkeys(node.names, self.current.frame)

    def do_nonlocal(self, node: ast.Nonlocal, frame: Frame) -> None:
        for name in node.names:
            outer = frame.parent
            while outer is not None and name not in outer.names:
                outer = outer.parent
            if outer is not None:
                frame.elsewhere[name] = outer

    def do_expr(self, node: ast.Expr, frame: Frame) -> None:
        self.value(node.value, frame)
        if isinstance(node.value, ast.Call) and dotted(node.value.func) in _ENDINGS:
            self.do_raise(node, frame)

    def do_assert(self, node: ast.Assert, frame: Frame) -> None:
        self.value(node.test, frame)

    def do_raise(self, node: ast.stmt, frame: Frame) -> None:
        """End this way where others go on; alone it is followed further: another command line may not come here."""
        if self.may_have_left:
            raise Raised

    def do_break(self, node: ast.Break, frame: Frame) -> None:
        raise Broken

    def do_continue(self, node: ast.Continue, frame: Frame) -> None:
        raise Continued

    def do_import(self, node: ast.Import, frame: Frame) -> None:
        for alias in node.names:
            found = self.beside(alias.name)
            if found is not None and (alias.asname or "." not in alias.name):
                self.set_name(alias.asname or alias.name, found, frame)
            else:
                top = alias.name if alias.asname else alias.name.partition(".")[0]
                self.set_name(alias.asname or top, Symbol(top), frame)

    def do_importfrom(self, node: ast.ImportFrom, frame: Frame) -> None:
        name = imported_module(node, self.package())
        found = self.beside(name) if name else None
        for alias in node.names:
            full = f"{name}.{alias.name}" if name else alias.name
            if alias.name == "*":
                for each, value in (found.frame.names if found is not None else {}).items():
                    self.set_name(each, value, frame)
                if found is None and not is_harmless_call(full):  # it may bind any name anew
                    for each in [each for each, value in frame.names.items() if is_settled(value)]:
                        self.set_name(each, self.unknown(node), frame)
            elif found is not None and alias.name in found.frame.names:
                self.set_name(alias.asname or alias.name, found.frame.names[alias.name], frame)
            else:
                self.set_name(alias.asname or alias.name, self.beside(full) or Symbol(full), frame)

    def do_functiondef(self, node: ast.FunctionDef | ast.AsyncFunctionDef, frame: Frame) -> None:
        self.define(self.function(node, frame), node, frame)

    def function(self, node: ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda, frame: Frame) -> Function:
        spec = node.args
        positional = [*spec.posonlyargs, *spec.args]
        given = zip(positional[len(positional) - len(spec.defaults) :], spec.defaults, strict=True)
        pairs = [*given, *zip(spec.kwonlyargs, spec.kw_defaults, strict=True)]
        defaults = {arg.arg: self.value(value, frame) for arg, value in pairs if value is not None}
        return Function(node, frame, self.current, defaults)

    def do_classdef(self, node: ast.ClassDef, frame: Frame) -> None:
        bases = tuple(self.value(base, frame) for base in node.bases)
        cls = Class(node, frame, self.current, bases, Frame(frame))
        self.block([each for each in node.body if not isinstance(each, _DEFINITIONS)], cls.inside)
        self.define(cls, node, frame)

    def define(self, definition: Function | Class, node: Any, frame: Frame) -> None:
        self.definitions.append(definition)
        value: Any = definition
        for each in reversed(node.decorator_list):  # those of libraries leave what it does as it is
            decorator = self.value(each, frame)
            if isinstance(decorator, Function):
                call = ast.Call(each, [], [], lineno=node.lineno, col_offset=0)
                value = self.apply(decorator, [value], {}, call)
        self.set_name(node.name, value, frame)

    def do_return(self, node: ast.Return, frame: Frame) -> None:
        raise Returned(self.value(node.value, frame) if node.value else None)

    def do_if(self, node: ast.If, frame: Frame) -> None:
        test = self.value(node.test, frame)
        if is_main_guard(node):  # of a module that is imported, it does not run
            self.block(node.body if self.current.name == "__main__" else node.orelse, frame)
        elif is_settled(test):
            taken, other = (node.body, node.orelse) if test else (node.orelse, node.body)
            if other and (self.everywhere or _is_choice(node.test)):
                self.look_into(other, frame)
            self.block(taken, frame)
        else:
            self.alternatives([partial(self.block, branch, frame) for branch in (node.body, node.orelse)])

    def look_into(self, body: Sequence[ast.stmt], frame: Frame) -> None:
        """Follow what another command line would do; only names stay that have no value otherwise."""
        with self.journal() as written:
            with self.scope(Leaving):
                self.block(body, frame)
            for write in reversed(written.values()):
                if not (isinstance(write.inside, Names) and write.old is MISSING):
                    write.put(write.old)

    def do_match(self, node: ast.Match, frame: Frame) -> None:
        """Follow each case as one that may be taken; what a pattern binds is not known."""
        subject = self.value(node.subject, frame)

        def case(each: ast.match_case) -> None:
            for part in walk(each.pattern):
                name = getattr(part, "name", None) or getattr(part, "rest", None)
                if isinstance(name, str):
                    self.set_name(name, NotKnown(name, each.body[0].lineno, holds=[subject]), frame)
            if each.guard is not None:
                self.value(each.guard, frame)
            self.block(each.body, frame)

        self.alternatives([*(partial(case, each) for each in node.cases), lambda: None])

    def do_for(self, node: ast.For | ast.AsyncFor, frame: Frame) -> None:
        items = self.value(node.iter, frame)
        values = list(items) if isinstance(items, list | dict) and is_settled(items) else None
        self.loop(node, frame, items, values)

    def do_while(self, node: ast.While, frame: Frame) -> None:
        self.loop(node, frame, None, None)

    def loop(self, node: Any, frame: Frame, items: Any, values: list[Any] | None) -> None:
        """Follow a loop pass by pass; one that only running could count, or that is long, as often as it tells more."""

        def one_pass(value: Any) -> None:
            with self.scope(Continued):
                if not isinstance(node, ast.While):
                    self.bind(node.target, value, frame)
                elif value is not None:  # a test may assign, too
                    self.value(node.test, frame)
                self.block(node.body, frame)

        ended = False
        with self.scope(Broken) as broken:
            end = self.followed + MOST_LOOPED if not self.loops else self.loops[-1]
            self.loops.append(end)
            self.passes.append((object(), node, None if values is None else len(values)))
            try:
                before = self.followed
                ended = self.counted_passes(node, frame, values, one_pass)
                if self.everywhere and self.followed == before:
                    self.look_into(node.body, frame)
                for _ in range(0 if ended else MOST_ROUNDS):
                    unknown = NotKnown(getattr(node, "iter", node), node.lineno, holds=[items])
                    if not self.alternatives([partial(one_pass, unknown), lambda: None])[0]:
                        break
                else:
                    if not ended:
                        self.lose(node)
            finally:
                self.loops.pop()
                self.passes.pop()
            if ended:
                self.block(node.orelse, frame)
        if not ended and not any(isinstance(part, ast.Break) for each in node.body for part in walk(each)):
            self.block(node.orelse, frame)
        elif node.orelse and not ended and (not broken or len(broken) > 1):
            self.alternatives([partial(self.block, node.orelse, frame), lambda: None])

    def counted_passes(self, node: Any, frame: Frame, values: list[Any] | None, one_pass: Callable[..., None]) -> bool:
        """Follow the passes that are certain and few; return whether there are no others."""
        for number in range(MOST_PASSES + 1):
            if isinstance(node, ast.While):
                test = self.value(node.test, frame)
                if not is_settled(test):
                    return False
                if not test:
                    return True
            elif values is None or len(values) > MOST_PASSES:
                return False
            elif number == len(values):
                return True
            if number == MOST_PASSES or self.followed >= self.loops[-1]:
                return False
            one_pass(None if values is None else values[number])
        return False

    def do_with(self, node: ast.With | ast.AsyncWith, frame: Frame) -> None:
        values = [self.value(item.context_expr, frame) for item in node.items]
        for item, value in zip(node.items, values, strict=True):
            if item.optional_vars is not None:
                self.bind(item.optional_vars, value, frame)
        if any(isinstance(value, NotKnown) and value.maker.endswith("suppress") for value in values):
            self.guarded(node.body, [[]], frame)
        else:
            self.block(node.body, frame)

    def do_try(self, node: ast.Try, frame: Frame) -> None:
        handlers = [each.body for each in node.handlers if not _is_of_ctrl_c(each)]
        for each in node.handlers:
            if each.name is not None:
                self.set_name(each.name, NotKnown(each.name, each.lineno), frame)
        if handlers:
            self.guarded([*node.body, *node.orelse], handlers, frame)
        else:
            self.block([*node.body, *node.orelse], frame)
        self.block(node.finalbody, frame)

    do_trystar = do_try

    def guarded(self, body: list[ast.stmt], handlers: list[list[ast.stmt]], frame: Frame) -> None:
        """Follow a body that may have ended anywhere, and then what is done about it."""
        left: Leaving | None = None
        with self.journal() as written:
            try:
                self.block(body, frame)
            except Leaving as leaving:
                left = leaving
        imported = {
            name: frame.names[name] for each in body if isinstance(each, ast.Import | ast.ImportFrom)
            for alias in each.names if (name := alias.asname or alias.name.partition(".")[0]) in frame.names
        }  # fmt: skip

        def went_on() -> None:
            if left is not None:
                raise left

        def handled(handler: list[ast.stmt]) -> None:
            for write in written.values():
                self.settle(write._replace(old=write.read()), [write.read(), write.old])
            self.block(handler, frame)

        self.alternatives([went_on, *(partial(handled, each) for each in handlers)])
        for name, value in imported.items():  # where one package stands in for another, the first is there
            self.set_name(name, value, frame)

    do_asyncfunctiondef, do_asyncfor, do_asyncwith = do_functiondef, do_for, do_with

    # -- names, attributes and items that are set ----------------------------------------------------------------------

    def set_name(self, name: str, value: Any, frame: Frame) -> None:
        self.write(frame.home(name).names, name, value)

    def bind(self, target: ast.expr, value: Any, frame: Frame) -> None:
        match target:
            case ast.Name():
                self.set_name(target.id, value, frame)
            case ast.Attribute():
                self.set_attribute(self.value(target.value, frame), target.attr, value, target)
            case ast.Starred():
                self.bind(target.value, value, frame)
            case ast.Tuple() | ast.List():
                for part, one in zip(target.elts, self.parts(target, value), strict=True):
                    self.bind(part, one, frame)
            case ast.Subscript():
                self.set_item(self.value(target.value, frame), self.value(target.slice, frame), value, target)

    def parts(self, target: ast.Tuple | ast.List, value: Any) -> list[Any]:
        starred = any(isinstance(each, ast.Starred) for each in target.elts)
        if isinstance(value, list) and is_settled(value) and len(value) == len(target.elts) and not starred:
            return value
        return [NotKnown(target, target.lineno, holds=[value]) for _ in target.elts]

    def set_attribute(self, owner: Any, name: str, value: Any, node: ast.AST) -> None:
        """Set an attribute of whatever has some; of a library that runs are made with, anything may be different then.

        Args:
            value: `MISSING` where it is taken away.
        """
        match owner:
            case Namespace():
                self.write(owner.values, name, value)
            case Module():
                self.write(owner.frame.names, name, value)
            case Class() if owner.method(name) is None and not name.startswith("__"):
                self.write(owner.inside.names, name, value)
            case NotKnown():
                self.forget(owner, node)
            case Class() | Super():
                self.lose(node)
            case Symbol() if owner.partition(".")[0] in DECIDING:
                self.lose(node)

    def set_item(self, owner: Any, key: Any, value: Any, node: ast.AST) -> None:
        """Set an item of a container; of one that is not known, all that it may be part of is not known then."""
        match owner, key:
            case View(), _:
                self.lose(node)
            case dict(), str() | int() | float() | None if not isinstance(key, Symbol):
                self.write(owner, key, value)
            case list(), int() if -len(owner) <= key < len(owner) and value is not MISSING and is_settled(owner):
                changed = list(owner)
                changed[key] = value
                self.rewrite(owner, changed)
            case list() | dict() | NotKnown(), _:
                self.forget(owner, node)
            case Namespace(), _ if owner.method("__setitem__") is not None:
                self.object_method(owner, "__setitem__", [key, value], {})
            case Symbol(), _ if owner.partition(".")[0] in DECIDING:
                self.lose(node)

    # -- expressions ---------------------------------------------------------------------------------------------------

    def unhandled(self, node: ast.expr, at: Frame) -> Any:
        for part in ast.iter_child_nodes(node):  # for what they change
            if isinstance(part, ast.expr):
                self.value(part, at)
        return self.unknown(node)

    def on_name(self, node: ast.Name, at: Frame) -> Any:
        found = at.find(node.id)
        here = self.file() if isinstance(found, Symbol) and found == "__file__" else None
        return found if here is None else str(Path(here).absolute())

    def on_attribute(self, node: ast.Attribute, at: Frame) -> Any:
        found = super().on_attribute(node, at)
        # `self` of no object that is followed is no name of a library
        return self.unknown(node) if isinstance(found, Symbol) and found.startswith("self.") else found

    def member(self, owner: Any, node: ast.Attribute) -> Any:
        match owner:
            case Module():
                return owner.frame.names.get(node.attr, self.unknown(node))
            case Namespace() | Class() | Super() if node.attr == "__dict__":
                return self.attributes_of(owner, node)
            case Namespace():
                fields = owner.fields()
                known = node.attr in fields or owner.method(node.attr) is None
                return fields.get(node.attr, self.unknown(node)) if known else Bound(owner, node.attr)
            case Class() if owner.method(node.attr) is None:
                return owner.fields().get(node.attr, self.unknown(node))
            case FileRef():
                found = super().member(owner, node)
                return Bound(owner, node.attr) if isinstance(found, NotKnown) else found
            case Env() if node.attr == "num_envs":
                return owner.n_envs
            case Env() if node.attr in ("env", "venv", "unwrapped"):
                return owner
            case Env() if node.attr in ("observation_space", "action_space"):
                space = owner.observation if node.attr == "observation_space" else owner.action
                return dict(space) if space is not None else self.unknown(node)
        return Bound(owner, node.attr)

    def on_lambda(self, node: ast.Lambda, at: Frame) -> Any:
        return self.function(node, at)

    def on_namedexpr(self, node: ast.NamedExpr, at: Frame) -> Any:
        value = self.value(node.value, at)
        while at.inner and at.parent is not None:
            at = at.parent
        self.bind(node.target, value, at)
        return value

    def partly(self, found: dict[Any, Any], node: ast.Dict) -> Any:
        self.forget(found, node)
        return found

    def perhaps(self, nodes: list[ast.expr], at: Frame) -> None:
        self.alternatives([lambda: [self.value(each, at) for each in nodes], lambda: None])

    def on_ifexp(self, node: ast.IfExp, at: Frame) -> Any:
        test = self.value(node.test, at)
        if is_settled(test):
            return self.value(node.body if test else node.orelse, at)
        ways = [partial(self.value, branch, at) for branch in (node.body, node.orelse)]
        found = self.joined(self.alternatives(ways)[1])
        return self.unknown(node) if type(found) is NotKnown else found

    def on_subscript(self, node: ast.Subscript, at: Frame) -> Any:
        owner, key = self.value(node.value, at), self.value(node.slice, at)
        found = self.item(owner, key, node)
        if isinstance(found, NotKnown) and not found.holds and isinstance(owner, list | dict | NotKnown):
            found.holds = [owner]
        return found

    def on_listcomp(self, node: ast.ListComp | ast.GeneratorExp | ast.SetComp | ast.DictComp, at: Frame) -> Any:
        """Return the list or dict, item by item; of a long one, objects are worth what the first one is."""
        found: list[Any] = []
        inner = Frame(at, inner=True)
        elements = [node.key, node.value] if isinstance(node, ast.DictComp) else [node.elt]

        items = self.value(node.generators[0].iter, at)
        if len(node.generators) > 1 or not isinstance(items, list | dict) or not is_settled(items):
            return self.unknown_comprehension(node, elements, items, inner)
        for item in list(items):
            self.bind(node.generators[0].target, item, inner)
            tests = [self.value(test, inner) for test in node.generators[0].ifs]
            if not all(is_settled(test) for test in tests):
                return self.unknown_comprehension(node, elements, items, inner)
            if all(tests):
                found.append([self.value(each, inner) for each in elements])
        if isinstance(node, ast.DictComp):
            keys = all(isinstance(key, str | int | float | None) for key, _ in found)
            return self.attempt(node, lambda: made(dict(found))) if keys else self.unknown(node)
        return self.attempt(node, lambda: made([one for (one,) in found]))

    def unknown_comprehension(self, node: Any, elements: list[ast.expr], items: Any, inner: Frame) -> NotKnown:
        """Follow what the elements change, however often that is."""
        for part in node.generators:
            self.bind(part.target, NotKnown(part.iter, part.iter.lineno, holds=[items]), inner)
        for each in elements:
            self.alternatives([partial(self.value, each, inner), lambda: None])
        return self.unknown(node)

    on_generatorexp = on_setcomp = on_dictcomp = on_listcomp

    def on_await(self, node: ast.Await, at: Frame) -> Any:
        return self.value(node.value, at)

    # -- calls ---------------------------------------------------------------------------------------------------------

    def on_call(self, node: ast.Call, at: Frame) -> Any:
        if isinstance(node.func, ast.Attribute) and node.func.attr == "add_argument":
            parser, found = self.value(node.func.value, at), argument_default(node)
            if isinstance(parser, Parser) and found is not None:
                parser.values[found[0]] = self.value(found[1], at)
            return None
        return super().on_call(node, at)

    def apply(self, func: Any, args: list[Any], kwargs: dict[str, Any], node: ast.Call) -> Any:
        match func:
            case Class():
                return self.instance(func, args, kwargs, node)
            case Function():
                return self.call_function(func, args, kwargs)
            case Bound():
                return self.method(func, args, kwargs, node)
            case Symbol():
                return self.library_call(func, args, kwargs, node)
            case Partial():
                return self.apply(func.func, [*func.args, *args], func.kwargs | kwargs, node)
            case Namespace() if func.method("__call__") is not None:
                return self.object_method(func, "__call__", args, kwargs)
        return self.foreign(func.maker if isinstance(func, NotKnown) else "", args, kwargs, node)

    def call_function(self, function: Function, args: list[Any], kwargs: dict[str, Any]) -> Any:
        """Follow a function, method or lambda of the script and return what it returns; a call of itself is not."""
        self.visited.add(id(function.node))
        self.calls += 1
        if len(self.under_way) >= DEEPEST_CALL or self.calls > MOST_CALLS or function.node in self.under_way:
            return self.too_deep(function, args, kwargs)
        return self.run_body(function, args, kwargs, Frame(function.frame))

    def too_deep(self, function: Function, args: list[Any], kwargs: dict[str, Any]) -> NotKnown:
        """Return the result of a call that is not followed any more, which may have changed anything."""
        self.forget([*args, *kwargs.values()], function.node)
        if any(isinstance(part, ast.Global | ast.Nonlocal) for part in walk(function.node)):
            self.lose(function.node)
        return NotKnown(getattr(function.node, "name", "a function"), function.node.lineno)

    def run_body(self, function: Function, args: list[Any], kwargs: dict[str, Any], frame: Frame) -> Any:
        """Follow a function's body in `frame`, with the arguments bound to its parameters."""
        before, self.current = self.current, function.module
        self.under_way.append(function.node)
        of_object = function.cls is not None and bool(args) and isinstance(args[0], Namespace)
        self.supers.append(Super(function.cls, args[0]) if of_object and function.cls is not None else None)
        try:
            with self.scope(Returned) as values:
                self.bind_arguments(function, args, kwargs, frame)
                if isinstance(function.node, ast.Lambda):
                    values.append(self.value(function.node.body, frame))
                else:
                    self.block(function.node.body, frame)
                    values.append(None)
        finally:
            self.under_way.pop()
            self.current = before
            self.supers.pop()
        if _is_generator(function.node):
            return NotKnown(getattr(function.node, "name", ""), function.node.lineno, holds=[*args, *kwargs.values()])
        return self.joined(values, getattr(function.node, "name", ""))

    def bind_arguments(self, function: Function, args: list[Any], kwargs: dict[str, Any], frame: Frame) -> None:
        spec = function.node.args
        positional = [*spec.posonlyargs, *spec.args]
        defaults: list[ast.expr | None] = [None] * (len(positional) - len(spec.defaults)) + list(spec.defaults)
        pairs = [*zip(positional, defaults, strict=True), *zip(spec.kwonlyargs, spec.kw_defaults, strict=True)]
        rest = dict(kwargs)
        for i, (arg, default) in enumerate(pairs):
            if i < len(args) and i < len(positional):
                frame.names[arg.arg] = args[i]
                rest.pop(arg.arg, None)
            elif arg.arg in rest:
                frame.names[arg.arg] = rest.pop(arg.arg)
            elif OPEN in rest:  # it may be among those that are not known
                frame.names[arg.arg] = rest[OPEN]
            elif default is not None:
                kept = function.defaults.get(arg.arg, MISSING)
                frame.names[arg.arg] = self.value(default, function.frame) if kept is MISSING else kept
            elif arg.arg != "self":
                frame.names[arg.arg] = self.not_given(arg, function)
        if spec.vararg:
            frame.names[spec.vararg.arg] = args[len(positional) :]
        if spec.kwarg:
            frame.names[spec.kwarg.arg] = rest

    def not_given(self, arg: ast.arg, function: Function) -> Any:
        """Return what a parameter is that nobody gives and that has no default."""
        return NotKnown(f"the argument {arg.arg}", arg.lineno)

    def object_method(self, owner: Namespace | Class, name: str, args: list[Any], kwargs: dict[str, Any]) -> Any:
        """Follow a method of an object or class of the script; what it sets on the object stays."""
        function = owner.method(name)
        assert function is not None and not isinstance(function.node, ast.Lambda)
        decorators = function.node.decorator_list
        kinds = {last_name(each.func if isinstance(each, ast.Call) else each) for each in decorators}
        cls = owner if isinstance(owner, Class) else owner.cls
        first = [] if "staticmethod" in kinds else [cls] if "classmethod" in kinds else [owner]
        return self.call_function(function, [*first, *args], kwargs)

    def method(self, bound: Bound, args: list[Any], kwargs: dict[str, Any], node: ast.Call) -> Any:
        """Return the result of a method of plain data, of a parser, of a file or of an object of the script."""
        if isinstance(bound.owner, Namespace | Class) and bound.owner.method(bound.name) is not None:
            return self.object_method(bound.owner, bound.name, args, kwargs)
        match bound.owner, bound.name, args:
            case FileRef() as owner, name, _:
                found = file_method(owner, name, args)
                return self.unknown(node) if found is None else found
            case Parser() as owner, "set_defaults", _:
                self.update(owner.values, kwargs, node)
                return None
            case Parser() as owner, "parse_args" | "parse_known_args" | "parse_intermixed_args", _:
                given = args[0] if args else kwargs.get("args")
                found = Namespace(dict(owner.values))
                if given is not None and given != [] and given != "sys.argv[1:]":  # its own command line
                    self.forget(found, node)
                return found if bound.name != "parse_known_args" else [found, []]
            case Parser() as owner, _, _:  # add_argument_group
                return owner
            case dict() as owner, name, _:
                return self.dict_method(owner, name, args, kwargs, node)
            case list() as owner, name, _:
                return self.list_method(owner, name, args, kwargs, node)
            case NotKnown() as owner, _, _:
                if not is_harmless_call(owner.maker):
                    self.forget(owner, node)
                return self.foreign(owner.maker, args, kwargs, node)
            case Super() as owner, _, _:
                return self.base_method(owner, bound.name, args, kwargs, node)
            case Namespace() | Class(), _, _:
                return self.foreign("", args, kwargs, node)
        return self.unknown(node)

    def base_method(self, owner: Super, name: str, args: list[Any], kwargs: dict[str, Any], node: ast.Call) -> Any:
        """Follow a method of a base in the script, called by `super()`; those of libraries are not known."""
        for base in owner.cls.bases:
            function = base.method(name) if isinstance(base, Class) else None
            if function is not None and isinstance(owner.itself, Namespace):
                return self.call_function(function, [owner.itself, *args], kwargs)
        return self.foreign("super", args, kwargs, node)

    def library_call(self, symbol: Symbol, args: list[Any], kwargs: dict[str, Any], node: ast.Call) -> Any:
        """Return what a function or class of a library makes."""
        name = symbol.rpartition(".")[2]
        if name in ENV_CALLS:
            made_env = ENV_CALLS[name](self, args, kwargs) or self.unknown(node)
            if isinstance(made_env, Env) and is_foreign(symbol) and name.startswith("make"):
                return replace(made_env, doubted=True)  # envpool.make(..., num_envs=64)
            return made_env
        if name == "ArgumentParser":
            return Parser()
        if name in ("SimpleNamespace", "Namespace") and not args:
            return Namespace(dict(kwargs))
        if symbol in _SETTINGS_MAKERS and args and isinstance(args[0], Class | Namespace):
            return args[0] if isinstance(args[0], Namespace) else self.instance(args[0], [], {}, node)
        if name == "asdict" and args and isinstance(args[0], Namespace):
            return made(dict(args[0].fields()))
        if symbol == "getattr" and len(args) > 1 and type(args[1]) is str:
            return self.attribute(args[0], args[1], args[2:], node)
        if symbol == "super":
            return self.super_of(node) if not args else self.unknown(node)
        found = self.builtin(symbol, args, kwargs, node)
        if found is not MISSING:
            return found
        inner = args[0] if args else kwargs.get("env", kwargs.get("venv"))
        if isinstance(inner, Env):
            return wrapped_by_library(inner, symbol, args, kwargs)
        if symbol == "range" and args:
            return self.attempt(node, _numbers, args)
        found = super().apply(symbol, args, kwargs, node)
        return self.foreign(symbol, args, kwargs, node) if isinstance(found, NotKnown) and not found.holds else found

    def attribute(self, owner: Any, name: str, default: list[Any], node: ast.Call) -> Any:
        """Return what `getattr` does; a default only where nothing says that there is no such attribute."""
        if isinstance(owner, Symbol):
            return Symbol(f"{owner}.{name}")
        found = self.member(owner, ast.Attribute(node.args[0], name, ast.Load(), lineno=node.lineno))
        fixed = isinstance(owner, Namespace) and owner.cls is None and name not in owner.values
        return default[0] if default and fixed else found

    # -- classes -------------------------------------------------------------------------------------------------------

    def super_of(self, node: ast.Call) -> Any:
        found = self.supers[-1] if self.supers else None
        return self.foreign("super", [], {}, node) if found is None else found

    def instance(self, cls: Class, args: list[Any], kwargs: dict[str, Any], node: ast.Call) -> Any:
        """Return an instance of a class of the script: an environment, a wrapper, settings, or not known."""
        init = cls.method("__init__")
        itself = self.objects[id(cls.node)] = Namespace({}, cls)
        if init is not None:
            self.call_function(init, [itself, *args], kwargs)
        observation, action = (_space(itself, name) for name in ("observation_space", "action_space"))
        inner = args[0] if args and isinstance(args[0], Env) else kwargs.get("env")
        if isinstance(inner, Env):
            return _wrapped_by_script(inner, cls, observation, action)
        if observation or action or any("Env" in str(b) for b in self.ancestors(cls)):
            # a class of the script itself is lifted out of it where it is trusted
            own = _arguments(init, args, kwargs)
            found = Env(id=cls.reference, observation=observation, action=action, kwargs=own, classes=(cls,))
            several = any("VecEnv" in str(b) or "VectorEnv" in str(b) for b in self.ancestors(cls))
            return replace(found, n_envs=self.unknown(node)) if several else found
        if any(cls.method(name) is not None for name in _OWN_WAYS):  # of having attributes
            return self.foreign("", args, kwargs, node)
        if init is None:  # a dataclass or the like: fields by name or in their order
            given = dict(zip(cls.fields() if args else (), args, strict=False)) | kwargs
            for name, value in given.items() if OPEN not in given else ():
                self.write(itself.values, name, value)
            if OPEN in given:
                self.forget(itself, node)
            if cls.method("__post_init__") is not None:
                self.object_method(itself, "__post_init__", [], {})
        return itself

    def ancestors(self, cls: Class) -> list[Any]:
        """Return the bases of a class, those of bases in the script included, by name."""
        found: list[Any] = []
        todo = list(cls.bases)
        while todo and len(found) < 50:
            base = todo.pop()
            found.append(base.node.name if isinstance(base, Class) else base)
            todo += base.bases if isinstance(base, Class) else ()
        return found


def loaded_settings(tree: ast.Module, path: str) -> tuple[dict[Any, Any], int]:
    """Return the settings of the files that a script loads, in functions that are never called too, and a line."""
    follower = Interpreter(path)
    follower.follow(tree)
    methods = {id(node) for cls in nodes_of(tree) if isinstance(cls, ast.ClassDef) for node in cls.body}
    follower.follow_uncalled(lambda node: id(node) not in methods)
    whole: dict[Any, Any] = {}
    for each, _ in follower.loaded:
        whole = merged(whole, each)
    return whole, follower.loaded[0][1] if follower.loaded else 0


def _is_choice(test: ast.expr) -> bool:
    """Return whether it is like `args.algo == "sac"`: a command line may say otherwise, and either way may train."""
    parts = [part for part in walk(test) if isinstance(part, ast.Attribute)]
    return bool(parts) and not isinstance(test, ast.Attribute)


def _numbers(bounds: list[int]) -> list[int]:
    numbers = range(*bounds)
    if len(numbers) > LONGEST:
        raise ValueError(f"a range of {len(numbers)}")
    found: list[int] = made(list(numbers))
    return found


def _space(itself: Namespace, name: str) -> dict[str, Any] | None:
    space = itself.fields().get(name)
    return space if is_space(space) else None


def _is_generator(node: Any) -> bool:
    todo = [] if isinstance(node, ast.Lambda) else list(node.body)
    while todo:
        one = todo.pop()
        if isinstance(one, ast.Yield | ast.YieldFrom):
            return True
        todo += [] if isinstance(one, _DEFINITIONS) else list(ast.iter_child_nodes(one))
    return False


def _is_of_ctrl_c(handler: ast.ExceptHandler) -> bool:
    """Return whether a handler is not followed: no run comes to it by itself."""
    return handler.type is not None and dotted(handler.type) == "KeyboardInterrupt"


def _wrapped_by_script(env: Env, cls: Class, observation: Any, action: Any) -> Env:
    """Return the environment inside a wrapper class of the script."""
    bases = " ".join(str(base) for base in cls.bases)
    methods = {n.name for n in cls.node.body if isinstance(n, ast.FunctionDef)}
    may_change = "ObservationWrapper" in bases or "observation" in methods
    mark = (cls.node.name,) if may_change or observation else ()  # what trains is not what the inner one shows
    return replace(
        env,
        classes=(*env.classes, cls),
        wrappers=(*env.wrappers, *mark),
        observation=observation or env.observation,
        action=action or env.action,
    )


def _arguments(init: Function | None, args: list[Any], kwargs: dict[str, Any]) -> dict[str, Any]:
    """Return what an instance is made with, by name, as far as it is plain."""
    names = [arg.arg for arg in init.node.args.args[1:]] if init is not None else []
    given = {**dict(zip(names, args, strict=False)), **kwargs}
    return {name: plain(value) for name, value in given.items() if is_plain(value)}
