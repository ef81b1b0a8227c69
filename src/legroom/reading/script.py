"""An SB3 training script: its constructor calls, found by its syntax tree, never executed.

A small interpreter follows what scripts do before they train: constants (also of modules beside the script), argparse
defaults, functions, vectorised environments and their wrappers, spaces of environment classes. It binds names to plain
data, to environments as far as they are described, or to "not known", and writes down each call of an algorithm. What
it cannot know is left out where memory does not depend on it, and named with its line where it does.

Limits: loops are followed once, a condition that only running could decide is followed both ways, and an object
that is built by code outside the script's folder is not known.
"""

from __future__ import annotations

import ast
import operator
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from legroom.backends.base import find_algorithm
from legroom.errors import BadInput
from legroom.reading.constants import argument_default
from legroom.reading.draft import Draft
from legroom.reading.files import is_file, read_text
from legroom.reading.known_spaces import NEUTRAL_WRAPPERS, WRAPPERS, Known, wrapped
from legroom.reading.script_makers import FUNCTIONS, MAKERS, number_range, wrapper_arguments, wrapper_entry
from legroom.reading.script_values import (
    LONGEST_RANGE,
    Bound,
    Env,
    Maker,
    Model,
    Module,
    Namespace,
    NotKnown,
    Parser,
    Scope,
    is_plain,
    is_space,
)
from legroom.reading.source import OPERATORS, Symbol, Unfoldable, binary, fold, parse_module, plain, unparsed
from legroom.reading.yamls import Key

LIBRARIES = ("stable_baselines3", "sb3_contrib")
DEEPEST_CALL = 12
MOST_CALLS = 5_000  # of functions of the script, in all
MOST_MODULES = 40

# Constructor arguments by position after `policy` and `env`, as far as people use them.
POSITIONAL: Mapping[str, tuple[str, ...]] = {
    **dict.fromkeys(
        ("PPO", "MaskablePPO", "RecurrentPPO"), ("learning_rate", "n_steps", "batch_size", "n_epochs", "gamma")
    ),
    "A2C": ("learning_rate", "n_steps", "gamma"),
    "TRPO": ("learning_rate", "n_steps", "batch_size", "gamma"),
    **dict.fromkeys(
        ("DQN", "DoubleDQN", "QRDQN", "SAC", "TD3", "DDPG", "TQC", "CrossQ"),
        ("learning_rate", "buffer_size", "learning_starts", "batch_size"),
    ),
}
PLACES: Mapping[str, Key] = {"policy_kwargs": ("policy", "kwargs"), "seed": ("seed",), "device": ("device",)}
DROPPED = frozenset({"env", "policy", "verbose", "tensorboard_log", "_init_setup_model", "action_noise"})
# SB3's own classes that may stand in policy_kwargs or as buffer classes, by their last name.
KNOWN_CLASSES: Mapping[str, str] = {
    "NatureCNN": "stable_baselines3.common.torch_layers:NatureCNN",
    "CombinedExtractor": "stable_baselines3.common.torch_layers:CombinedExtractor",
    "FlattenExtractor": "stable_baselines3.common.torch_layers:FlattenExtractor",
}


class _Return(Exception):
    def __init__(self, value: Any) -> None:
        self.value = value


def drafts(text: str, path: str) -> list[Draft]:
    """Return one draft per constructor call of an SB3 algorithm; none when the module has no such call.

    Raises:
        BadInput: it is not Python.
    """
    tree = parse_module(text, path)
    if not any(library in text for library in LIBRARIES) and not _mentions_algorithm(tree):
        return []
    reader = _Reader(path)
    try:
        reader.module("__main__", tree, path)
        reader.visit_unused()
    except RecursionError:
        raise BadInput("nested too deeply to follow", path=path, hint="give the settings in a run file") from None
    return reader.finished()


def _mentions_algorithm(tree: ast.Module) -> bool:
    return any(
        isinstance(node, ast.Call) and _is_constructor(node.func)
        for node in ast.walk(tree)
        if isinstance(node, ast.Call)
    )


def _is_constructor(func: ast.expr) -> bool:
    name = func.attr if isinstance(func, ast.Attribute) else func.id if isinstance(func, ast.Name) else ""
    found = find_algorithm("sb3", name)
    return found is not None and found.name == name


class _Reader:
    """Follows a script and collects its models."""

    def __init__(self, path: str) -> None:
        self.path = path
        self.folder = Path(path).parent
        self.models: dict[int, Model] = {}  # by the id of the call's node: a call in a loop is one model
        self.evals: list[tuple[Env, dict[str, Any], int]] = []  # with the line of the call
        self.checkpoints: list[tuple[dict[str, Any], int]] = []
        self.makers: list[Maker] = []
        self.visited: set[int] = set()
        self.modules: dict[str, Module | None] = {}
        self.trees: list[ast.Module] = []  # keeps node ids alive
        self.depth = 0
        self.calls = 0
        self.current: Module

    # -- modules and statements ------------------------------------------------------------------------------------

    def module(self, name: str, tree: ast.Module, path: str) -> Module:
        module = Module(name, path, Scope())
        self.trees.append(tree)
        before = getattr(self, "current", module)
        self.current = module
        self.block(tree.body, module.scope)
        self.current = before
        return module

    def beside(self, name: str) -> Module | None:
        """Return the module of that name beside the script, followed like the script itself."""
        if name not in self.modules:
            self.modules[name] = None  # also while it is being read: modules may import each other
            parts = name.split(".")
            for file in (self.folder.joinpath(*parts).with_suffix(".py"), self.folder.joinpath(*parts, "__init__.py")):
                if is_file(str(file)) and len(self.modules) <= MOST_MODULES and str(file) != self.path:
                    try:
                        text = read_text(str(file))
                        self.modules[name] = self.module(name, parse_module(text, str(file)), str(file))
                    except BadInput:
                        pass  # then nothing in it is known
                    break
        return self.modules[name]

    def visit_unused(self) -> None:
        """Follow the functions that nobody called, with their defaults: `train` may be called by another script."""
        for maker in list(self.makers):
            body = getattr(maker.node, "body", None)
            if isinstance(body, list) and id(maker.node) not in self.visited and maker.module.name == "__main__":
                functions = [maker.node]
                if isinstance(maker.node, ast.ClassDef):
                    functions = [n for n in body if isinstance(n, ast.FunctionDef)]
                for node in functions:
                    if any(isinstance(n, ast.Call) and _is_constructor(n.func) for n in ast.walk(node)):
                        self.call_function(replace(maker, node=node), [], {})

    def block(self, body: Sequence[ast.stmt], scope: Scope) -> None:
        for statement in body:
            self.statement(statement, scope)

    def statement(self, node: ast.stmt, scope: Scope) -> None:
        match node:
            case ast.Assign():
                value = self.value(node.value, scope)
                for target in node.targets:
                    self.bind(target, value, scope)
            case ast.AnnAssign() if node.value is not None:
                self.bind(node.target, self.value(node.value, scope), scope)
            case ast.AugAssign(target=ast.Name(id=name)):
                function = OPERATORS.get(type(node.op))
                old, new = scope.find(name), self.value(node.value, scope)
                scope.names[name] = self.arithmetic(function, old, new, node)
            case ast.Expr():
                self.value(node.value, scope)
            case ast.Import():
                for alias in node.names:
                    self.import_module(alias.name, alias.asname, scope)
            case ast.ImportFrom():
                self.import_from(node, scope)
            case ast.FunctionDef() | ast.AsyncFunctionDef():
                maker = Maker(node, scope, self.current)
                self.makers.append(maker)
                scope.names[node.name] = maker
            case ast.ClassDef():
                bases = tuple(self.value(base, scope) for base in node.bases)
                maker = Maker(node, scope, self.current, bases)
                self.makers.append(maker)
                scope.names[node.name] = maker
            case ast.Return():
                raise _Return(self.value(node.value, scope) if node.value else None)
            case ast.If():
                self.condition(node, scope)
            case ast.For() | ast.AsyncFor():
                items = self.value(node.iter, scope)
                first = items[0] if isinstance(items, list) and items else NotKnown(unparsed(node.iter), node.lineno)
                self.bind(node.target, first, scope)
                self.block(node.body, scope)
            case ast.While():
                self.block(node.body, scope)
            case ast.With() | ast.AsyncWith():
                for item in node.items:
                    value = self.value(item.context_expr, scope)
                    if item.optional_vars is not None:
                        self.bind(item.optional_vars, value, scope)
                self.block(node.body, scope)
            case ast.Try():
                self.block(node.body, scope)
                self.block(node.orelse, scope)
                self.block(node.finalbody, scope)

    def condition(self, node: ast.If, scope: Scope) -> None:
        test = self.value(node.test, scope)
        if _is_main_guard(node.test):
            self.block(node.body, scope)
        elif test is None or isinstance(test, bool | int | float | list | dict) or type(test) is str:
            self.block(node.body if test else node.orelse, scope)
        else:  # either may happen; names that both bind keep what the first branch says
            returned: _Return | None = None
            for branch in (node.orelse, node.body):
                try:
                    self.block(branch, scope)
                except _Return as found:
                    returned = found
            if returned is not None and node.orelse:
                raise returned

    def bind(self, target: ast.expr, value: Any, scope: Scope) -> None:
        match target:
            case ast.Name():
                scope.names[target.id] = value
            case ast.Attribute(value=ast.Name(id="self")):
                scope.names[f"self.{target.attr}"] = value
            case ast.Tuple() | ast.List():
                values = value if isinstance(value, list) and len(value) == len(target.elts) else None
                for i, part in enumerate(target.elts):
                    self.bind(part, values[i] if values else NotKnown(unparsed(target), target.lineno), scope)
            case ast.Subscript():
                owner, key = self.value(target.value, scope), self.value(target.slice, scope)
                if isinstance(owner, dict) and isinstance(key, str | int):
                    owner[key] = value

    def import_module(self, name: str, alias: str | None, scope: Scope) -> None:
        found = self.beside(name)
        top = name if alias else name.partition(".")[0]
        if found is not None and (alias or "." not in name):
            scope.names[alias or name] = found
        else:
            scope.names[alias or top] = Symbol(top)

    def import_from(self, node: ast.ImportFrom, scope: Scope) -> None:
        name = node.module or ""
        found = self.beside(name) if name else None
        for alias in node.names:
            if alias.name == "*":
                if found is not None:
                    scope.names |= found.scope.names
            elif found is not None and alias.name in found.scope.names:
                scope.names[alias.asname or alias.name] = found.scope.names[alias.name]
            else:
                submodule = self.beside(f"{name}.{alias.name}" if name else alias.name)
                symbol = Symbol(f"{name}.{alias.name}" if name else alias.name)
                scope.names[alias.asname or alias.name] = submodule if submodule is not None else symbol

    # -- expressions -----------------------------------------------------------------------------------------------

    def value(self, node: ast.expr, scope: Scope) -> Any:
        """Return what the expression is worth; `NotKnown` where only running could tell."""
        match node:
            case ast.Constant():
                return node.value
            case ast.Name():
                return scope.find(node.id)
            case ast.Attribute():
                return self.attribute(node, scope)
            case ast.Call():
                return self.call(node, scope)
            case ast.Lambda():
                return Maker(node, scope, self.current)
            case ast.List() | ast.Tuple():
                return self.items(node, scope)
            case ast.Dict():
                return self.mapping(node, scope)
            case ast.ListComp() | ast.GeneratorExp():
                return self.comprehension(node, scope)
            case ast.BinOp():
                function = OPERATORS.get(type(node.op))
                return self.arithmetic(function, self.value(node.left, scope), self.value(node.right, scope), node)
            case ast.NamedExpr():
                value = self.value(node.value, scope)
                self.bind(node.target, value, scope)
                return value
            case ast.IfExp():
                test = self.value(node.test, scope)
                settled = test is None or isinstance(test, bool | int | float | list | dict) or type(test) is str
                if settled:
                    return self.value(node.body if test else node.orelse, scope)
                return NotKnown(unparsed(node), node.lineno)
            case ast.Subscript():
                owner, key = self.value(node.value, scope), self.value(node.slice, scope)
                try:
                    return owner[key] if isinstance(owner, dict | list | str) else NotKnown(unparsed(node), node.lineno)
                except (LookupError, TypeError):
                    return NotKnown(unparsed(node), node.lineno)
            case ast.Starred():
                return self.value(node.value, scope)
        return self.folded(node, scope)

    def folded(self, node: ast.expr, scope: Scope) -> Any:
        def look_up(name: str) -> Any:
            value = scope.find(name)
            if isinstance(value, NotKnown | Env | Maker | Model | Module | Bound):
                raise Unfoldable(name)
            return value

        try:
            return fold(node, look_up)
        except Unfoldable:
            return NotKnown(unparsed(node), getattr(node, "lineno", None))

    def arithmetic(self, function: Callable[[Any, Any], Any] | None, left: Any, right: Any, node: ast.AST) -> Any:
        line = getattr(node, "lineno", None)
        if function is operator.mul and isinstance(left, list) and isinstance(right, int) and right > LONGEST_RANGE:
            return NotKnown(unparsed(node), line)
        plain_values = (int, float, str, list)
        if function is None or not isinstance(left, plain_values) or not isinstance(right, plain_values):
            return NotKnown(unparsed(node), line)
        try:
            return binary(function, left, right)
        except Unfoldable:
            return NotKnown(unparsed(node), line)

    def attribute(self, node: ast.Attribute, scope: Scope) -> Any:
        if isinstance(node.value, ast.Name) and node.value.id == "self":
            found = scope.find(f"self.{node.attr}")
            if not isinstance(found, Symbol):
                return found
        owner = self.value(node.value, scope)
        match owner:
            case Module():
                return owner.scope.names.get(node.attr, NotKnown(unparsed(node), node.lineno))
            case Symbol():
                return Symbol(f"{owner}.{node.attr}")
            case Namespace():
                return owner.values.get(node.attr, NotKnown(unparsed(node), node.lineno))
            case Maker(node=ast.ClassDef()):
                return self.class_scope(owner).names.get(node.attr, NotKnown(unparsed(node), node.lineno))
            case Env() if node.attr == "num_envs":
                return owner.n_envs
            case Env() if node.attr in ("env", "venv", "unwrapped"):
                return owner
            case Env() if node.attr in ("observation_space", "action_space"):
                space = owner.observation if node.attr == "observation_space" else owner.action
                return dict(space) if space is not None else NotKnown(unparsed(node), node.lineno)
        return Bound(owner, node.attr)

    def items(self, node: ast.List | ast.Tuple, scope: Scope) -> list[Any]:
        found: list[Any] = []
        for item in node.elts:
            value = self.value(item, scope)
            if isinstance(item, ast.Starred) and isinstance(value, list):
                found += value
            else:
                found.append(value)
        return found

    def mapping(self, node: ast.Dict, scope: Scope) -> Any:
        found: dict[Any, Any] = {}
        for key, value in zip(node.keys, node.values, strict=True):
            worth = self.value(value, scope)
            if key is None:
                if isinstance(worth, dict):
                    found |= worth
                continue
            name = self.value(key, scope)
            if isinstance(name, str | int | float):
                found[name] = worth
        return found

    def comprehension(self, node: ast.ListComp | ast.GeneratorExp, scope: Scope) -> Any:
        """Return the list: its length from what it runs over, each item worth what the first one is."""
        inner = Scope(scope)
        length = 1
        for part in node.generators:
            items = self.value(part.iter, inner)
            if not isinstance(items, list) or part.ifs or length * len(items) > LONGEST_RANGE:
                return NotKnown(unparsed(node), node.lineno)
            length *= len(items)
            self.bind(part.target, items[0] if items else None, inner)
        return [self.value(node.elt, inner)] * length if length else []

    # -- calls -----------------------------------------------------------------------------------------------------

    def call(self, node: ast.Call, scope: Scope) -> Any:
        if isinstance(node.func, ast.Attribute) and node.func.attr == "add_argument":
            return self.add_argument(node, scope)
        func = self.value(node.func, scope)
        args: list[Any] = []
        for arg in node.args:
            value = self.value(arg, scope)
            if isinstance(arg, ast.Starred):
                args += value if isinstance(value, list) else []
            else:
                args.append(value)
        kwargs: dict[str, Any] = {}
        for keyword in node.keywords:
            value = self.value(keyword.value, scope)
            if keyword.arg is not None:
                kwargs[keyword.arg] = value
            elif isinstance(value, dict):
                kwargs |= {str(k): v for k, v in value.items()}
            else:
                kwargs["**"] = NotKnown(unparsed(keyword.value), node.lineno)
        return self.apply(func, args, kwargs, node)

    def apply(self, func: Any, args: list[Any], kwargs: dict[str, Any], node: ast.Call) -> Any:
        unknown = NotKnown(unparsed(node), node.lineno)
        match func:
            case Maker(node=ast.ClassDef()):
                return self.instance(func, args, kwargs, node, unknown)
            case Maker():
                return self.call_function(func, args, kwargs)
            case Bound():
                return self.method(func, args, kwargs, unknown)
            case Symbol():
                return self.library_call(func, args, kwargs, node, unknown)
        return unknown

    def call_function(self, maker: Maker, args: list[Any], kwargs: dict[str, Any]) -> Any:
        """Follow a function or lambda of the script and return what it returns."""
        node = maker.node
        self.visited.add(id(node))
        self.calls += 1
        if self.depth >= DEEPEST_CALL or self.calls > MOST_CALLS:
            return NotKnown(getattr(node, "name", "a function"), node.lineno)
        scope = Scope(maker.scope)
        before, self.current = self.current, maker.module
        self.depth += 1
        try:
            self.bind_arguments(node.args, args, kwargs, scope, maker.scope)
            if isinstance(node, ast.Lambda):
                return self.value(node.body, scope)
            self.block(node.body, scope)
        except _Return as returned:
            return returned.value
        finally:
            self.depth -= 1
            self.current = before
        return None

    def bind_arguments(
        self, spec: ast.arguments, args: list[Any], kwargs: dict[str, Any], scope: Scope, outer: Scope
    ) -> None:
        positional = [*spec.posonlyargs, *spec.args]
        defaults: list[ast.expr | None] = [None] * (len(positional) - len(spec.defaults)) + list(spec.defaults)
        pairs = [*zip(positional, defaults, strict=True), *zip(spec.kwonlyargs, spec.kw_defaults, strict=True)]
        rest = dict(kwargs)
        for i, (arg, default) in enumerate(pairs):
            if i < len(args) and i < len(positional):
                scope.names[arg.arg] = args[i]
                rest.pop(arg.arg, None)
            elif arg.arg in rest:
                scope.names[arg.arg] = rest.pop(arg.arg)
            elif default is not None:
                scope.names[arg.arg] = self.value(default, outer)
            elif arg.arg != "self":
                scope.names[arg.arg] = NotKnown(f"the argument {arg.arg}", arg.lineno)
        if spec.vararg:
            scope.names[spec.vararg.arg] = args[len(positional) :]
        if spec.kwarg:
            scope.names[spec.kwarg.arg] = rest

    def class_scope(self, maker: Maker) -> Scope:
        scope = Scope(maker.scope)
        for statement in maker.node.body:
            if isinstance(statement, ast.Assign | ast.AnnAssign):
                self.statement(statement, scope)
        return scope

    def instance(self, maker: Maker, args: list[Any], kwargs: dict[str, Any], node: ast.Call, unknown: NotKnown) -> Any:
        """Return an instance of a class of the script: an algorithm's, an environment's, a wrapper's, or not known."""
        algorithm = next((b for b in self.ancestors(maker) if isinstance(b, Symbol) and _algorithm(b)), None)
        if algorithm is not None:
            return self.construct(algorithm, args, kwargs, node)
        scope = self.class_scope(maker)
        init = next((n for n in maker.node.body if isinstance(n, ast.FunctionDef) and n.name == "__init__"), None)
        inner = args[0] if args and isinstance(args[0], Env) else kwargs.get("env")
        if init is not None and self.depth < DEEPEST_CALL:
            body = Scope(scope)
            before, self.current = self.current, maker.module
            self.depth += 1
            try:
                self.bind_arguments(init.args, [None, *args], kwargs, body, maker.scope)
                self.block(init.body, body)
            except _Return:
                pass
            finally:
                self.depth -= 1
                self.current = before
            scope = body
        spaces = [scope.find(f"self.{name}") for name in ("observation_space", "action_space")]
        spaces = [
            found if isinstance(found, dict) else scope.find(name)
            for found, name in zip(spaces, ("observation_space", "action_space"), strict=True)
        ]
        observation, action = (space if is_space(space) else None for space in spaces)
        if isinstance(inner, Env):
            changed = {"observation": observation} if observation else {}
            changed |= {"action": action} if action else {}
            mark = () if observation or not _may_change_observation(maker) else (maker.node.name,)
            return replace(inner, wrappers=(*inner.wrappers, *mark), **changed)
        if observation or action or any("Env" in str(b) for b in self.ancestors(maker)):
            # a class of the script itself can be had by running the script only, so it has no id
            env_id = None if maker.module.name == "__main__" else self.class_name(maker)
            return Env(id=env_id, observation=observation, action=action)
        fields = {k.removeprefix("self."): v for k, v in scope.names.items()}
        if any(_decorator(d) == "dataclass" for d in maker.node.decorator_list):
            return Namespace({**fields, **kwargs})
        return Namespace(fields) if fields else unknown

    def ancestors(self, maker: Maker) -> list[Any]:
        found: list[Any] = []
        todo = list(maker.bases)
        while todo and len(found) < 50:
            base = todo.pop()
            found.append(base.node.name if isinstance(base, Maker) else base)
            if isinstance(base, Maker):
                todo += base.bases
        return found

    def class_name(self, maker: Maker) -> str:
        """Return the class as `module:Class`. One that stands in the script is nowhere to be imported from."""
        return f"{maker.module.name}:{maker.node.name}"

    def method(self, bound: Bound, args: list[Any], kwargs: dict[str, Any], unknown: NotKnown) -> Any:
        owner, name = bound.owner, bound.name
        if isinstance(owner, Model):
            if name == "learn":
                steps = args[0] if args else kwargs.get("total_timesteps")
                if kwargs.get("reset_num_timesteps") is False:  # one call of several, as a rule in a loop
                    owner.draft.data.pop("total_timesteps", None)
                elif isinstance(steps, int | float) and not isinstance(steps, bool):
                    owner.draft.put(("total_timesteps",), steps, unknown.line)
            if name == "set_env" and args:
                owner.env = args[0]
            return owner
        if isinstance(owner, dict):
            if name == "get" and args and isinstance(args[0], str | int):
                return owner.get(args[0], args[1] if len(args) > 1 else None)
            if name == "update":
                owner.update(args[0] if args and isinstance(args[0], dict) else {}, **kwargs)
                return None
            if name == "copy":
                return dict(owner)
            if name == "items":
                return [[k, v] for k, v in owner.items()]
        if isinstance(owner, list) and name == "append" and args and len(owner) < LONGEST_RANGE:
            owner.append(args[0])
            return None
        if isinstance(owner, Parser) and name in ("parse_args", "parse_known_args"):
            namespace = Namespace(owner.values)
            return namespace if name == "parse_args" else [namespace, []]
        if isinstance(owner, Parser):  # add_argument_group
            return owner
        return unknown

    def add_argument(self, node: ast.Call, scope: Scope) -> Any:
        assert isinstance(node.func, ast.Attribute)
        parser = self.value(node.func.value, scope)
        found = argument_default(node)
        if isinstance(parser, Parser) and found is not None:
            parser.values[found[0]] = self.value(found[1], scope)
        return None

    # -- what the libraries make -----------------------------------------------------------------------------------

    def library_call(
        self, symbol: Symbol, args: list[Any], kwargs: dict[str, Any], node: ast.Call, unknown: NotKnown
    ) -> Any:
        name = symbol.rpartition(".")[2]
        if _algorithm(symbol):
            return self.construct(symbol, args, kwargs, node)
        if name in MAKERS:
            return MAKERS[name](self, args, kwargs) or unknown
        if name == "ArgumentParser":
            return Parser()
        if name == "EvalCallback":
            env = args[0] if args else kwargs.get("eval_env")
            if isinstance(env, Env):
                self.evals.append((env, kwargs, node.lineno))
            return unknown
        if name == "CheckpointCallback":
            self.checkpoints.append(({"save_freq": args[0], **kwargs} if args else kwargs, node.lineno))
            return unknown
        inner = args[0] if args else kwargs.get("env", kwargs.get("venv"))
        if isinstance(inner, Env):
            if name in NEUTRAL_WRAPPERS:
                return inner
            own = kwargs if name in WRAPPERS and not args[1:] else {**kwargs, **wrapper_arguments(name, args[1:])}
            return replace(inner, wrappers=(*inner.wrappers, wrapper_entry(symbol, own)))
        if name == "range" and symbol == "range":
            return number_range(args) if args else unknown
        if symbol == "len" and args and isinstance(args[0], list | dict | str):
            return len(args[0])
        if name == "deepcopy" and args:
            return args[0]
        return self.call_of_plain(symbol, args, kwargs, unknown)

    def call_of_plain(self, symbol: Symbol, args: list[Any], kwargs: dict[str, Any], unknown: NotKnown) -> Any:
        from_constants = FUNCTIONS.get(symbol)
        values = [*args, *kwargs.values()]
        if from_constants is None or (symbol not in ("dict", "list", "tuple") and not all(is_plain(v) for v in values)):
            return unknown
        try:
            return from_constants(*args, **kwargs)
        except (ArithmeticError, TypeError, ValueError, MemoryError):
            return unknown

    def construct(self, symbol: Symbol, args: list[Any], kwargs: dict[str, Any], node: ast.Call) -> Model:
        """Write down the call of an algorithm's constructor."""
        if id(node) in self.models:
            return self.models[id(node)]
        algorithm = _algorithm(symbol)
        assert algorithm is not None
        draft = Draft(f"{Path(self.path).stem}:{node.lineno}", self.path)
        model = self.models[id(node)] = Model(draft, None)
        draft.put(("algo",), algorithm, node.lineno)
        named = dict(zip(("policy", "env", *POSITIONAL.get(algorithm, ())), args, strict=False)) | kwargs
        if isinstance(named.get("**"), NotKnown):
            draft.unknown[("hyperparams",)] = (node.lineno, named.pop("**").text)
        policy = named.get("policy", "MlpPolicy")
        draft.put(("policy", "name"), self.class_reference(policy) or "MlpPolicy", node.lineno)
        model.env = named.get("env")
        where = {k.arg: k.value.lineno for k in node.keywords if k.arg}
        for name, value in named.items():
            if name in DROPPED:
                continue
            place = PLACES.get(name, ("hyperparams", name))
            self.place(draft, place, value, where.get(name, node.lineno))
        return model

    def place(self, draft: Draft, key: Key, value: Any, line: int) -> None:
        """Put a value into the draft; the parts of it that are not known, beside it."""
        if isinstance(value, NotKnown | Env | Maker | Model | Module | Bound | Namespace | Parser):
            if isinstance(value, Maker) and isinstance(value.node, ast.ClassDef):
                draft.put(key, self.class_reference(value), line)
            else:
                text = value.text if isinstance(value, NotKnown) else "an object"
                draft.unknown[key] = (line, text)
        elif isinstance(value, dict):
            draft.put(key, {}, line)
            for name, child in value.items():
                self.place(draft, (*key, str(name)), child, line)
        elif isinstance(value, Symbol):
            reference = self.class_reference(value) if key[-1] == "features_extractor_class" else str(value)
            draft.put(key, reference, line)
        elif isinstance(value, list) and not all(is_plain(v) for v in value):
            draft.unknown[key] = (line, "a list of objects")
        else:
            draft.put(key, plain(value), line)

    def class_reference(self, value: Any) -> str | None:
        """Return a class or policy name as a run file would have it: `CnnPolicy`, `module:Class`."""
        if isinstance(value, Maker):
            return self.class_name(value) if isinstance(value.node, ast.ClassDef) else None
        if isinstance(value, Symbol):
            module, dot, name = value.rpartition(".")
            if name in KNOWN_CLASSES or name.endswith(("MlpPolicy", "CnnPolicy", "MultiInputPolicy")):
                return KNOWN_CLASSES.get(name, name)
            return f"{module}:{name}" if dot else name
        return value if isinstance(value, str) else None

    # -- the result ------------------------------------------------------------------------------------------------

    def finished(self) -> list[Draft]:
        """Return the drafts with their environments, in the order of the calls in the file."""
        found = []
        for model in self.models.values():
            line = model.draft.lines[("algo",)]
            env = model.env
            if isinstance(env, str) and type(env) is str:
                env = Env(id=env)
            model.draft.put(("env",), {}, line)
            if isinstance(env, Env):
                self.describe_env(model.draft, env, line)
            else:  # then nobody knows how many there are, or what they show
                text = env.text if isinstance(env, NotKnown) else str(env) if isinstance(env, Symbol) else "not given"
                model.draft.unknown[("env", "n_envs")] = (line, f"that of {text}")
            envs = env.n_envs if isinstance(env, Env) and isinstance(env.n_envs, int) else 1
            self.describe_callbacks(model.draft, envs, line)
            found.append(model.draft)
        return sorted(found, key=lambda draft: draft.lines[("algo",)]) if len(found) > 1 else _alone(found, self.path)

    def describe_env(self, draft: Draft, env: Env, line: int) -> None:
        values: dict[str, Any] = {"id": env.id, "n_envs": env.n_envs, "workers": env.workers}
        values |= {"start_method": env.start_method, "frame_stack": env.frame_stack, "normalize": env.normalize}
        values |= {"wrappers": list(env.wrappers) or None, "kwargs": dict(env.kwargs) or None}
        for name, value in values.items():
            if value is not None and value is not False:
                self.place(draft, ("env", name), value, line)
        if env.observation is not None and env.action is not None:
            known = wrapped(Known(env.observation, env.action), env.wrappers)
            if known is not None:
                draft.put(("env", "spaces"), {"observation": known.observation, "action": known.action}, line)

    def describe_callbacks(self, draft: Draft, envs: int, line: int) -> None:
        if self.evals:
            env, kwargs, line = self.evals[0]
            self.place(draft, ("eval", "n_envs"), env.n_envs, line)
            draft.put(("eval", "workers"), env.workers, line)
            every, episodes = kwargs.get("eval_freq"), kwargs.get("n_eval_episodes")
            if isinstance(every, int) and every > 0:  # SB3 counts steps of the vectorised environment
                draft.put(("eval", "every"), every * envs, line)
            if isinstance(episodes, int):
                draft.put(("eval", "episodes"), episodes, line)
        if self.checkpoints:
            kwargs, line = self.checkpoints[0]
            every = kwargs.get("save_freq")
            if isinstance(every, int) and every > 0:
                draft.put(("checkpoint", "every"), every * envs, line)
            if kwargs.get("save_replay_buffer") is True:
                draft.put(("checkpoint", "replay_buffer"), True, line)


def _algorithm(symbol: str) -> str | None:
    """Return the algorithm a name stands for: `PPO`, `sb3.PPO`, `sb3_contrib.ppo_mask.MaskablePPO`."""
    name = symbol.rpartition(".")[2]
    found = find_algorithm("sb3", name)
    return found.name if found is not None and found.name == name else None


def _is_main_guard(test: ast.expr) -> bool:
    return isinstance(test, ast.Compare) and isinstance(test.left, ast.Name) and test.left.id == "__name__"


def _may_change_observation(maker: Maker) -> bool:
    bases = " ".join(str(base) for base in maker.bases)
    methods = {n.name for n in maker.node.body if isinstance(n, ast.FunctionDef)}
    return "ObservationWrapper" in bases or "observation" in methods


def _decorator(node: ast.expr) -> str:
    func = node.func if isinstance(node, ast.Call) else node
    return func.attr if isinstance(func, ast.Attribute) else getattr(func, "id", "")


def _alone(found: list[Draft], path: str) -> list[Draft]:
    """Return the one draft, named after the script rather than after its line."""
    for draft in found:
        draft.name = Path(path).stem
    return found
