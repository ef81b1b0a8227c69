"""Constants of a program: numbers that it assigns to a name once, which a search may set while the program runs.

They are read from the source of the script and of the modules beside it that it imports; nothing is executed. A
rehearsal sets them from outside (`legroom.hollow.setting_constants`); no file is changed.
"""

from __future__ import annotations

import ast
import json
import shlex
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path

from legroom.errors import LegroomError
from legroom.hollow.setting_constants import VARIABLE
from legroom.model.program_plan import Constant, Number
from legroom.reading.constants import CONFIG_CLASSES, MAIN_FUNCTIONS, NAMES, SIZE_WORDS
from legroom.reading.interpreter.script import read_script
from legroom.reading.source import module_file

# what memory follows, and so what is worth a search; the others (learning rate, seed, ...) can be set as well
_SIZES = ("n_envs", "n_steps", "batch_size", "buffer_size", "frame_stack")
MOST_OFFERED, SMALLEST_SHARE = 4, 8


def constants_of(command: Sequence[str]) -> dict[str, Constant]:
    """Return the constants of a program by name; the script's own come before those of modules beside it."""
    found: dict[str, Constant] = {}
    script = _script(command)
    if script is None:
        return found
    try:
        read = read_script(script.read_text(encoding="utf-8"), str(script))
    except (OSError, ValueError, LegroomError):  # a program that cannot be read can be run all the same
        return found
    for each in read.followed:
        for one in _of_code(each.tree.body, str(Path(each.path).resolve())):
            found.setdefault(one.name, one)
    return found


def _script(command: Sequence[str]) -> Path | None:
    """Return the file that a command line runs: the first script in it, or the module after `-m`."""
    for at, word in enumerate(command):
        if word.endswith(".py") and Path(word).is_file():
            return Path(word)
        if word == "-m" and at + 1 < len(command):
            found = module_file(command[at + 1], Path())
            if found is not None:
                return found
    return None


def _of_code(
    body: Sequence[ast.stmt], file: str, scope: str = "<module>", begins: tuple[int, int] = (0, 1)
) -> Iterator[Constant]:
    for statement in body:
        match statement:
            case (
                ast.Assign(targets=[ast.Name(id=name)], value=value)
                | ast.AnnAssign(target=ast.Name(id=name), value=ast.expr() as value)
            ):
                number = _number(value)
                local = scope in MAIN_FUNCTIONS and not name.isupper()  # a variable of the function
                if number is not None and not local:
                    yield Constant(name, number, file, statement.lineno, statement.end_lineno or 0, scope, begins)
            case ast.ClassDef(name=name) if name.lower().endswith(CONFIG_CLASSES):
                yield from _of_code(statement.body, file, name, _begins(statement))
            case ast.FunctionDef(name=name) if name in MAIN_FUNCTIONS:
                yield from _of_code(statement.body, file, name, _begins(statement))
            case ast.If(body=inner) if scope == "<module>":  # if __name__ == "__main__":
                yield from _of_code(inner, file)


def _begins(definition: ast.ClassDef | ast.FunctionDef) -> tuple[int, int]:
    return min([definition.lineno, *(each.lineno for each in definition.decorator_list)]), definition.lineno


def _number(value: ast.expr) -> Number | None:
    """Return the positive number that an expression of numbers alone makes, as `64 * 1024`."""
    match value:
        case ast.Constant(value=bool()):
            return None
        case ast.Constant(value=int() | float() as number) if 0 < number < 1 << 62:
            return number
        case ast.BinOp(left=left, op=ast.Mult(), right=right):
            parts = _number(left), _number(right)
            return None if parts[0] is None or parts[1] is None else parts[0] * parts[1]
    return None


def setting(values: Mapping[str, tuple[Constant, Number]], base: Mapping[str, str]) -> dict[str, str]:
    """Return the environment in which a rehearsed program has these values in place of its constants."""
    wanted = [{**asdict(constant), "value": value} for constant, value in values.values()]
    return {**base, **({VARIABLE: json.dumps(wanted)} if wanted else {})}


def offered(command: Sequence[str], budget: str) -> Iterator[str]:
    """Yield commands that search for the largest size that fits, one for each constant that looks like a size."""
    sizes = [each for each in constants_of(command).values() if _is_size(each)]
    for each in sorted(sizes, key=_rank)[:MOST_OFFERED]:
        low = max(int(each.value) // SMALLEST_SHARE, 1)
        given = f"{budget} " if budget else ""
        yield f"legroom fit {given}--param {each.name}={low}..{each.value} -- {shlex.join(command)}"


def _is_size(one: Constant) -> bool:
    named = NAMES.get(one.name.lower(), ("",))[-1]
    is_named = named in _SIZES or any(word in one.name.lower() for word in SIZE_WORDS)
    return is_named and isinstance(one.value, int) and one.value > 1


def _rank(one: Constant) -> int:
    """Return where a size stands: the most direct ones first."""
    named = NAMES.get(one.name.lower(), ("",))[-1]
    return ("batch_size", "n_envs", "n_steps", "buffer_size").index(named) if named in _SIZES[:4] else len(_SIZES)
