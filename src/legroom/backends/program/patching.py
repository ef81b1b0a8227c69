"""A program's own source with savings attached by a line at its top, as a patch and as something to rehearse.

The line is `legroom.attach(...)`, the same hooks that `legroom train --with` uses, so that what was rehearsed is what
the patch does; where only variables of the environment are needed, it sets these and does without legroom.
"""

from __future__ import annotations

import ast
import codecs
import difflib
import io
import json
import os
import re
import shutil
import subprocess
import tokenize
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from legroom.backends.base import all_attachments
from legroom.errors import BadInput
from legroom.machine.temporary_folder import temporary_folder

_ATTACH = re.compile(r"legroom\.attach\(")
# Runs the changed source in place of the file that it belongs to; the file itself stays as it is.
_LAUNCHER = """
import sys
path, module, source = {path!r}, {module!r}, {source!r}
here = {{"__name__": "__main__", "__file__": path, "__builtins__": __builtins__}}
if module:
    import importlib.util
    sys.path[0] = {cwd!r}
    spec = importlib.util.find_spec(module)
    here.update(__spec__=spec, __package__=spec.parent)
else:
    sys.path[0] = {folder!r}
sys.argv[0] = {argument!r}
main = sys.modules["__main__"]
vars(main).update(here)
exec(compile(source, path, "exec"), vars(main))
"""


@dataclass(frozen=True)
class Source:
    """The file of a program that runs first, and where its name stands in the command.

    Args:
        words: of the command that name it: one, or two for `-m package.module`.
        module: its name where it is run with -m.
    """

    path: Path
    at: int
    words: int = 1
    module: str = ""


@dataclass(frozen=True)
class Patch:
    """A changed file, not written."""

    source: Source
    before: bytes
    after: bytes

    @property
    def diff(self) -> bytes:
        """Return it as a unified diff that `git apply` takes, with the path that git knows the file by."""
        name = _path_for_git(self.source.path)
        name += b"\t" if b" " in name else b""  # where a name ends that has spaces
        lines = difflib.diff_bytes(
            difflib.unified_diff, _lines(self.before), _lines(self.after), b"a/" + name, b"b/" + name, lineterm=b"\n"
        )
        return b"".join(line if line.endswith(b"\n") else line + b"\n\\ No newline at end of file\n" for line in lines)

    def write(self) -> None:
        """Write the changed file in place of the old one, with its permissions, or not at all.

        Raises:
            BadInput: it cannot be written, or has changed since it was read.
        """
        path = self.source.path.resolve()
        beside = path.with_name(f".{path.name}.legroom-{os.getpid()}")
        try:
            if path.read_bytes() != self.before:
                raise BadInput(f"{path} has changed while the patch was tried", hint="give the command again")
            beside.write_bytes(self.after)
            shutil.copymode(path, beside)
            beside.replace(path)
        except OSError as error:
            beside.unlink(missing_ok=True)
            raise BadInput(f"{path} cannot be written: {error.strerror}", hint="--patch alone prints it") from None

    @contextmanager
    def command(self, command: Sequence[str]) -> Iterator[list[str]]:
        """Yield the command that runs the changed source while the file on disk is the old one."""
        source = self.source
        text = _LAUNCHER.format(
            path=str(source.path), module=source.module, source=self.after, cwd=str(Path.cwd()),
            folder=str(source.path.parent), argument=str(source.path) if source.module else command[source.at],
        )  # fmt: skip
        with temporary_folder("patched") as folder:
            launcher = folder / source.path.name
            launcher.write_text(text)
            yield [*command[: source.at], str(launcher), *command[source.at + source.words :]]


def source_of(command: Sequence[str], wanted: Sequence[str]) -> Source:
    """Return the file of the user's that the command runs.

    Args:
        wanted: what would be attached, for the edit that is asked for otherwise.

    Raises:
        BadInput: there is none that could be edited: an installed package, or code in the command line itself.
    """
    for at, word in enumerate(command):
        if word == "-m" and at + 1 < len(command):
            parts = Path(*command[at + 1].split("."))
            for path in (parts.with_suffix(".py"), parts / "__main__.py"):
                if path.is_file():
                    return Source(path.resolve(), at, 2, command[at + 1])
            raise _cannot(f"{command[at + 1]} is not a module in this folder", wanted)
        if word.endswith(".py") and Path(word).is_file():
            return Source(Path(word).resolve(), at)
    raise _cannot("the command names no Python file", wanted)


def patch_for(source: Source, wanted: Sequence[str]) -> Patch:
    """Return the file with the savings attached.

    Args:
        wanted: as after `--with`; names that are attached anyway may be among them.

    Raises:
        BadInput: it cannot be read, or has no line of its own to put the edit before.
    """
    try:
        before = source.path.read_bytes()
        encoding, _ = tokenize.detect_encoding(io.BytesIO(before).readline)
        tree = ast.parse(before)
    except (OSError, SyntaxError, ValueError) as error:
        raise _cannot(f"{source.path.name} cannot be read ({error})", wanted) from None
    if b"\r" in before.replace(b"\r\n", b""):
        raise _cannot(f"{source.path.name} has carriage returns alone, which git does not take as line ends", wanted)
    mark = codecs.BOM_UTF8 if before.startswith(codecs.BOM_UTF8) else b""
    lines = _lines(before.removeprefix(mark))
    newline = b"\r\n" if lines and lines[0].endswith(b"\r\n") else b"\n"
    old = _attached_already(tree)
    if old is not None:
        first, last, edit = old.lineno - 1, old.end_lineno or old.lineno, [_call(wanted)]
    else:
        first = last = _first_line(tree, source, wanted)
        edit = _edit(wanted)
    new = [line.encode(encoding.removesuffix("-sig")) + newline for line in edit]
    if first >= len(lines) and lines and not lines[-1].endswith(b"\n"):
        lines[-1] += newline
    return Patch(source, before, mark + b"".join([*lines[:first], *new, *lines[last:]]))


def _first_line(tree: ast.Module, source: Source, wanted: Sequence[str]) -> int:
    """Return the index of the line that the edit goes before: behind the docstring and `from __future__`."""
    behind = 0
    for number, statement in enumerate(tree.body):
        decorators: list[ast.expr] = getattr(statement, "decorator_list", [])
        first = min([statement.lineno, *(each.lineno for each in decorators)])
        is_docstring = number == 0 and isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Constant)
        is_future = isinstance(statement, ast.ImportFrom) and statement.module == "__future__"
        if not (is_docstring or is_future):
            if first <= behind:
                raise _cannot(f"{source.path.name}:{first} has two statements in one line", wanted)
            return first - 1
        behind = statement.end_lineno or statement.lineno
    return behind


def _attached_already(tree: ast.Module) -> ast.stmt | None:
    """Return the statement of an earlier patch."""
    for statement in tree.body:
        if isinstance(statement, ast.Expr) and _ATTACH.match(ast.unparse(statement)):
            return statement
    return None


def _edit(wanted: Sequence[str]) -> list[str]:
    """Return the lines to put in."""
    known = {one.name: one for one in all_attachments()}
    mine = [known[word.partition("=")[0]] for word in wanted]
    if mine and all(one.variables and not one.hooks for one in mine):
        variables = [(name, value) for one in mine for name, value in one.variables.items()]
        return ["import os", "", *(f'os.environ.setdefault("{name}", "{value}")' for name, value in variables), ""]
    return ["import legroom", "", _call(wanted), ""]


def _call(wanted: Sequence[str]) -> str:
    words = [word for word in wanted if word.partition("=")[0] not in _free()]
    return f"legroom.attach({', '.join(json.dumps(word) for word in words)})  # less memory; before torch is imported"


def _free() -> set[str]:
    return {one.name for one in all_attachments() if one.price == "free"}


def _cannot(why: str, wanted: Sequence[str]) -> BadInput:
    edit = "; ".join(line for line in _edit(wanted) if line)
    return BadInput(f"--patch: {why}", hint=f"put this at the start of your program: {edit}")


def _lines(content: bytes) -> list[bytes]:
    """Return the lines as diff and git count them: by line feeds alone."""
    return re.findall(rb"[^\n]*\n|[^\n]+$", content)


def _path_for_git(path: Path) -> bytes:
    """Return the path from the top of its repository, or from here where there is none."""
    folder = path.parent
    try:
        told = subprocess.run(
            ["git", "rev-parse", "--show-toplevel"], cwd=folder, capture_output=True, check=False, timeout=10
        )
        top = Path(os.fsdecode(told.stdout.rstrip(b"\n"))) if told.returncode == 0 else Path.cwd()
    except (OSError, subprocess.TimeoutExpired):
        top = Path.cwd()
    return os.fsencode(os.path.relpath(path.resolve(), top.resolve()))
