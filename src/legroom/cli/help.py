"""`--help`, which fits a screen, and `--help-all`: examples first, then options by group.

Of a command's docstring, the first paragraph and the first `\\b` block of examples are for the screen; everything after
them is for `--help-all`.
"""

from __future__ import annotations

import inspect
from collections.abc import Iterator, Mapping, Sequence
from shutil import get_terminal_size

from legroom.cli.parsing import BUDGET, CLUSTER, OUTPUT, WHAT, Command, Option, options_of
from legroom.rendering.layout import wrap

GROUPS = (WHAT, BUDGET, CLUSTER, OUTPUT)
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
            '  --show-completion [SHELL]     Completion for bash or zsh: eval "$(legroom --show-completion bash)"'
        ]
    return "\n".join(lines) + "\n"


def help_for(words: Sequence[str], command: type[Command], *, everything: bool) -> str:
    """Return what `legroom WORDS --help` prints: with the options of the workloads that it names, or of all."""
    options, named = options_of(command), [word for word in words[1:] if not word.startswith("-")]
    if (named or everything) and takes_runs(options):
        from legroom.cli.overrides import shown_options  # only here: it brings the readers along

        options = (*options, *shown_options(named, everything=everything))
    width = min(get_terminal_size().columns, WIDTH)
    return command_help(words[0], command, options, everything=everything, width=width)


def takes_runs(options: Sequence[Option]) -> bool:
    return any("--set" in one.names for one in options)


def command_help(name: str, command: type[Command], options: Sequence[Option], *, everything: bool, width: int) -> str:
    """Return what `legroom NAME --help` prints, at most `width` columns wide, of these options."""
    summary, rest, examples = parts_of(inspect.getdoc(command) or "")
    arguments = [one.metavar for one in options if not one.names]
    lines = [f"Usage: legroom {' '.join([name, '[OPTIONS]', *arguments])}", "", *wrap(summary, width)]
    for paragraph in rest if everything else ():
        lines += ["", *wrap(paragraph, width)]
    shown = [line for block in examples[: None if everything else 1] for line in block]
    lines += ["", "Examples:", *(f"  {line}" for line in shown), ""]
    rows = [_row(one, everything=everything) for one in options if everything or not one.rare]
    if everything:
        rows.append((OUTPUT, "--help, --help-all", "Show what is used most, or every option."))
    longest = max(len(names) for _, names, _ in rows)
    for group in GROUPS:
        of_group = [row[1:] for row in rows if row[0] == group]
        lines += _group_lines(group, of_group, longest, width, everything=everything)
    if not everything and any(one.rare for one in options):
        program = any(one.metavar == "-- COMMAND..." for one in options)
        lines.append(f"More options: legroom {name} --help-all{' --' if program else ''}")
    return "\n".join(lines) + "\n"


def parts_of(text: str) -> tuple[str, list[str], list[list[str]]]:
    """Return the first paragraph, the other ones, and the blocks of examples."""
    paragraphs, examples = [], []
    for block in text.split("\n\n"):
        if block.startswith(("\b", "\\b")):
            examples.append([line.strip() if line[:1] != " " else line for line in block.splitlines()[1:]])
        else:
            paragraphs.append(" ".join(block.split()))
    return paragraphs[0], paragraphs[1:], examples or [[]]


def _row(one: Option, *, everything: bool) -> tuple[str, str, str]:
    if not one.names:
        return one.group, one.metavar, one.help
    names = ", ".join(sorted(one.names, key=len)) + (f" / {one.off}" if one.off else "")
    value = "" if one.is_flag else f" {one.metavar or '|'.join(one.choices)}"
    default = f" [default: {one.default}]" if _is_shown(one.default) and everything else ""
    return one.group, names + value, one.help + default


def _is_shown(default: object) -> bool:
    return isinstance(default, str | int | float) and not isinstance(default, bool) and default != ""


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
