"""The page of the Python interface, from signatures and docstrings.

The names are resolved, so the libraries behind them have to be installed (`make docs` has them all); one that is not
there is named with the package that it needs.
"""

from __future__ import annotations

import inspect
import re
import textwrap
from collections.abc import Mapping
from importlib import import_module
from typing import Any

from docs.generators.markdown import code

import legroom
from legroom.errors import MissingExtra

GROUPS: dict[str, tuple[str, ...]] = {
    "Before a run": ("predict", "predict_model", "fits", "rehearse", "read", "probe", "profile"),
    "While it trains": ("MemoryCallback", "guard", "survive"),
    "With less memory": ("attach", "lean", "LeanVecEnv", "share"),
    "Algorithms": ("DoubleDQN",),
}
TESTING = ("assert_no_leak",)


def pages() -> Mapping[str, str]:
    grouped = {name for names in GROUPS.values() for name in names}
    buffers = [name for name in legroom.__all__ if name not in grouped]
    parts = [
        "# Python\n",
        "`import legroom` imports none of the heavy libraries; each name brings what it needs when it is first used.\n",
    ]
    for group, names in {**GROUPS, "Buffers": tuple(buffers)}.items():
        parts.append(f"## {group}\n")
        parts += [_entry(f"legroom.{name}", legroom, name) for name in names]
    parts.append("## In tests\n")
    testing = import_module("legroom.testing")
    parts += [_entry(f"legroom.testing.{name}", testing, name) for name in TESTING]
    return {"api.md": "\n".join(parts)}


def _entry(shown: str, module: Any, name: str) -> str:
    try:
        thing = getattr(module, name)
    except MissingExtra as missing:
        return f"### {shown}\n\n{missing}\n"
    title = f"### {shown}\n"
    return "\n".join([title, code(_signature(shown, thing), "python"), _as_markdown(inspect.getdoc(thing) or "")])


def _signature(shown: str, thing: Any) -> str:
    signature = inspect.signature(thing)
    given = [_parameter(each, inspect.isclass(thing)) for each in signature.parameters.values() if each.name != "self"]
    marked = _with_star(signature, given)
    returns = signature.return_annotation
    after = "" if inspect.isclass(thing) or returns is inspect.Signature.empty else f" -> {_type(returns)}"
    one_line = f"{shown}({', '.join(marked)}){after}"
    if len(one_line) <= 100:
        return one_line
    return f"{shown}(\n    " + ",\n    ".join(marked) + f",\n){after}"


def _with_star(signature: inspect.Signature, given: list[str]) -> list[str]:
    """Return the parameters with the bare `*` before those that must be named."""
    kinds = [each.kind for each in signature.parameters.values() if each.name != "self"]
    named = [i for i, kind in enumerate(kinds) if kind is inspect.Parameter.KEYWORD_ONLY]
    if named and inspect.Parameter.VAR_POSITIONAL not in kinds:
        return [*given[: named[0]], "*", *given[named[0] :]]
    return given


def _parameter(parameter: inspect.Parameter, bare: bool) -> str:
    """Return a parameter with its type; without, for the long constructors of classes that follow SB3's."""
    if bare or parameter.annotation is inspect.Parameter.empty:
        return str(parameter.replace(annotation=inspect.Parameter.empty))
    stars = {inspect.Parameter.VAR_POSITIONAL: "*", inspect.Parameter.VAR_KEYWORD: "**"}.get(parameter.kind, "")
    value = "..." if inspect.isfunction(parameter.default) else repr(parameter.default)
    default = "" if parameter.default is inspect.Parameter.empty else f" = {value}"
    return f"{stars}{parameter.name}: {_type(parameter.annotation)}{default}"


def _type(annotation: Any) -> str:
    return annotation if isinstance(annotation, str) else inspect.formatannotation(annotation)


def _as_markdown(docstring: str) -> str:
    """Return a docstring as Markdown: `Args:` and its like become lists, doctests and indented code become code."""
    parts: list[str] = []
    for block in re.split(r"\n\n+(?=\S)|\n(?=(?:Args|Raises|Returns|Yields|Example):)", docstring):
        head, _, rest = block.partition("\n")
        if head in ("Args:", "Raises:", "Returns:", "Yields:"):
            parts.append(f"**{head[:-1]}**\n\n{_list(textwrap.dedent(rest))}")
        elif head == "Example:":
            parts.append(f"**Example**\n\n{code(textwrap.dedent(rest), 'pycon')}")
        elif block.startswith(">>>"):
            parts.append(code(block, "pycon"))
        else:
            parts.append(block)
    return "\n\n".join(parts) + "\n"


def _list(text: str) -> str:
    items: list[str] = []
    for line in text.splitlines():
        if line.startswith(" ") and items:
            items[-1] += " " + line.strip()
        elif line.strip():
            name, colon, says = line.partition(": ")
            items.append(f"- `{name}`: {says}" if colon and len(name) < 60 else f"- {line}")
    return "\n".join(items)
