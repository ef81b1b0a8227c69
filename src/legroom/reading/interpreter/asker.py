"""What expressions of a script come to, as far as reading can tell: constants, defaults of arguments, settings classes.

A value is known when every assignment that can reach it agrees, also through modules beside the script, parameters
with the same value in every call, attributes set once, `argparse` defaults and the fields of a settings class
(`args = tyro.cli(Args)`). A default counts as the value: it is what the script does when it is started as it stands.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from typing import Any

from legroom.reading.constants import argument_default
from legroom.reading.interpreter.evaluator import Evaluator, complete
from legroom.reading.interpreter.scopes import Binding, FunctionNode
from legroom.reading.interpreter.script import Script, dotted, each_function
from legroom.reading.interpreter.values import Symbol, Unfoldable

DEEPEST = 12
_PARSED = ("parse_args", "parse_known_args")
_SETTINGS_MAKERS = ("tyro.cli", "simple_parsing.parse", "pyrallis.parse", "dataclasses.replace", "tap.Tap")


def value_of(script: Script, node: ast.expr | None, depth: int = 0) -> Any:
    """Return the plain value of an expression.

    Raises:
        Unfoldable: only execution could tell.
    """
    if node is None or depth > DEEPEST:
        raise Unfoldable("not known")
    try:
        value = complete(_Asker(script).value(node, depth))
    except RecursionError:
        raise Unfoldable("nested too deeply") from None
    if isinstance(value, Symbol):
        raise Unfoldable(value)
    return value


class _Asker(Evaluator[int]):
    """Knows what names and attributes hold where they stand; `at` is how many of them led here."""

    def __init__(self, script: Script) -> None:
        self.script = script

    def on_name(self, node: ast.Name, at: int) -> Any:
        return self.attempt(node, name_value, self.script, node, at + 1)

    def on_attribute(self, node: ast.Attribute, at: int) -> Any:
        try:
            return attribute_value(self.script, node, at + 1)
        except Unfoldable as error:
            name = self.script.qualified(node)
            return self.unknown(node, str(error)) if name is None else Symbol(name)


def number_of(script: Script, node: ast.expr | None) -> int | float | None:
    """Return the number that an expression comes to; None where it is none or not known."""
    try:
        value = value_of(script, node)
    except Unfoldable:
        return None
    return value if isinstance(value, int | float) and not isinstance(value, bool) else None


def integer_of(script: Script, node: ast.expr | None) -> int | None:
    """Return the whole number that an expression comes to (also as 1e6); None where it is none or not known."""
    value = number_of(script, node)
    if isinstance(value, float):
        return int(value) if value.is_integer() and abs(value) < 2**63 else None
    return value


def text_of(script: Script, node: ast.expr | None) -> str | None:
    """Return the string that an expression comes to; None where it is none or not known."""
    try:
        value = value_of(script, node)
    except Unfoldable:
        return None
    return value if isinstance(value, str) and not isinstance(value, Symbol) else None


def name_value(script: Script, name: ast.Name, depth: int = 0) -> Any:
    """Return what a name holds where it is used; a Symbol for objects of libraries and builtins."""
    if depth > DEEPEST:
        raise Unfoldable(name.id)
    bindings = script.scopes.reaching(name)
    if not bindings:
        for star in script.scopes.root.stars:
            if star in script.modules and name.id in script.modules[star].scopes.root.bindings:
                return module_value(script.modules[star], name.id, depth + 1)
        return Symbol(name.id)
    if any(_is_filled_later(script, name, binding) for binding in bindings):
        raise Unfoldable(name.id)
    return _agreed([_binding_value(script, binding, depth) for binding in bindings], name.id)


def module_value(script: Script, name: str, depth: int = 0) -> Any:
    """Return the value of a module-level constant."""
    bindings = script.scopes.root.bindings.get(name, [])
    if not bindings:
        for star in script.scopes.root.stars:
            if star in script.modules and depth < DEEPEST:
                return module_value(script.modules[star], name, depth + 1)
        raise Unfoldable(name)
    return _agreed([_binding_value(script, binding, depth) for binding in bindings], name)


def _agreed(values: list[Any], name: str) -> Any:
    if any(type(v) is not type(values[0]) or v != values[0] for v in values):
        raise Unfoldable(name)
    return values[0]


def _is_filled_later(script: Script, name: ast.Name, binding: Binding) -> bool:
    """Return whether a dict or list is changed after it was made: `config["n_envs"] = 8`, `config.update(...)`."""
    if not isinstance(binding.value, ast.Dict | ast.List | ast.Call):
        return False
    home = script.scopes.home(name.id, script.scopes.scope_of(name))
    for use in home.uses.get(name.id, ()) if home else ():
        parent = script.scopes.parents.get(id(use))
        if isinstance(parent, ast.Subscript) and isinstance(parent.ctx, ast.Store | ast.Del):
            return True
        if isinstance(parent, ast.Attribute) and parent.attr in ("update", "append", "extend", "pop", "setdefault"):
            return True
    return False


def _binding_value(script: Script, binding: Binding, depth: int) -> Any:
    if binding.kind == "assign" and binding.value is not None:
        return value_of(script, binding.value, depth + 1)
    if binding.kind == "import":
        module, _, last = binding.target.rpartition(".")
        if module in script.modules:
            return module_value(script.modules[module], last, depth + 1)
        return Symbol(binding.target)
    if binding.kind == "parameter" and isinstance(binding.node, ast.arg):
        return _parameter_value(script, binding.node, depth + 1)
    raise Unfoldable(binding.name)


# -- parameters ------------------------------------------------------------------------------------------------------


def _parameter_value(script: Script, parameter: ast.arg, depth: int) -> Any:
    """Return what every call of the function passes, or the default where nobody calls it here."""
    function = script.scopes.function_of(parameter)
    if function is None or isinstance(function, ast.Lambda):
        raise Unfoldable(parameter.arg)
    given = list(passed_arguments(script, function, parameter.arg))
    default = _default_of(function, parameter.arg)
    values = []
    for value in given or [None]:
        source = default if value is None else value
        if source is None:
            raise Unfoldable(parameter.arg)
        values.append(value_of(script, source, depth + 1))
    return _agreed(values, parameter.arg)


def passed_arguments(script: Script, function: FunctionNode, name: str) -> Iterator[ast.expr | None]:
    """Yield per call of `function` in its script what it passes as `name`; None where it leaves the default.

    Raises:
        Unfoldable: the function is also used otherwise than called, or called with * or **.
    """
    if isinstance(function, ast.Lambda):
        raise Unfoldable("a lambda")
    parent = script.scopes.parents.get(id(function))
    cls = parent if isinstance(parent, ast.ClassDef) else None
    called = function.name if cls is None or function.name != "__init__" else cls.name
    order = [p.arg for p in (*function.args.posonlyargs, *function.args.args)][1 if cls is not None else 0 :]
    scope = script.scopes.scope_of(function if cls is None or function.name != "__init__" else cls)
    if cls is not None and function.name != "__init__":
        raise Unfoldable("a method")
    if function.decorator_list:
        raise Unfoldable("decorated")
    for use in scope.uses.get(called, ()):
        call = script.scopes.parents.get(id(use))
        if not isinstance(call, ast.Call) or call.func is not use:
            if isinstance(call, ast.ClassDef) or _is_annotation(script, use):
                continue
            raise Unfoldable(called)
        if any(isinstance(a, ast.Starred) for a in call.args) or any(k.arg is None for k in call.keywords):
            raise Unfoldable(called)
        by_name = {k.arg: k.value for k in call.keywords}
        if name in by_name:
            yield by_name[name]
        elif name in order and order.index(name) < len(call.args):
            yield call.args[order.index(name)]
        else:
            yield None


def _is_annotation(script: Script, use: ast.AST) -> bool:
    child: ast.AST = use
    for parent in script.scopes.ancestors(use):
        if isinstance(parent, ast.arg) or getattr(parent, "returns", None) is child:
            return True
        if isinstance(parent, ast.AnnAssign) and parent.annotation is child:
            return True
        if isinstance(parent, ast.stmt):
            return isinstance(parent, ast.FunctionDef) and any(
                child is p.annotation for p in (*parent.args.args, *parent.args.kwonlyargs)
            )
        child = parent
    return False


def _default_of(function: ast.FunctionDef | ast.AsyncFunctionDef, name: str) -> ast.expr | None:
    positional = [*function.args.posonlyargs, *function.args.args]
    for parameter, default in zip(reversed(positional), reversed(function.args.defaults), strict=False):
        if parameter.arg == name:
            return default
    named = {p.arg: d for p, d in zip(function.args.kwonlyargs, function.args.kw_defaults, strict=False)}
    return named.get(name)


# -- attributes ------------------------------------------------------------------------------------------------------


def attribute_value(script: Script, node: ast.Attribute, depth: int = 0) -> Any:
    """Return what `config.NUM_ENVS`, `args.num_envs`, `Config.n_envs` or `self.n_envs` holds."""
    if depth > DEEPEST:
        raise Unfoldable(node.attr)
    qualified = script.qualified(node.value)
    if qualified in script.modules:
        return module_value(script.modules[qualified], node.attr, depth + 1)
    stored = [s for target, s in attribute_stores(script, node.attr) if _same_owner(script, target, node)]
    if stored:
        if len(stored) > 1 or not isinstance(stored[0], ast.Assign | ast.AnnAssign):
            raise Unfoldable(node.attr)
        return value_of(script, stored[0].value, depth + 1)
    owner_script, fields = settings_of(script, node.value, depth + 1)
    if node.attr not in fields:
        raise Unfoldable(node.attr)
    return value_of(owner_script, fields[node.attr], depth + 1)


def attribute_stores(script: Script, attribute: str) -> Iterator[tuple[ast.Attribute, ast.stmt | None]]:
    """Yield (target, statement) where an attribute of that name is assigned or deleted."""
    for node in script.nodes:
        if isinstance(node, ast.Attribute) and node.attr == attribute and isinstance(node.ctx, ast.Store | ast.Del):
            yield node, script.scopes.statement_of(node)


def _same_owner(script: Script, target: ast.Attribute, node: ast.Attribute) -> bool:
    """Return whether `target` (self.x or args.x) is on the same object as `node`, by the way it is written."""
    if dotted(target.value) != dotted(node.value):
        return False
    return dotted(node.value) != "self" or script.scopes.class_of(target) is script.scopes.class_of(node)


def settings_of(script: Script, node: ast.expr, depth: int = 0) -> tuple[Script, dict[str, ast.expr]]:
    """Return the fields of the settings object that `node` is: parsed arguments or an instance of a settings class.

    Raises:
        Unfoldable: it is something else.
    """
    if depth > DEEPEST:
        raise Unfoldable("settings")
    definition = script.definition(node)
    if definition is not None and isinstance(definition[1], ast.ClassDef):
        return definition[0], class_fields(definition[1])
    if isinstance(node, ast.Name):
        bindings = [b for b in script.scopes.reaching(node) if not _is_none(b.value)]
        if len(bindings) == 1:
            binding = bindings[0]
            if binding.kind == "assign" and binding.value is not None:
                return settings_of(script, binding.value, depth + 1)
            if binding.kind == "unpack" and isinstance(binding.node, ast.Assign):  # args, unknown = parse_known_args()
                return settings_of(script, binding.node.value, depth + 1)
            if binding.kind == "parameter" and isinstance(binding.node, ast.arg):
                return _settings_parameter(script, binding.node, depth)
            if binding.kind == "import":
                module, _, last = binding.target.rpartition(".")
                other = script.modules.get(module)
                found = other.scopes.root.bindings.get(last, []) if other is not None else []
                if other is not None and len(found) == 1 and found[0].value is not None:
                    return settings_of(other, found[0].value, depth + 1)
    if isinstance(node, ast.Call):
        return _settings_call(script, node, depth)
    if isinstance(node, ast.Attribute):  # self.args, set once
        stored = [s for target, s in attribute_stores(script, node.attr) if _same_owner(script, target, node)]
        if len(stored) == 1 and isinstance(stored[0], ast.Assign | ast.AnnAssign) and stored[0].value is not None:
            return settings_of(script, stored[0].value, depth + 1)
    raise Unfoldable("settings")


def _settings_parameter(script: Script, parameter: ast.arg, depth: int) -> tuple[Script, dict[str, ast.expr]]:
    function = script.scopes.function_of(parameter)
    if function is not None and not isinstance(function, ast.Lambda):
        given = [g for g in passed_arguments(script, function, parameter.arg) if g is not None]
        if len(given) == 1:
            return settings_of(script, given[0], depth + 1)
    if parameter.annotation is not None:
        return settings_of(script, parameter.annotation, depth + 1)
    raise Unfoldable(parameter.arg)


def _settings_call(script: Script, call: ast.Call, depth: int) -> tuple[Script, dict[str, ast.expr]]:
    if isinstance(call.func, ast.Attribute) and call.func.attr in _PARSED:
        return script, dict(options(script))
    if script.qualified(call.func) in _SETTINGS_MAKERS and call.args:
        return settings_of(script, call.args[0], depth + 1)
    definition = script.definition(call.func)
    if definition is None:
        raise Unfoldable("settings")
    other, node = definition
    if isinstance(node, ast.ClassDef):
        given = {k.arg: k.value for k in call.keywords if k.arg}
        if any(k.arg is None for k in call.keywords) or call.args:
            raise Unfoldable("settings")
        if given and other is not script:
            raise Unfoldable("settings")
        return other, class_fields(node) | given
    returns = [n for n in ast.walk(node) if isinstance(n, ast.Return) and n.value is not None]
    if len(returns) == 1 and returns[0].value is not None:
        return settings_of(other, returns[0].value, depth + 1)
    raise Unfoldable("settings")


def options(script: Script) -> Iterator[tuple[str, ast.expr]]:
    """Yield (name, default) of every `add_argument` of the script."""
    for call in script.calls:
        if isinstance(call.func, ast.Attribute) and call.func.attr == "add_argument":
            found = argument_default(call)
            if found is not None:
                yield found


def class_fields(cls: ast.ClassDef) -> dict[str, ast.expr]:
    """Return the fields of a settings class with their defaults; none when it computes them in `__init__`."""
    if any(f.name == "__init__" for f in each_function(cls)):
        return {}
    fields = {}
    for statement in cls.body:
        match statement:
            case ast.AnnAssign(target=ast.Name(id=name), value=ast.expr() as value):
                fields[name] = value
            case ast.Assign(targets=[ast.Name(id=name)]):
                fields[name] = statement.value
    return fields


def _is_none(node: ast.expr | None) -> bool:
    return isinstance(node, ast.Constant) and node.value is None
