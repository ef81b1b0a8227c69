"""Commands as classes: each field is an argument or an option, declared once, and `parse` fills an object with them.

    class Export(Command):
        \"\"\"What `--help` prints.\"\"\"

        directory: Path = argument("DIR", "A run's folder.")
        force: bool = option("Overwrite what is there.")

The annotation says what a value is: a text, a number, a path, one of a `Literal`, a flag, or a list of any of these.
Own and small: typer took a third of the time of `--help`, and neither its help nor its completion could be used.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from difflib import get_close_matches
from importlib import import_module
from types import NoneType
from typing import Any, ClassVar, Literal, TypeVar, get_args, get_origin, get_type_hints

from legroom.errors import BadInput

WHAT, BUDGET, CLUSTER, OUTPUT = "What", "Budget", "Cluster", "Output"
REQUIRED: Any = object()
SCIENTIFIC = re.compile(r"\d+(\.\d+)?[eE]\+?\d{1,2}")


class UsageError(Exception):
    """What was typed is no use of the command; the text says why."""


@dataclass(frozen=True)
class Option:
    """An argument (without names) or an option of a command."""

    help: str
    names: tuple[str, ...] = ()
    metavar: str = ""  # what stands for the value; empty where the choices do
    group: str = WHAT
    default: Any = None
    rare: bool = False  # only `--help-all` lists it
    least: int | None = None  # a number's range
    most: int | None = None
    alone: str = ""  # the value of an option that is written without one
    off: str = ""  # the name that turns a flag off
    field: str = ""  # from the annotation
    kind: type = str
    choices: tuple[str, ...] = ()
    many: bool = False

    @property
    def is_flag(self) -> bool:
        return self.kind is bool

    def declared(self, field: str, hint: Any) -> Option:
        """Return the option with what its field's name and annotation say."""
        kinds = [each for each in get_args(hint) if each is not NoneType]
        if get_origin(hint) is Literal or not kinds:
            kinds = [hint]
        choices = get_args(kinds[0]) if get_origin(kinds[0]) is Literal else ()
        many = get_origin(hint) is list
        default = self.default
        if default is None and (many or kinds[0] is bool):
            default = [] if many else False
        names = self.names or (f"--{field.replace('_', '-')}",)
        return replace(
            self, names=() if self.names == ARGUMENT else names, default=default, field=field,
            kind=str if choices else kinds[0], choices=choices, many=many,
        )  # fmt: skip

    def read(self, text: str, name: str) -> Any:
        """Return the value that a text stands for.

        Raises:
            UsageError: it stands for none.
        """
        if self.choices and text not in self.choices:
            known = ", ".join(map(repr, self.choices))
            raise UsageError(f"Invalid value for '{name}': {text!r} is not one of {known}.")
        if self.kind is int and SCIENTIFIC.fullmatch(text) and float(text).is_integer():
            return int(float(text))
        try:
            value = self.kind(text)
        except ValueError:
            kind = "integer" if self.kind is int else "float"
            raise UsageError(f"Invalid value for '{name}': {text!r} is not a valid {kind}.") from None
        if self.least is not None and not self.least <= value <= (self.most if self.most is not None else value):
            allowed = f"x>={self.least}" if self.most is None else f"{self.least}<=x<={self.most}"
            raise UsageError(f"Invalid value for '{name}': {value} is not in the range {allowed}.")
        return value


ARGUMENT = ("",)


def option(help: str, *names: str, **more: Any) -> Any:
    """Declare an option; its name follows from its field's where none is given."""
    return Option(help, names, **more)


def argument(metavar: str, help: str, default: Any = REQUIRED) -> Any:
    return Option(help, ARGUMENT, metavar, default=default)


class Command:
    """The options that a command was given, under the names of its fields."""

    module: ClassVar[str] = ""  # its `run` carries the command out

    def __init__(self, **given: Any) -> None:
        for each in options_of(type(self)):
            setattr(self, each.field, given.get(each.field, each.default))


Given = TypeVar("Given", bound=Command)


def options_of(command: type[Command]) -> tuple[Option, ...]:
    """Return the arguments and options of a command, its own before those that it shares."""
    hints, found = get_type_hints(command), {}
    for each in command.__mro__:
        for field, value in vars(each).items():
            if isinstance(value, Option) and field not in found:
                found[field] = value.declared(field, hints[field])
    return tuple(found.values())


def parse(command: type[Given], words: Sequence[str]) -> Given:
    """Return the command with what the words give it; of a command that takes runs, their keys are options as well.

    Raises:
        UsageError: a word is out of place, a value is missing or is none.
        BadInput: an option is neither the command's nor a key of any run.
    """
    options = options_of(command)
    known = {name: one for one in options for name in (*one.names, one.off) if name}
    runs = import_module("legroom.cli.overrides") if "--set" in known else None  # which brings the readers along
    given: list[tuple[Option, str, str]] = []
    plain: list[str] = []
    rest = list(reversed(words))
    while rest:
        word = rest.pop()
        name, equals, value = word.partition("=") if word.startswith("--") else (word[:2], word[2:], word[2:])
        if word == "--":
            plain += reversed(rest)
            break
        if not word.startswith("-") or word == "-":
            plain.append(word)
            continue
        one = known.get(name)
        if one is None:
            if runs is None or not word.startswith("--"):
                near = ", ".join(sorted(get_close_matches(name, known)))
                raise UsageError(f"No such option: {name}" + (f" (Possible options: {near})" if near else ""))
            of_program = import_module("legroom.cli.commands").WITH_PROGRAM.get(command.__name__[:-7].lower(), command)
            if any(name in each.names for each in options_of(of_program)):
                raise BadInput(f"{name} is for a program, given after --", hint=f"{name} ... -- python train.py")
            key = runs.key_of(name, known)
            if not (equals or rest):
                raise BadInput(f"option {name} needs a value", hint=f"{name} VALUE")
            one, value = known["--set"], f"{key}={value if equals else rest.pop()}"
        elif one.is_flag and equals:
            raise UsageError(f"Option '{name}' does not take a value.")
        elif not one.is_flag and not equals:
            value = _next(one, name, rest)
        given.append((one, name, value))
    values: dict[str, Any] = {}
    for one, name, text in given:
        read = name != one.off if one.is_flag else one.read(text, name)
        values[one.field] = [*values.get(one.field, ()), read] if one.many else read
    return command(**values, **dict(_arguments(options, runs.joined(plain) if runs is not None else plain)))


def _next(one: Option, name: str, rest: list[str]) -> str:
    if one.alone and (not rest or rest[-1].startswith("-")):
        return one.alone
    if not rest:
        raise UsageError(f"Option '{name}' requires an argument.")
    return rest.pop()


def _arguments(options: Sequence[Option], plain: list[str]) -> Iterator[tuple[str, Any]]:
    """Yield the values of the arguments by field; the last one may take several."""
    for one in (each for each in options if not each.names):
        if plain:
            texts, plain = (plain, []) if one.many else (plain[:1], plain[1:])
            read = [one.kind(text) for text in texts]
            yield one.field, read if one.many else read[0]
        elif one.default is REQUIRED:
            raise UsageError(f"Missing argument '{one.metavar}'.")
    if plain:
        raise UsageError(f"Got unexpected extra argument(s) ({' '.join(plain)})")
