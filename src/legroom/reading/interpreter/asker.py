"""What an expression of a script comes to wherever it stands: constants, defaults of arguments, settings classes.

A value is known when every assignment that can reach it agrees, also through modules beside the script, parameters
with the same value in every call, attributes set once, `argparse` defaults and the fields of a settings class
(`args = tyro.cli(Args)`). A default counts as the value: it is what the script does when it is started as it stands.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple, Self

from legroom.model.draft import Draft, Key
from legroom.reading.constants import argument_default
from legroom.reading.interpreter.evaluator import ARRANGING, FUNCTIONS, Evaluator, complete, walked
from legroom.reading.interpreter.file_calls import FileRef, Loaded, file_method, hydra_config, is_file_call
from legroom.reading.interpreter.scopes import Binding
from legroom.reading.interpreter.script import Definition, Script, argument, dotted, each_function, has_hidden_arguments
from legroom.reading.interpreter.values import LONGEST, NotKnown, Symbol, Unfoldable, made
from legroom.reading.reading_budget import pay
from legroom.reading.source import unparsed, walk

DEEPEST = 12  # names and attributes that lead from one to the next
_PARSED = ("parse_args", "parse_known_args")
_SETTINGS_MAKERS = ("tyro.cli", "simple_parsing.parse", "pyrallis.parse", "dataclasses.replace", "tap.Tap")


class Settings(NamedTuple):
    """An object with fields: parsed arguments, a settings class or an instance of one; `script` is where they stand."""

    script: Script
    fields: dict[str, ast.expr]


def value_of(script: Script, node: ast.expr | None) -> Any:
    """Return the plain value of an expression.

    Raises:
        Unfoldable: only execution could tell.
    """
    value = complete(_asked(script, node))
    if isinstance(value, Symbol):
        raise Unfoldable(value)
    return value


def put_value(script: Script, node: ast.expr, draft: Draft, place: Key) -> None:
    """Put the value of an expression into a draft; what only execution could tell is not known there."""
    try:
        value = value_of(script, node)
    except Unfoldable:
        draft.unknown[place] = (node.lineno, unparsed(node))
        return
    if value is not None:
        draft.put(place, value, node.lineno)


def _asked(script: Script, node: ast.expr | None) -> Any:
    if node is None:
        return NotKnown("nothing")
    try:
        return Asker(script).value(node, 0)
    except RecursionError:
        return NotKnown("nested too deeply")


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


def length_of(script: Script, node: ast.expr | None) -> int | None:
    """Return how many items a list has, whatever they are: `[f] * 4`; None where it is none or not known."""
    value = _asked(script, node)
    return len(value) if isinstance(value, list) else None


def range_of(script: Script, node: ast.expr) -> range | None:
    """Return the numbers of a `range(...)`; None where it is none or not known."""
    if not (isinstance(node, ast.Call) and script.qualified(node.func) == "range" and 1 <= len(node.args) <= 3):
        return None
    bounds = [bound for arg in node.args if (bound := integer_of(script, arg)) is not None]
    return range(*bounds) if len(bounds) == len(node.args) and (len(bounds) < 3 or bounds[2]) else None


class Asker(Evaluator[int]):
    """Knows what names and attributes hold where they stand; `at` is how many of them led here."""

    def __init__(self, script: Script) -> None:
        self.script = script

    def of(self, script: Script) -> Self:
        """Return who knows the same about another script."""
        return type(self)(script)

    def pay_for(self, node: ast.AST) -> None:
        pay(1, getattr(node, "lineno", None), self.script.path)

    def file(self) -> str | None:
        return self.script.path

    def on_name(self, node: ast.Name, at: int) -> Any:
        if at > DEEPEST:
            return self.unknown(node)
        bindings = self.script.scopes.reaching(node)
        if not bindings and node.id == "__file__":
            return str(Path(self.script.path).absolute())
        if not bindings:
            star = self._star(node.id)
            return Symbol(node.id) if star is None else star.module_value(node.id, at + 1)
        if any(_is_filled_later(self.script, node, binding) for binding in bindings):
            return self.unknown(node)
        return self.agreed([self.bound(binding, at + 1) for binding in bindings], node.id)

    def module_value(self, name: str, at: int) -> Any:
        """Return the value of a module-level constant of this script."""
        bindings = self.script.scopes.root.bindings.get(name, [])
        star = self._star(name) if not bindings and at < DEEPEST else None
        if star is not None:
            return star.module_value(name, at + 1)
        return self.agreed([self.bound(binding, at + 1) for binding in bindings], name)

    def _star(self, name: str) -> Self | None:
        """Return the asker of the module beside the script from which `import *` brings the name."""
        modules = (self.script.modules.get(star) for star in self.script.scopes.root.stars)
        return next((self.of(m) for m in modules if m is not None and name in m.scopes.root.bindings), None)

    def agreed(self, values: list[Any], name: str) -> Any:
        """Return what all ways to a name agree on; settings may be None before they are made."""
        if any(isinstance(value, Settings) for value in values):
            values = [value for value in values if value is not None]
        if not values or any(type(v) is not type(values[0]) or walked(v) != values[0] for v in values):
            return NotKnown(name)
        return values[0]

    def bound(self, binding: Binding, at: int) -> Any:
        """Return the value that one binding gives its name."""
        match binding:
            case Binding(kind="assign" | "with", value=ast.expr() as value):
                return self.value(value, at)
            case Binding(kind="unpack", node=ast.Assign(value=value)):  # args, unknown = parser.parse_known_args()
                made = self.value(value, at)
                return made if isinstance(made, Settings) else NotKnown(binding.name)
            case Binding(kind="import"):
                module, _, last = binding.target.rpartition(".")
                beside = self.script.modules.get(module)
                return Symbol(binding.target) if beside is None else self.of(beside).module_value(last, at + 1)
            case Binding(kind="parameter", node=ast.arg() as parameter):
                return self._parameter(parameter, at)
            case Binding(kind="definition", node=ast.ClassDef() as cls):
                return Settings(self.script, class_fields(cls))
        return NotKnown(binding.name)

    def _parameter(self, parameter: ast.arg, at: int) -> Any:
        """Return what every call of the function passes, or the default where nobody calls it here."""
        function = self.script.scopes.function_of(parameter)
        if function is None or isinstance(function, ast.Lambda):
            return NotKnown(parameter.arg)
        for each in function.decorator_list:
            if isinstance(each, ast.Call) and self.script.qualified(each.func) == "hydra.main":
                found = hydra_config(self.arguments(each, at + 1)[1], self.script.path)
                return NotKnown(parameter.arg) if found is None else found
        default = _default_of(function, parameter.arg)
        try:
            given = [value or default for value in passed_arguments(self.script, function, parameter.arg)]
        except Unfoldable:
            return NotKnown(parameter.arg)
        values = [NotKnown() if node is None else self.value(node, at + 1) for node in given or [default]]
        agreed = self.agreed(values, parameter.arg)
        if isinstance(agreed, NotKnown) and parameter.annotation is not None:
            annotation = self.value(parameter.annotation, at + 1)
            return annotation if isinstance(annotation, Settings) else agreed
        return agreed

    def on_attribute(self, node: ast.Attribute, at: int) -> Any:
        """Return what `config.NUM_ENVS`, `args.num_envs`, `Config.n_envs` or `self.n_envs` holds."""
        found = self._held(node, at + 1) if at <= DEEPEST else self.unknown(node)
        name = self.script.qualified(node) if isinstance(found, NotKnown) else None
        return found if name is None else Symbol(name)

    def _held(self, node: ast.Attribute, at: int) -> Any:
        module = self.script.modules.get(self.script.qualified(node.value) or "")
        if module is not None:
            return self.of(module).module_value(node.attr, at)
        stored = [s for target, s in attribute_stores(self.script, node.attr) if _same_owner(self.script, target, node)]
        if stored:
            once = stored[0]
            if len(stored) > 1 or not isinstance(once, ast.Assign | ast.AnnAssign) or once.value is None:
                return self.unknown(node)
            return self.value(once.value, at)
        owner = self.value(node.value, at)
        if isinstance(owner, Loaded) and node.attr in owner:
            return owner[node.attr]
        if isinstance(owner, FileRef):
            return self.member(owner, node)
        if not isinstance(owner, Settings) or node.attr not in owner.fields:
            return self.unknown(node)
        return self.of(owner.script).value(owner.fields[node.attr], at)

    def on_call(self, node: ast.Call, at: int) -> Any:
        if isinstance(node.func, ast.Attribute) and node.func.attr in _PARSED:
            return Settings(self.script, dict(options(self.script)))
        name = self.script.qualified(node.func) or ""
        if name in FUNCTIONS or name in ARRANGING or is_file_call(name):
            return self.apply(Symbol(name), *self.arguments(node, at), node)
        if name in _SETTINGS_MAKERS and node.args:
            return self.value(node.args[0], at + 1)
        if isinstance(node.func, ast.Attribute) and not name and at <= DEEPEST:
            found = self.method(self.value(node.func.value, at + 1), node.func.attr, node, at)
            if found is not None:
                return found
        own = self.script.definition(node.func)
        return self.unknown(node) if own is None or at > DEEPEST else self.own_call(*own, node, at + 1)

    def method(self, owner: Any, name: str, node: ast.Call, at: int) -> Any:
        """Return what a method of settings from a file, or of a path, returns; None where that is not known."""
        if isinstance(owner, FileRef):
            return file_method(owner, name, self.arguments(node, at)[0])
        if isinstance(owner, dict) and name == "get" and node.args:
            args, _ = self.arguments(node, at)
            key = args[0] if isinstance(args[0], str | int) else None
            return owner.get(key, args[1] if len(args) > 1 else None)
        return None

    def on_listcomp(self, node: ast.ListComp, at: int) -> Any:
        """Return as many unknown items as there are numbers in the range that the comprehension runs over."""
        numbers = range_of(self.script, node.generators[0].iter)
        if numbers is None or len(numbers) > LONGEST or len(node.generators) > 1 or node.generators[0].ifs:
            return self.unknown(node)
        return self.attempt(node, made, [self.unknown(node.elt)] * len(numbers))

    def own_call(self, other: Script, definition: Definition, node: ast.Call, at: int) -> Any:
        """Return the settings that a class or function of the folder makes."""
        if isinstance(definition, ast.ClassDef):
            given = {k.arg: k.value for k in node.keywords if k.arg is not None}
            hidden = node.args or len(given) < len(node.keywords)
            if hidden or (given and other is not self.script):
                return self.unknown(node)
            return Settings(other, class_fields(definition) | given)
        returned = [n.value for n in walk(definition) if isinstance(n, ast.Return) and n.value is not None]
        made = self.of(other).value(returned[0], at) if len(returned) == 1 else None
        return made if isinstance(made, Settings) else self.unknown(node)


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


def passed_arguments(
    script: Script, function: ast.FunctionDef | ast.AsyncFunctionDef, name: str
) -> Iterator[ast.expr | None]:
    """Yield per call of `function` in its script what it passes as `name`; None where it leaves the default.

    Raises:
        Unfoldable: the function is also used otherwise than called, or called with * or **.
    """
    order = [p.arg for p in (*function.args.posonlyargs, *function.args.args)]
    called: ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef = function
    parent = script.scopes.parents.get(id(function))
    if isinstance(parent, ast.ClassDef):
        if function.name != "__init__":
            raise Unfoldable("a method")
        called, order = parent, order[1:]
    if function.decorator_list:
        raise Unfoldable("decorated")
    position = order.index(name) if name in order else None
    for use in script.scopes.scope_of(called).uses.get(called.name, ()):
        match script.scopes.parents.get(id(use)):
            case ast.Call(func=callee) as call if callee is use:
                if has_hidden_arguments(call):
                    raise Unfoldable(called.name)
                yield argument(call, name, position)
            case ast.ClassDef():
                pass
            case _ if not _is_annotation(script, use):
                raise Unfoldable(called.name)


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


def attribute_stores(script: Script, attribute: str) -> Iterator[tuple[ast.Attribute, ast.stmt | None]]:
    """Yield (target, statement) where an attribute of that name is assigned or deleted."""
    stores = script.stores.get(attribute, ())
    pay(len(stores) + 1)
    for node in stores:
        yield node, script.scopes.statement_of(node)


def _same_owner(script: Script, target: ast.Attribute, node: ast.Attribute) -> bool:
    """Return whether `target` (self.x or args.x) is on the same object as `node`, by the way it is written."""
    if dotted(target.value) != dotted(node.value):
        return False
    return dotted(node.value) != "self" or script.scopes.class_of(target) is script.scopes.class_of(node)


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
