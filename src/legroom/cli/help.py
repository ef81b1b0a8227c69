"""`--help`, which fits a screen, and `--help-all`: examples first, then options by group.

An option says its group by `rich_help_panel`, which typer keeps and does not use without rich: `BUDGET`, or
`rarely(BUDGET)` where only `--help-all` lists it. Of a docstring, the first paragraph and the first `\\b` block of
examples are for the screen; everything after them is for `--help-all`.
"""

from __future__ import annotations

import inspect
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from legroom.rendering.layout import wrap

WHAT, BUDGET, CLUSTER, OUTPUT = "What", "Budget", "Cluster", "Output"
GROUPS = (WHAT, BUDGET, CLUSTER, OUTPUT)
_RARELY = " (rarely used)"
WIDTH = 100  # at most, also on a wider terminal
_NAMES_WIDTH = 34  # of an option; a longer one has its text on the next line
INTRODUCTION = """\
legroom predicts what a training needs, and makes it fit the machine you have.

  legroom predict --gpu T4 -- python train.py  Does my program fit? Runs it.
  legroom predict train.py                     Does my SB3 script fit? Reads it.
  legroom fit train.py --ram 16GiB             Make it fit, with few changes.
  legroom explain train.log                    Why did it run out of memory?
  legroom watch -- python train.py             Does it leak while it runs?
"""
START = f"{INTRODUCTION}\nAll commands: legroom --help. Without a script: legroom predict mine:full\n"


def rarely(group: str) -> str:
    """Return the group as an option has it that only `--help-all` lists."""
    return group + _RARELY


def commands_help(summaries: Mapping[str, str], *, everything: bool) -> str:
    """Return what `legroom --help` prints."""
    lines = [INTRODUCTION, "Usage: legroom COMMAND [OPTIONS]", "", "Commands:"]
    lines += [f"  {name:<10} {summary}" for name, summary in summaries.items()]
    lines += ["", "Options:", "  --help                        Show this list, or a command's options."]
    if everything:
        lines += ["  --help-all                    Show this list with every option."]
    lines += ["  --version                     Show the version and exit."]
    if everything:
        lines += [
            "  --install-completion [SHELL]  Complete words in bash, zsh or fish.",
            "  --show-completion [SHELL]     Show the completion script.",
        ]
    return "\n".join(lines) + "\n"


def command_help(name: str, command: Any, params: Sequence[Any], *, everything: bool, width: int) -> str:
    """Return what `legroom NAME --help` prints, at most `width` columns wide.

    Args:
        command: as typer built it.
        params: its parameters, and those of the workloads that are shown with it.
    """
    summary, rest, examples = _parts_of(inspect.getdoc(command.callback) or "")
    arguments = [each.metavar for each in params if each.param_type_name == "argument"]
    lines = [f"Usage: legroom {' '.join([name, '[OPTIONS]', *arguments])}", "", *wrap(summary, width)]
    for paragraph in rest if everything else ():
        lines += ["", *wrap(paragraph, width)]
    shown = [line for block in examples[: None if everything else 1] for line in block]
    lines += ["", "Examples:", *(f"  {line}" for line in shown), ""]
    rows = [row for each in params if (row := _row(each, everything=everything)) is not None]
    if everything:
        rows.append((OUTPUT, "--help, --help-all", "Show what is used most, or every option."))
    longest = max(len(names) for _, names, _ in rows)
    for group in GROUPS:
        of_group = [row[1:] for row in rows if row[0] == group]
        lines += _group_lines(group, of_group, longest, width, everything=everything)
    hidden = any(_group_of(each)[1] for each in params)
    return "\n".join(lines + ([] if everything or not hidden else [_more(name, params)])) + "\n"


def _more(name: str, params: Sequence[Any]) -> str:
    program = any(each.metavar == "-- COMMAND..." for each in params)
    return f"More options: legroom {name} --help-all{' --' if program else ''}"


def _parts_of(text: str) -> tuple[str, list[str], list[list[str]]]:
    """Return the first paragraph, the other ones, and the blocks of examples."""
    paragraphs, examples = [], []
    for block in text.split("\n\n"):
        if block.startswith(("\b", "\\b")):
            examples.append([line.strip() if line[:1] != " " else line for line in block.splitlines()[1:]])
        else:
            paragraphs.append(" ".join(block.split()))
    return paragraphs[0], paragraphs[1:], examples or [[]]


def _group_of(param: Any) -> tuple[str, bool]:
    """Return the group of a parameter, and whether it is rarely used."""
    panel = getattr(param, "rich_help_panel", None) or WHAT
    return panel.removesuffix(_RARELY), panel.endswith(_RARELY)


def _row(param: Any, *, everything: bool) -> tuple[str, str, str] | None:
    """Return group, names and text of a parameter, None where it is not shown."""
    group, rare = _group_of(param)
    if rare and not everything:
        return None
    if param.param_type_name == "argument":
        return group, param.metavar, param.help or ""
    names = ", ".join(sorted(param.opts, key=len)) + "".join(f" / {name}" for name in param.secondary_opts)
    value = "" if param.is_flag else f" {_metavar(param)}"
    return group, names + value, (param.help or "") + (_default(param) if everything else "")


def _metavar(param: Any) -> str:
    if param.metavar:
        return str(param.metavar)
    choices = getattr(param.type, "choices", None)
    if choices:
        return "|".join(str(getattr(choice, "value", choice)) for choice in choices)
    return "N"


def _default(param: Any) -> str:
    default = getattr(param.default, "value", param.default)
    shown = isinstance(default, str | int | float) and not isinstance(default, bool) and default != ""
    return f" [default: {default}]" if shown else ""


def _group_lines(
    group: str, rows: Sequence[tuple[str, str]], longest: int, width: int, *, everything: bool
) -> Iterator[str]:
    """Yield a group's options; its name stands beside the first, or above them where all are listed."""
    if not rows:
        return
    if everything:
        yield f"{group}:"
    margin = 2 if everything else 2 + max(map(len, GROUPS))
    column = margin + 2 + min(longest, _NAMES_WIDTH if everything else 24)
    for number, (names, text) in enumerate(rows):
        start = (group if number == 0 and not everything else "").ljust(margin) + names
        pieces = wrap(text, width - column)
        if len(start) + 2 > column:
            yield start
            start = ""
        yield f"{start.ljust(column)}{pieces[0]}".rstrip()
        yield from (" " * column + piece for piece in pieces[1:])
    if everything:
        yield ""
