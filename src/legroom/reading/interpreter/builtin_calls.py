"""Calls of builtins and of methods of plain data, as a script makes them: what they return and what they change.

What is not mirrored here changes whatever mutable it is given, unless it is of a package that is known to leave its
arguments alone.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

from legroom.reading.interpreter.effects import MISSING, Effects, is_forgotten
from legroom.reading.interpreter.values import (
    LONGEST,
    OPEN,
    Function,
    Module,
    Names,
    Namespace,
    NotKnown,
    Partial,
    Symbol,
    is_settled,
    made,
    rest_of,
)
from legroom.reading.reading_budget import hold

# A change of anything in these changes what a run is made of.
DECIDING = frozenset({"stable_baselines3", "sb3_contrib", "gymnasium", "gym", "builtins", "__builtins__", "sys"})
# Packages whose functions leave what they are given as it is.
HARMLESS_PACKAGES = frozenset({
    "stable_baselines3", "sb3_contrib", "rl_zoo3", "huggingface_sb3", "gymnasium", "gym", "shimmy", "ale_py",
    "minigrid", "numpy", "np", "torch", "th", "pandas", "pd", "scipy", "matplotlib", "plt", "seaborn", "tqdm", "rich",
    "wandb", "mlflow", "tensorboard", "tensorboardX", "optuna", "yaml", "json", "toml", "tomllib", "tomli", "pprint",
    "logging", "loguru", "warnings", "os", "sys", "pathlib", "shutil", "time", "datetime", "math", "cmath",
    "statistics", "random", "secrets", "uuid", "hashlib", "string", "re", "textwrap", "platform", "getpass", "socket",
    "subprocess", "itertools", "functools", "collections", "copy", "dataclasses", "enum", "typing", "types",
    "argparse", "contextlib", "io", "csv", "pickle", "cloudpickle", "joblib", "glob", "tempfile", "inspect",
    "traceback", "gc", "psutil", "signal", "atexit", "threading", "multiprocessing", "concurrent", "asyncio", "queue",
    "omegaconf", "hydra", "tyro", "click", "imageio", "cv2", "PIL", "pygame", "legroom", "ray", "super",
})  # fmt: skip
CHANGING = frozenset({"random.shuffle", "numpy.random.shuffle", "np.random.shuffle", "sys.setattr"})
HARMLESS_BUILTINS = frozenset({
    "print", "len", "repr", "str", "int", "float", "bool", "list", "tuple", "dict", "set", "frozenset", "sorted",
    "sum", "min", "max", "abs", "round", "any", "all", "zip", "map", "filter", "enumerate", "reversed", "range",
    "iter", "next", "type", "isinstance", "issubclass", "callable", "id", "hash", "hasattr", "format", "vars", "dir",
    "input", "open", "divmod", "pow", "ord", "chr", "hex", "bin", "slice", "object", "property", "staticmethod",
    "classmethod", "super", "getattr", "display", "bytes", "bytearray", "memoryview", "exit", "quit", "ValueError",
    "RuntimeError", "Exception",
})  # fmt: skip
# What runs text, or puts something in the place of what is followed.
LOSING = frozenset({
    "exec", "eval", "compile", "globals", "unittest.mock.patch", "unittest.mock.patch.object", "importlib.reload",
})  # fmt: skip
READING = frozenset({"get", "keys", "values", "items", "copy", "index", "count", "__getitem__", "__contains__"})


class View(dict[Any, Any]):
    """The attributes of an object as a dict, for reading: what is written into it is not followed."""


def is_harmless_call(symbol: str) -> bool:
    """Return whether a function of a library or a builtin leaves what it is given as it is."""
    package, dot, _ = symbol.partition(".")
    if symbol in CHANGING or symbol.endswith(("__setattr__", "__setitem__", "__delattr__", "__init__")):
        return False
    return package in HARMLESS_PACKAGES if dot else symbol in HARMLESS_BUILTINS


def copied_deeply(value: Any) -> Any:
    """Return a copy of containers and of objects with attributes, at any depth; the rest is shared."""
    if isinstance(value, list):
        return made([copied_deeply(one) for one in value])
    if isinstance(value, dict) and not isinstance(value, Names):
        return made(type(value)({key: copied_deeply(one) for key, one in value.items()}))
    return value


_ARRANGED: Mapping[str, Callable[..., list[Any]]] = {
    "enumerate": lambda items, start=0: [[number, item] for number, item in enumerate(items, start)],
    "zip": lambda *lists: [list(items) for items in zip(*lists, strict=False)],
    "reversed": lambda items: list(reversed(items)),
}


class BuiltinCalls(Effects):
    """Knows what builtins and methods of plain data do."""

    current: Module

    def set_attribute(self, owner: Any, name: str, value: Any, node: ast.AST) -> None:
        raise NotImplementedError

    def set_item(self, owner: Any, key: Any, value: Any, node: ast.AST) -> None:
        raise NotImplementedError

    def call_function(self, function: Function, args: list[Any], kwargs: dict[str, Any]) -> Any:
        raise NotImplementedError

    def update(self, owner: dict[Any, Any], entries: Any, node: ast.AST) -> None:
        """Set the entries of another dict in one."""
        pairs = isinstance(entries, list) and is_settled(entries)
        if pairs and all(isinstance(each, list) and len(each) == 2 for each in entries):
            entries = {key: value for key, value in entries if isinstance(key, str | int | float | None)}
        if not isinstance(entries, dict) or isinstance(owner, View):
            self.forget(owner, node)
        elif rest_of(entries) is not None:  # it may have any key
            for key in list(owner):
                self.write(owner, key, entries.get(key, NotKnown(node, getattr(node, "lineno", None))))
        for key, value in list(made(entries).items()) if isinstance(entries, dict) else ():
            self.set_item(owner, key, value, node)

    def dict_method(
        self, owner: dict[Any, Any], name: str, args: list[Any], kwargs: dict[str, Any], node: ast.Call
    ) -> Any:
        match name, args:
            case "get" | "pop", [str() | int() as key, *default] if not isinstance(key, Symbol):
                missing = default[0] if default else None
                if rest_of(owner) is not None and key not in owner:
                    missing = self.unknown(node)
                value = owner.get(key, missing)
                if name == "pop" and key in owner:
                    self.set_item(owner, key, MISSING, node)
                return value
            case "update", _:
                for entries in (*args[:1], kwargs):
                    self.update(owner, entries, node)
                return None
            case "copy", _:
                return made(type(owner)(owner))
            case "items" | "keys" | "values", _ if rest_of(owner) is None:
                lists = {"items": [made([k, v]) for k, v in owner.items()], "keys": list(owner)}
                return made(lists.get(name, list(owner.values())))
        if name not in READING:
            self.forget(owner, node)
        return NotKnown(node, node.lineno, holds=[owner])

    def list_method(self, owner: list[Any], name: str, args: list[Any], kwargs: dict[str, Any], node: ast.Call) -> Any:
        changed, result = list(owner), None
        match name, args:
            case "append", [item] if len(owner) < LONGEST:
                changed.append(item)
            case "extend", [list() as items] if is_settled(items) and len(owner) + len(items) < LONGEST:
                changed += items
            case "pop", [] | [int()] if is_settled(owner) and -len(owner) <= (args or [-1])[0] < len(owner):
                result = changed.pop(*args)
            case "copy", []:
                return made(changed)
            case _:
                if name not in READING:
                    self.forget(owner, node)
                return NotKnown(node, node.lineno, holds=[owner])
        if is_settled(owner):
            hold(1)
            self.rewrite(owner, changed)
        else:
            self.forget(owner, node)
        return result if is_settled(owner) or result is not None else self.unknown(node)

    def builtin(self, symbol: Symbol, args: list[Any], kwargs: dict[str, Any], node: ast.Call) -> Any:
        """Return what a builtin makes; `MISSING` where it is none that is mirrored here."""
        match str(symbol), args:
            case name, _ if name in LOSING:
                self.lose(node)
            case "vars", [owner]:
                return self.attributes_of(owner, node)
            case "setattr" | "object.__setattr__", [owner, name, value]:
                if isinstance(name, str) and not isinstance(name, Symbol):
                    self.set_attribute(owner, name, value, node)
                else:
                    self.change_any_attribute(owner, node)
            case "delattr", [owner, *_]:
                self.change_any_attribute(owner, node)
            case "functools.partial" | "partial", [func, *rest]:
                return Partial(func, rest, kwargs)
            case "copy.deepcopy" | "deepcopy", [value, *_]:
                return copied_deeply(value)
            case name, _ if name in _ARRANGED and args and all(isinstance(a, list) and is_settled(a) for a in args[:1]):
                return self.attempt(node, lambda: made(_ARRANGED[name](*args, **kwargs)))
            case _:
                return MISSING
        return None

    def attributes_of(self, owner: Any, node: ast.AST) -> Any:
        if isinstance(owner, Namespace):
            return owner.values if owner.cls is None else made(View(owner.fields()))
        if isinstance(owner, Module):
            return owner.frame.names
        return NotKnown(node, getattr(node, "lineno", None), holds=[owner])

    def change_any_attribute(self, owner: Any, node: ast.AST) -> None:
        """Take it that any attribute of an object may have been set."""
        if isinstance(owner, Module):
            for name in list(owner.frame.names):
                self.write(owner.frame.names, name, NotKnown(node, getattr(node, "lineno", None)))
        elif isinstance(owner, Namespace | NotKnown | dict):
            self.forget(owner, node)
        else:
            self.set_attribute(owner, OPEN, NotKnown(node), node)

    def foreign(self, maker: str, args: list[Any], kwargs: dict[str, Any], node: ast.Call) -> NotKnown:
        """Return what code that is not followed makes, and take it that it changes what it is given."""
        given = [*args, *kwargs.values()]
        if not is_harmless_call(maker):
            for one in given:
                self.touched_by(one, maker, node)
        for one in given:
            if isinstance(one, Function) and id(one.node) not in self.escaped:
                self.escaped.add(id(one.node))
                spec = one.node.args
                names = [arg.arg for arg in (*spec.posonlyargs, *spec.args, *spec.kwonlyargs)]
                unknown = {name: NotKnown(f"the argument {name}", one.node.lineno, holds=given) for name in names}
                self.alternatives([partial(self.call_function, one, [], unknown), lambda: None])
        held = [one for each in given for one in (each.holds if isinstance(each, NotKnown) else [each])]
        mutable = {id(one): one for one in held if isinstance(one, list | dict | Namespace) and not is_forgotten(one)}
        return NotKnown(node, node.lineno, holds=list(mutable.values()), maker=maker)

    def touched_by(self, value: Any, maker: str, node: ast.Call) -> None:
        self.forget(value, node)
