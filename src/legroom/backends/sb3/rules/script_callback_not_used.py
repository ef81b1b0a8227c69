"""LR050: a callback that is made but never handed to anything."""

import ast
import re
from collections.abc import Iterable, Iterator

from legroom.backends.sb3.script_calls import callback_name, learn_calls
from legroom.checking.rule_helpers import per_script
from legroom.model.rule import Fix, Found, Rule
from legroom.reading.interpreter.scopes import Binding, Scope
from legroom.reading.interpreter.script import Script, argument, has_hidden_arguments
from legroom.reading.source import walk

# a list that is only added to is not used
_ADDING = ("append", "extend", "insert")
_HIDDEN_USES = ("globals", "locals", "vars", "eval", "exec")


def look(script: Script) -> Iterable[Found]:
    if not any(True for _ in learn_calls(script)):
        return  # a module that only makes callbacks hands them to others
    if any(script.qualified(call.func) in _HIDDEN_USES for call in script.calls):
        return
    unused = [(scope, binding) for scope in script.scopes.all for binding in _unused(script, scope)]
    for index, (scope, binding) in enumerate(unused):
        what = _callback(script, binding.value) or "list of callbacks"
        names = [b.name for s, b in unused if s is scope]
        first = index == 0 or unused[index - 1][0] is not scope
        yield Found(
            f"{binding.name} ({what}) is created but never passed to learn(), so it never runs",
            hint=f"learn(..., callback=[..., {binding.name}]), or add it to the CallbackList",
            line=getattr(binding.node, "lineno", None),
            fix=_fix(script, scope, binding, names) if first else None,
        )
    yield from _dropped(script)
    yield from _attributes(script)


def _unused(script: Script, scope: Scope) -> Iterator[Binding]:
    """Yield callbacks (and lists of them) bound in `scope` to a name that nobody reads."""
    if isinstance(scope.node, ast.ClassDef):
        return
    for name, bindings in scope.bindings.items():
        if name.startswith("_") or any(b.kind != "assign" for b in bindings):
            continue
        if not all(_callback(script, b.value) or _is_list_of_callbacks(script, b.value) for b in bindings):
            continue
        if scope is script.scopes.root and any(_mentions(text, name) for text in script.importers):
            continue  # another file may import it
        if not any(_counts(script, use) for use in scope.uses.get(name, ())):
            yield bindings[-1]


def _callback(script: Script, node: ast.expr | None) -> str | None:
    return callback_name(script, node.func) if isinstance(node, ast.Call) else None


def _is_list_of_callbacks(script: Script, node: ast.expr | None) -> bool:
    """Return whether `node` is a list literal that holds at least one callback and nothing else."""
    if not isinstance(node, ast.List) or not node.elts:
        return False
    for item in node.elts:
        if isinstance(item, ast.Name):
            bindings = script.scopes.reaching(item)
            if len(bindings) != 1 or not _callback(script, bindings[0].value):
                return False
        elif not _callback(script, item):
            return False
    return True


def _counts(script: Script, use: ast.Name) -> bool:
    """Return whether a load of the name can lead to the callback being run."""
    parent = script.scopes.parents.get(id(use))
    if isinstance(parent, ast.Call) and script.qualified(parent.func) == "print":
        return False
    if isinstance(parent, ast.Attribute) and parent.attr in _ADDING:
        return False
    return not isinstance(parent, ast.Expr)  # a notebook cell that shows it


def _mentions(text: str, name: str) -> bool:
    return re.search(rf"\b{re.escape(name)}\b", text) is not None


def _dropped(script: Script) -> Iterator[Found]:
    """A callback made as a statement of its own and thrown away at once."""
    for node in script.nodes:
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Call):
            what = callback_name(script, node.value.func)
            if what is not None:
                yield Found(f"{what} is created and discarded", "pass it to learn(callback=...)", node.lineno)


def _attributes(script: Script) -> Iterator[Found]:
    """`self.eval_callback = EvalCallback(...)` where the attribute is mentioned nowhere else, here or beside."""
    for node in script.nodes:
        if not (isinstance(node, ast.Assign) and len(node.targets) == 1 and isinstance(node.targets[0], ast.Attribute)):
            continue
        target, what = node.targets[0], _callback(script, node.value)
        if what is None or not (isinstance(target.value, ast.Name) and target.value.id == "self"):
            continue
        cls = script.scopes.class_of(node)
        learns = cls is not None and any(
            isinstance(n, ast.Call) and isinstance(n.func, ast.Attribute) and n.func.attr == "learn" for n in walk(cls)
        )
        mentioned = len(re.findall(rf"\b{re.escape(target.attr)}\b", script.text))
        if learns and mentioned == 1 and not any(_mentions(text, target.attr) for text in script.importers):
            yield Found(
                f"self.{target.attr} ({what}) is created but never passed to learn(), so it never runs",
                f"learn(..., callback=[..., self.{target.attr}])", node.lineno,
            )  # fmt: skip


def _fix(script: Script, scope: Scope, binding: Binding, names: list[str]) -> Fix | None:
    """Return the change that hands the callbacks on, where one learn() call of the same scope shows how."""
    learns = [call for call in learn_calls(script) if script.scopes.scope_of(call) is scope]
    made_at = getattr(binding.node, "lineno", 0)
    if len(learns) != 1 or has_hidden_arguments(learns[0]) or learns[0].lineno <= made_at:
        return None
    added = ", ".join(names)
    given = argument(learns[0], "callback", 1)
    if given is None:
        arguments = [*learns[0].args, *(k.value for k in learns[0].keywords)]
        text = f", callback={added if len(names) == 1 else f'[{added}]'}"
        return _insert(script, max(arguments, key=_end), text, added) if arguments else None
    listed: ast.expr | None = given
    if isinstance(given, ast.Name):
        bindings = script.scopes.reaching(given)
        listed = bindings[0].value if len(bindings) == 1 and bindings[0].kind == "assign" else None
        what = _callback(script, listed)
        if isinstance(listed, ast.Call) and what == "CallbackList":
            listed = argument(listed, "callbacks", 0)
        elif what:
            line, column = given.lineno, script.column(given.lineno, given.col_offset)
            end = script.column(*_end(given))
            return Fix(f"pass {added} to learn()", line, column, line, end, f"[{given.id}, {added}]")
    if isinstance(listed, ast.List) and listed.elts and listed.lineno > made_at:
        return _insert(script, listed.elts[-1], f", {added}", added)
    return None


def _insert(script: Script, after: ast.expr, text: str, added: str) -> Fix:
    line, byte_column = _end(after)
    column = script.column(line, byte_column)
    return Fix(f"pass {added} to learn()", line, column, line, column, text)


def _end(node: ast.expr) -> tuple[int, int]:
    return node.end_lineno or node.lineno, node.end_col_offset or 0


RULE = Rule(
    code="LR050",
    name="callback-not-used",
    severity="warning",
    what="A callback is created but never passed to learn().",
    why=(
        "SB3 runs only the callbacks that learn() is given. An EvalCallback that is missing from the CallbackList "
        "evaluates nothing and keeps no best model, and nothing says so."
    ),
    example=(
        "eval_callback = EvalCallback(eval_env)\n"
        "callback_list = CallbackList([checkpoint_callback])\n"
        "model.learn(1_000_000, callback=callback_list)\n"
    ),
    remedy="Add it: CallbackList([checkpoint_callback, eval_callback]).",
    look=per_script(look),
)
