"""Follows a script statement by statement, as a run of it would go, without executing anything.

It follows what scripts do before they train: constants (also of modules beside the script), argparse defaults,
functions, environments and their wrappers, spaces of environment classes. It binds names to plain data, to
environments as far as they are described, or to "not known". A backend derives from it and writes down the calls of
its library.

Limits: loops are followed once, a condition that only running could decide is followed both ways, and an object
that is built by code outside the script's folder is not known.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

from legroom.errors import BadInput
from legroom.model.draft import merged
from legroom.reading.constants import argument_default
from legroom.reading.interpreter.evaluator import OPERATORS, Evaluator, binary
from legroom.reading.interpreter.file_calls import FileRef, Loaded, file_method, hydra_config
from legroom.reading.interpreter.gym_calls import GYM_CALLS, Env, is_foreign, is_space, wrapped_by_library
from legroom.reading.interpreter.scopes import is_main_guard
from legroom.reading.interpreter.values import (
    LONGEST,
    Bound,
    Class,
    Frame,
    Function,
    Module,
    Namespace,
    NotKnown,
    Parser,
    Symbol,
    is_plain,
    is_settled,
    made,
    plain,
)
from legroom.reading.reading_budget import hold, pay
from legroom.reading.source import module_file, parse_module, walk
from legroom.reading.user_files import read_text

DEEPEST_CALL = 12
MOST_CALLS = 5_000  # of functions of the script, in all
MOST_MODULES = 40


class _Return(Exception):
    def __init__(self, value: Any) -> None:
        self.value = value


class Follower(Evaluator[Frame]):
    """Follows a script; `library_calls` are the functions of libraries that it understands, by their last name."""

    library_calls: Mapping[str, Callable[..., Any]] = GYM_CALLS

    def __init__(self, path: str) -> None:
        self.path = path
        self.folder = Path(path).parent
        self.definitions: list[Function | Class] = []
        self.visited: set[int] = set()
        self.objects: dict[int, Namespace] = {}  # by the id of their class's node, the one made last
        self.modules: dict[str, Module | None] = {}
        self.trees: list[ast.Module] = []  # keeps node ids alive
        self.loaded: list[tuple[dict[Any, Any], int]] = []  # settings from files, and the lines that load them
        self.depth = 0
        self.calls = 0
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

    def see(self, found: Any, node: ast.Call) -> None:
        if isinstance(found, dict):
            self.loaded.append((found, node.lineno))

    # -- statements ----------------------------------------------------------------------------------------------------

    def block(self, body: Sequence[ast.stmt], frame: Frame) -> None:
        for statement in body:
            self.pay_for(statement)
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
        if isinstance(node.target, ast.Name):
            old, new = frame.find(node.target.id), self.value(node.value, frame)
            function = OPERATORS.get(type(node.op))
            result = self.unknown(node) if function is None else self.attempt(node, binary, function, old, new)
            frame.names[node.target.id] = result

    def do_expr(self, node: ast.Expr, frame: Frame) -> None:
        self.value(node.value, frame)

    def do_import(self, node: ast.Import, frame: Frame) -> None:
        for alias in node.names:
            found = self.beside(alias.name)
            if found is not None and (alias.asname or "." not in alias.name):
                frame.names[alias.asname or alias.name] = found
            else:
                top = alias.name if alias.asname else alias.name.partition(".")[0]
                frame.names[alias.asname or top] = Symbol(top)

    def do_importfrom(self, node: ast.ImportFrom, frame: Frame) -> None:
        name = node.module or ""
        found = self.beside(name) if name else None
        for alias in node.names:
            if alias.name == "*":
                frame.names |= found.frame.names if found is not None else {}
            elif found is not None and alias.name in found.frame.names:
                frame.names[alias.asname or alias.name] = found.frame.names[alias.name]
            else:
                full = f"{name}.{alias.name}" if name else alias.name
                frame.names[alias.asname or alias.name] = self.beside(full) or Symbol(full)

    def do_functiondef(self, node: ast.FunctionDef | ast.AsyncFunctionDef, frame: Frame) -> None:
        self.define(Function(node, frame, self.current), node.name, frame)

    def do_classdef(self, node: ast.ClassDef, frame: Frame) -> None:
        bases = tuple(self.value(base, frame) for base in node.bases)
        self.define(Class(node, frame, self.current, bases), node.name, frame)

    def define(self, definition: Function | Class, name: str, frame: Frame) -> None:
        self.definitions.append(definition)
        frame.names[name] = definition

    def do_return(self, node: ast.Return, frame: Frame) -> None:
        raise _Return(self.value(node.value, frame) if node.value else None)

    def do_if(self, node: ast.If, frame: Frame) -> None:
        test = self.value(node.test, frame)
        if is_main_guard(node):  # of a module that is imported, it does not run
            self.block(node.body if self.current.name == "__main__" else node.orelse, frame)
        elif is_settled(test):
            taken, other = (node.body, node.orelse) if test else (node.orelse, node.body)
            if _is_choice(node.test):
                with suppress(_Return):
                    self.block(other, frame)
            self.block(taken, frame)
        else:  # either may happen; names that both bind keep what the first branch says
            returned: _Return | None = None
            for branch in (node.orelse, node.body):
                try:
                    self.block(branch, frame)
                except _Return as found:
                    returned = found
            if returned is not None and node.orelse:
                raise returned

    def do_for(self, node: ast.For | ast.AsyncFor, frame: Frame) -> None:
        items = self.value(node.iter, frame)
        first = items[0] if isinstance(items, list) and items else NotKnown(node.iter, node.lineno)
        self.bind(node.target, first, frame)
        self.block(node.body, frame)

    def do_while(self, node: ast.While, frame: Frame) -> None:
        self.block(node.body, frame)

    def do_with(self, node: ast.With | ast.AsyncWith, frame: Frame) -> None:
        for item in node.items:
            value = self.value(item.context_expr, frame)
            if item.optional_vars is not None:
                self.bind(item.optional_vars, value, frame)
        self.block(node.body, frame)

    def do_try(self, node: ast.Try, frame: Frame) -> None:
        self.block([*node.body, *node.orelse, *node.finalbody], frame)

    do_asyncfunctiondef, do_asyncfor, do_asyncwith = do_functiondef, do_for, do_with

    def bind(self, target: ast.expr, value: Any, frame: Frame) -> None:
        match target:
            case ast.Name():
                frame.names[target.id] = value
            case ast.Attribute(value=ast.Name(id="self")):
                frame.owner().names[f"self.{target.attr}"] = value
            case ast.Tuple() | ast.List():
                values = value if isinstance(value, list) and len(value) == len(target.elts) else None
                for i, part in enumerate(target.elts):
                    self.bind(part, values[i] if values else NotKnown(target, target.lineno), frame)
            case ast.Subscript():
                owner, key = self.value(target.value, frame), self.value(target.slice, frame)
                if isinstance(owner, dict) and isinstance(key, str | int):
                    owner[key] = value

    # -- expressions ---------------------------------------------------------------------------------------------------

    def on_name(self, node: ast.Name, at: Frame) -> Any:
        found = at.find(node.id)
        here = self.file() if isinstance(found, Symbol) and found == "__file__" else None
        return found if here is None else str(Path(here).absolute())

    def on_attribute(self, node: ast.Attribute, at: Frame) -> Any:
        if isinstance(node.value, ast.Name) and node.value.id == "self":
            found = at.find(f"self.{node.attr}")
            if not isinstance(found, Symbol):
                return found
        found = super().on_attribute(node, at)
        # an attribute of the object that was not set so far is no name of a library
        return self.unknown(node) if isinstance(found, Symbol) and found.startswith("self.") else found

    def member(self, owner: Any, node: ast.Attribute) -> Any:
        match owner:
            case Module():
                return owner.frame.names.get(node.attr, self.unknown(node))
            case Namespace():
                known = node.attr in owner.values or owner.method(node.attr) is None
                return owner.values.get(node.attr, self.unknown(node)) if known else Bound(owner, node.attr)
            case Class() if owner.method(node.attr) is None:
                return self.class_frame(owner).names.get(node.attr, self.unknown(node))
            case Loaded() if node.attr in owner:
                return owner[node.attr]
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
        return Function(node, at, self.current)

    def on_namedexpr(self, node: ast.NamedExpr, at: Frame) -> Any:
        value = self.value(node.value, at)
        self.bind(node.target, value, at)
        return value

    def partly(self, found: dict[Any, Any], node: ast.Dict) -> Any:
        return found

    def on_listcomp(self, node: ast.ListComp | ast.GeneratorExp, at: Frame) -> Any:
        """Return the list: its length from what it runs over, each item worth what the first one is."""
        inner = Frame(at)
        length = 1
        for part in node.generators:
            items = self.value(part.iter, inner)
            if not isinstance(items, list) or part.ifs or length * len(items) > LONGEST:
                return self.unknown(node)
            length *= len(items)
            self.bind(part.target, items[0] if items else None, inner)
        return made([self.value(node.elt, inner)] * length) if length else []

    on_generatorexp = on_listcomp

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
        return self.unknown(node)

    def call_function(self, function: Function, args: list[Any], kwargs: dict[str, Any]) -> Any:
        """Follow a function or lambda of the script and return what it returns."""
        node = function.node
        self.visited.add(id(node))
        self.calls += 1
        if self.depth >= DEEPEST_CALL or self.calls > MOST_CALLS:
            return NotKnown(getattr(node, "name", "a function"), node.lineno)
        return self.run_body(function, args, kwargs, Frame(function.frame))

    def run_body(self, function: Function, args: list[Any], kwargs: dict[str, Any], frame: Frame) -> Any:
        """Follow a function's body in `frame`, with the arguments bound to its parameters."""
        before, self.current = self.current, function.module
        self.depth += 1
        try:
            self.bind_arguments(function, args, kwargs, frame)
            if isinstance(function.node, ast.Lambda):
                return self.value(function.node.body, frame)
            self.block(function.node.body, frame)
        except _Return as returned:
            return returned.value
        finally:
            self.depth -= 1
            self.current = before
        return None

    def bind_arguments(self, function: Function, args: list[Any], kwargs: dict[str, Any], frame: Frame) -> None:
        spec = function.node.args
        positional = [*spec.posonlyargs, *spec.args]
        defaults: list[ast.expr | None] = [None] * (len(positional) - len(spec.defaults)) + list(spec.defaults)
        pairs = [*zip(positional, defaults, strict=True), *zip(spec.kwonlyargs, spec.kw_defaults, strict=True)]
        rest = dict(kwargs)
        if not args and positional:
            rest |= self.composed_settings(function, positional[0].arg)
        for i, (arg, default) in enumerate(pairs):
            if i < len(args) and i < len(positional):
                frame.names[arg.arg] = args[i]
                rest.pop(arg.arg, None)
            elif arg.arg in rest:
                frame.names[arg.arg] = rest.pop(arg.arg)
            elif default is not None:
                frame.names[arg.arg] = self.value(default, function.frame)
            elif arg.arg != "self":
                frame.names[arg.arg] = NotKnown(f"the argument {arg.arg}", arg.lineno)
        if spec.vararg:
            frame.names[spec.vararg.arg] = args[len(positional) :]
        if spec.kwarg:
            frame.names[spec.kwarg.arg] = rest

    def composed_settings(self, function: Function, parameter: str) -> dict[str, Any]:
        """Return what `@hydra.main(config_path=..., config_name=...)` gives the parameter of a function."""
        here = self.file()
        for each in getattr(function.node, "decorator_list", ()):
            if isinstance(each, ast.Call) and self.value(each.func, function.frame) == "hydra.main" and here:
                args, kwargs = self.arguments(each, function.frame)
                given = dict(zip(("config_path", "config_name"), args, strict=False)) | kwargs
                found = hydra_config(given, here)
                self.see(found, each)
                return {} if found is None else {parameter: found}
        return {}

    def object_method(self, owner: Namespace | Class, name: str, args: list[Any], kwargs: dict[str, Any]) -> Any:
        """Follow a method of an object or class of the script; what it sets on the object stays."""
        function = owner.method(name)
        assert function is not None
        node = function.node
        self.visited.add(id(node))
        self.calls += 1
        if self.depth >= DEEPEST_CALL or self.calls > MOST_CALLS or isinstance(node, ast.Lambda):
            return NotKnown(name, node.lineno)
        kinds = {_decorator(each) for each in node.decorator_list}
        cls = owner if isinstance(owner, Class) else owner.cls
        first = [] if "staticmethod" in kinds else [cls] if "classmethod" in kinds else [owner]
        frame = owner.frame if isinstance(owner, Namespace) else function.frame
        found = self.run_body(function, [*first, *args], kwargs, Frame(frame))
        if isinstance(owner, Namespace):
            owner.values |= _fields(owner.frame)
        return found

    def method(self, bound: Bound, args: list[Any], kwargs: dict[str, Any], node: ast.Call) -> Any:
        """Return the result of a method of plain data, of a parser, of a file or of an object of the script."""
        if isinstance(bound.owner, Namespace | Class) and bound.owner.method(bound.name) is not None:
            return self.object_method(bound.owner, bound.name, args, kwargs)
        match bound.owner, bound.name, args:
            case FileRef() as owner, name, _:
                found = file_method(owner, name, args)
                return self.unknown(node) if found is None else found
            case Parser() as owner, "set_defaults", _:
                owner.values |= kwargs
                return None
            case dict() as owner, "get", [str() | int() as key, *default]:
                return owner.get(key, default[0] if default else None)
            case dict() as owner, "update", _:
                owner.update(made(args[0]) if args and isinstance(args[0], dict) else {}, **kwargs)
                return None
            case dict() as owner, "copy", _:
                return made(dict(owner))
            case dict() as owner, "items", _:
                return made([made([k, v]) for k, v in owner.items()])
            case list() as owner, "append", [item, *_] if len(owner) < LONGEST:
                hold(1)
                owner.append(item)
                return None
            case Parser() as owner, "parse_args", _:
                return Namespace(owner.values)
            case Parser() as owner, "parse_known_args", _:
                return [Namespace(owner.values), []]
            case Parser() as owner, _, _:  # add_argument_group
                return owner
        return self.unknown(node)

    def library_call(self, symbol: Symbol, args: list[Any], kwargs: dict[str, Any], node: ast.Call) -> Any:
        """Return what a function or class of a library makes."""
        name = symbol.rpartition(".")[2]
        if name in self.library_calls:
            made_env = self.library_calls[name](self, args, kwargs) or self.unknown(node)
            if isinstance(made_env, Env) and is_foreign(symbol) and name.startswith("make"):
                return replace(made_env, doubted=True)  # envpool.make(..., num_envs=64)
            return made_env
        if name == "ArgumentParser":
            return Parser()
        if name in ("SimpleNamespace", "Namespace") and not args:
            return Namespace(dict(kwargs))
        if name in ("vars", "asdict") and args and isinstance(args[0], Namespace):
            return made(dict(args[0].values))
        inner = args[0] if args else kwargs.get("env", kwargs.get("venv"))
        if isinstance(inner, Env):
            return wrapped_by_library(inner, symbol, args, kwargs)
        if symbol == "range" and args:
            return self.attempt(node, _numbers, args)
        if name == "deepcopy" and args:
            return args[0]
        return super().apply(symbol, args, kwargs, node)

    # -- classes -------------------------------------------------------------------------------------------------------

    def class_frame(self, cls: Class) -> Frame:
        frame = Frame(cls.frame)
        self.block([s for s in cls.node.body if isinstance(s, ast.Assign | ast.AnnAssign)], frame)
        return frame

    def instance(self, cls: Class, args: list[Any], kwargs: dict[str, Any], node: ast.Call) -> Any:
        """Return an instance of a class of the script: an environment, a wrapper, settings, or not known."""
        frame = Frame(self.class_frame(cls), of_object=True)
        init = cls.method("__init__")
        itself = Namespace({}, cls, frame)
        if init is not None and self.depth < DEEPEST_CALL:
            self.visited.add(id(init.node))
            self.run_body(init, [itself, *args], kwargs, frame)
        observation, action = (_space(frame, name) for name in ("observation_space", "action_space"))
        inner = args[0] if args and isinstance(args[0], Env) else kwargs.get("env")
        if isinstance(inner, Env):
            return _wrapped_by_script(inner, cls, observation, action)
        if observation or action or any("Env" in str(b) for b in self.ancestors(cls)):
            # a class of the script itself is lifted out of it where it is trusted
            found = Env(id=cls.reference, observation=observation, action=action, kwargs=_arguments(init, args, kwargs))
            several = any("VecEnv" in str(b) or "VectorEnv" in str(b) for b in self.ancestors(cls))
            return replace(found, n_envs=self.unknown(node)) if several else found
        if init is None:  # a dataclass or the like: fields by name or in their order
            fields = (n.target for n in cls.node.body if isinstance(n, ast.AnnAssign))
            names = [target.id for target in fields if isinstance(target, ast.Name)]
            given = {**dict(zip(names, args, strict=False)), **{k: v for k, v in kwargs.items() if k != "**"}}
            frame.names |= {f"self.{name}": value for name, value in given.items()}
        itself.values |= _fields(frame)
        self.objects[id(cls.node)] = itself
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
    follower = Follower(path)
    follower.follow(tree)
    for found in list(follower.definitions):
        if isinstance(found, Function) and id(found.node) not in follower.visited and found.module.name == "__main__":
            follower.call_function(found, [], {})
    whole: dict[Any, Any] = {}
    for each, _ in follower.loaded:
        whole = merged(whole, each)
    return whole, follower.loaded[0][1] if follower.loaded else 0


def _fields(frame: Frame | None) -> dict[str, Any]:
    """Return the attributes in the frame of an object, those of its class below its own."""
    inner = frame.parent.names if frame is not None and frame.parent is not None else {}
    own = {} if frame is None else {k[5:]: v for k, v in frame.names.items() if k.startswith("self.")}
    return {**inner, **own}


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


def _space(frame: Frame, name: str) -> dict[str, Any] | None:
    """Return the space that `self.name`, or the class's own `name`, is."""
    own = frame.find(f"self.{name}")
    space = own if isinstance(own, dict) else frame.find(name)
    return space if is_space(space) else None


def _wrapped_by_script(env: Env, cls: Class, observation: Any, action: Any) -> Env:
    """Return the environment inside a wrapper class of the script."""
    bases = " ".join(str(base) for base in cls.bases)
    methods = {n.name for n in cls.node.body if isinstance(n, ast.FunctionDef)}
    may_change = "ObservationWrapper" in bases or "observation" in methods
    mark = (cls.node.name,) if may_change and not observation else ()
    return replace(
        env,
        wrappers=(*env.wrappers, *mark),
        observation=observation or env.observation,
        action=action or env.action,
    )


def _arguments(init: Function | None, args: list[Any], kwargs: dict[str, Any]) -> dict[str, Any]:
    """Return what an instance is made with, by name, as far as it is plain."""
    names = [arg.arg for arg in init.node.args.args[1:]] if init is not None else []
    given = {**dict(zip(names, args, strict=False)), **kwargs}
    return {name: plain(value) for name, value in given.items() if is_plain(value)}


def _decorator(node: ast.expr) -> str:
    func = node.func if isinstance(node, ast.Call) else node
    return func.attr if isinstance(func, ast.Attribute) else getattr(func, "id", "")
