"""LR063: settings that no script reads."""

from __future__ import annotations

import ast
import os
import re
from collections.abc import Iterable, Iterator
from pathlib import Path

from legroom.checking.rule_helpers import per_script
from legroom.model.rule import Found, Rule
from legroom.reading.constants import NAMES
from legroom.reading.interpreter.script import Script, argument, importers_of
from legroom.reading.source import walk

MOST_FILES = 300  # of a project that are searched; in a larger one nobody can be sure
MOST_ENTRIES = 20_000  # files of any kind that are passed by on the way
_NOT_OURS = ("node_modules", "venv", "site-packages", "build", "dist")
MOST_HANDS = 3  # functions that hand the arguments on under another name
LEAST_CONSTANTS = 3  # that make a module a module of constants
_WHOLE = re.compile(r"\b(getattr|setattr|globals|locals|exec|eval)\s*\(|__dict__|_get_kwargs")
# settings that memory or the length of the training depend on
_WEIGHTY = ("n_envs", "n_steps", "batch_size", "buffer_size", "total_timesteps", "frame_stack", "num_minibatches",
            "learning_starts", "train_freq", "gradient_steps", "target_update_interval", "n_epochs")  # fmt: skip
# writing all settings down is no use of any
_WRITES_DOWN = ("add_text", "add_hparams", "init", "print", "log", "info", "dump", "dumps", "pprint")


def look(script: Script) -> Iterable[Found]:
    yield from _unread_constants(script)
    yield from _unread_options(script)


# -- constants of a module -------------------------------------------------------------------------------------------


def _unread_constants(script: Script) -> Iterator[Found]:
    constants = _constants(script)
    if len(constants) < LEAST_CONSTANTS:
        return
    importing = _readers(script)
    if not importing:
        return
    module = re.escape(Path(script.path).stem)
    # the module handed on or searched as a whole: then any name may be read
    alias = rf"\b(?:{module}|{'|'.join(_aliases(importing, module)) or module})\b"
    whole = (
        rf"(getattr|vars|dir|setattr|hasattr|reload)\(\s*{alias}|{alias}\.__dict__|[(,=:]\s*{alias}\s*[,)\n]|importlib"
    )
    if any(re.search(whole, text) for text in importing):
        return
    everything = "\n".join(importing)
    for name, line in constants:
        if not script.scopes.root.uses.get(name) and not re.search(rf"\b{re.escape(name)}\b", everything):
            yield Found(f"no script reads {name}", "remove it, or use it where it was meant to work", line)


def _constants(script: Script) -> list[tuple[str, int]]:
    """Return (name, line) of the constants if the module holds nothing else; an empty list otherwise."""
    found: list[tuple[str, int]] = []
    for statement in script.tree.body:
        match statement:
            case ast.Assign(targets=[ast.Name(id=name)]) | ast.AnnAssign(target=ast.Name(id=name), value=ast.expr()):
                if (name.isupper() or name.lower() in NAMES) and _is_setting(statement.value):
                    found.append((name, statement.lineno))
            case ast.Import() | ast.ImportFrom() | ast.If() | ast.Assert() | ast.AnnAssign() | ast.Assign():
                pass
            case ast.Expr(value=ast.Constant()):
                pass
            case _:
                return []
    return [] if "__all__" in script.scopes.root.bindings else found


def _is_setting(node: ast.expr | None) -> bool:
    """Return whether a value is one that people tune: a number, a name, a few of them; no table of data."""
    return not isinstance(node, ast.Dict | ast.List | ast.Set | ast.Tuple) or len(list(walk(node))) < 24


def _aliases(texts: list[str], module: str) -> list[str]:
    found = (re.findall(rf"\b{module}\s+as\s+(\w+)", text) for text in texts)
    return [re.escape(alias) for aliases in found for alias in aliases]


def _readers(script: Script) -> list[str]:
    """Return the texts of the project's files that may read a constant; none when they are too many to be sure."""
    own = Path(script.path)
    files: list[Path] = []
    try:
        root = own.resolve().parent
        if (root / "__init__.py").is_file():
            return []  # part of a package, whose users may be anywhere
        entries = 0
        for folder, folders, names in os.walk(root):
            folders[:] = [f for f in folders if not f.startswith((".", "__")) and f not in _NOT_OURS]
            entries += len(folders) + len(names)
            files += [Path(folder, n) for n in names if n.endswith((".py", ".ipynb"))]
            if len(files) > MOST_FILES or entries > MOST_ENTRIES:
                return []
        files = [file for file in files if file.resolve() != own.resolve()]
    except (OSError, ValueError):
        return []
    return [text for _, text in importers_of(own.stem, files)]


# -- options of a parser ---------------------------------------------------------------------------------------------


def _unread_options(script: Script) -> Iterator[Found]:
    if any(_WHOLE.search(s.text) for s in script.followed) or not _only_attributes(script):
        return
    attributes = {n.attr for s in script.followed for n in s.nodes if isinstance(n, ast.Attribute)}
    strings = {n.value for s in script.followed for n in s.nodes if isinstance(n, ast.Constant)}
    for name, shown, line in (*_options(script), *_fields(script)):
        if name not in attributes and name not in strings and not any(_reads(t, name) for t in script.importers):
            # a switch for a video is soon forgotten; a size that changes nothing misleads
            weighty = NAMES.get(name.lower(), ("",))[-1] in _WEIGHTY
            yield Found(
                f"{shown} is parsed but never read", f"use args.{name}, or remove it", line,
                severity=None if weighty else "info",
            )  # fmt: skip


def _options(script: Script) -> Iterator[tuple[str, str, int]]:
    """Yield (attribute, option, line) of the options of an argparse parser."""
    for call in script.calls if script.imports("argparse") else ():
        if not (isinstance(call.func, ast.Attribute) and call.func.attr == "add_argument"):
            continue
        flags = [a.value for a in call.args if isinstance(a, ast.Constant) and isinstance(a.value, str)]
        flag = next((f for f in flags if f.startswith("--")), None)
        if flag is not None and argument(call, "dest") is None and _is_plain(argument(call, "action")):
            yield flag.lstrip("-").replace("-", "_"), flag, call.lineno


def _fields(script: Script) -> Iterator[tuple[str, str, int]]:
    """Yield (attribute, field, line) of the classes that `tyro.cli(Args)` makes options of."""
    for call in script.calls_of("tyro.cli"):
        definition = script.definition(call.args[0]) if call.args else None
        if definition is None or definition[0] is not script or not isinstance(definition[1], ast.ClassDef):
            continue
        for statement in definition[1].body:
            if isinstance(statement, ast.AnnAssign) and isinstance(statement.target, ast.Name):
                yield statement.target.id, f"{definition[1].name}.{statement.target.id}", statement.lineno


def _is_plain(action: ast.expr | None) -> bool:
    return action is None or (
        isinstance(action, ast.Constant) and action.value in ("store", "store_true", "store_false")
    )


def _reads(text: str, name: str) -> bool:
    return re.search(rf"\.{re.escape(name)}\b", text) is not None


def _only_attributes(script: Script) -> bool:
    """Return whether parsed arguments are only read by attribute, or handed to functions that the folder shows."""
    parsing = [call for call in script.calls if _parser(script, call)]
    if not parsing or any(_parser(script, call) == "parse_known_args" for call in parsing):
        return False
    names = {"args"}
    for call in parsing:
        match script.scopes.parents.get(id(call)):
            case ast.Assign(targets=[ast.Name(id=name), *_]):
                names.add(name)
            case ast.Return() | ast.Attribute():
                pass
            case _ if not _goes_to_own(script, call):
                return False
        if not _is_called_here(script, call):
            return False
    _add_parameters(script, names)
    # a module that gets them may hand them on to one that is not there
    return all(_stays_in_sight(each, node, names) for each in script.followed for node in each.nodes)


def _add_parameters(script: Script, names: set[str]) -> None:
    """Add the parameters of the script's own functions that get the arguments: `run(args)` of `def run(cfg)`."""
    for _ in range(MOST_HANDS):
        before = len(names)
        for call in script.calls:
            definition = script.definition(call.func)
            if definition is None or isinstance(definition[1], ast.ClassDef):
                continue
            parameters = [each.arg for each in definition[1].args.args]
            given = [(name, each) for name, each in zip(parameters, call.args, strict=False)]
            given += [(keyword.arg, keyword.value) for keyword in call.keywords if keyword.arg is not None]
            names |= {name for name, each in given if isinstance(each, ast.Name) and each.id in names}
        if len(names) == before:
            return


def _is_called_here(script: Script, call: ast.Call) -> bool:
    """Return whether the function around a call of a parser is called in this file; others may read what it returns."""
    function = script.scopes.function_of(call)
    if not isinstance(function, ast.FunctionDef | ast.AsyncFunctionDef):
        return True
    names = {n.id for n in script.nodes if isinstance(n, ast.Name)} | {
        n.attr for n in script.nodes if isinstance(n, ast.Attribute)
    }
    return function.name in names


def _parser(script: Script, call: ast.Call) -> str | None:
    """Return the function with which a call parses the command line; None for other calls."""
    name = "tyro.cli" if script.qualified(call.func) == "tyro.cli" else getattr(call.func, "attr", None)
    return name if name in ("tyro.cli", "parse_args", "parse_known_args") else None


def _stays_in_sight(script: Script, node: ast.AST, names: set[str]) -> bool:
    """Return whether `node`, if it is one of the parsed arguments as a whole, goes only where reading it is seen."""
    match node:
        case ast.Name(id=name, ctx=ast.Load()) | ast.Attribute(attr=name, ctx=ast.Load()) if name in names:
            pass
        case _:
            return True
    match script.scopes.parents.get(id(node)):
        case ast.Attribute() | ast.Return():
            return True
        case ast.Assign(targets=[ast.Name(id=name) | ast.Attribute(attr=name), *_]) if name in names:
            return True
    return _is_written_down(script, node) or _goes_to_own(script, node)


def _is_written_down(script: Script, node: ast.AST) -> bool:
    """Return whether `args` or `vars(args)` only goes into a log."""
    for ancestor in script.scopes.ancestors(node):
        if isinstance(ancestor, ast.stmt):
            return False
        if isinstance(ancestor, ast.Call):
            name = ancestor.func.attr if isinstance(ancestor.func, ast.Attribute) else getattr(ancestor.func, "id", "")
            if name in _WRITES_DOWN:
                return True
    return False


def _goes_to_own(script: Script, node: ast.AST) -> bool:
    """Return whether `node` is an argument of a function or class of the folder, whose code then shows what is read."""
    parent = script.scopes.parents.get(id(node))
    if isinstance(parent, ast.keyword):
        parent = script.scopes.parents.get(id(parent))
    return isinstance(parent, ast.Call) and script.definition(parent.func) is not None


RULE = Rule(
    code="LR063",
    name="unused-key",
    severity="warning",
    what="A constant of a settings module, or an option of the command line, is read by no script.",
    why="Changing it changes nothing. Memory settings of that kind are the worst: one lowers them, and it still fails.",
    example='parser.add_argument("--buffer-size", type=int, default=100_000)  # args.buffer_size is never read\n',
    remedy="Pass it on, or remove it.",
    look=per_script(look),
)
