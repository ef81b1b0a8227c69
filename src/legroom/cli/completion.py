"""Completion in shells: which words could stand where the cursor is, and the scripts by which shells ask.

Commands come from a table and named runs from the names of their files, so that a press of TAB imports one command at
most. bash cuts words at colons, and `mine:full` would be three: its script takes the line itself apart, and hands back
only what follows the last colon. zsh knows whole words.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from legroom.cli.commands import COMMANDS
from legroom.cli.help import takes_runs
from legroom.cli.parsing import Command, Option, options_of
from legroom.errors import BadInput
from legroom.named_runs import run_names, workloads

ASK = "--complete-words"  # what the scripts call us with: the words of the line, the one under the cursor last
SHELLS = ("bash", "zsh")
RUN_METAVARS = ("RUN", "RUN...", "ENV", "PATH...")
OWN_OPTIONS = {
    "--help": "Show the help.",
    "--help-all": "Show the help, with every option.",
    "--version": "Show the version.",
    "--show-completion": "Show the completion script.",
}
SCRIPTS = {
    "bash": f"""\
_legroom_completion() {{
    local line="${{COMP_LINE:0:COMP_POINT}}" word words reply
    read -r -a words <<< "$line"
    [[ "$line" == *[[:space:]] ]] && words+=("")
    word="${{words[${{#words[@]}}-1]}}"
    local IFS=$'\\n'
    reply=( $(legroom {ASK} "${{words[@]:1}}" 2>/dev/null | cut -f1) )
    if [[ "$word" == *:* && "$COMP_WORDBREAKS" == *:* ]]; then
        local before="${{word%:*}}:"
        reply=( "${{reply[@]#"$before"}}" )
    fi
    COMPREPLY=( "${{reply[@]}}" )
    if [[ ${{#COMPREPLY[@]}} -eq 1 && "${{COMPREPLY[0]}}" == */ ]]; then compopt -o nospace; fi
}}
complete -o default -o bashdefault -F _legroom_completion legroom
""",
    "zsh": f"""\
#compdef legroom
_legroom() {{
    local -a values texts; local value text
    while IFS=$'\\t' read -r value text; do
        [[ -n "$value" ]] || continue
        values+=("$value"); texts+=("$value${{text:+  -- $text}}")
    done < <(legroom {ASK} "${{(@)words[2,CURRENT]}}" 2>/dev/null)
    if (( $#values )); then compadd -l -d texts -a values; else _files; fi
}}
if [[ "$funcstack[1]" == _legroom ]]; then _legroom "$@"; else compdef _legroom legroom; fi
""",
}


def candidates(words: Sequence[str], summaries: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    """Yield what the last of the words could become, each with what it is.

    Args:
        words: of the line, without `legroom`; the last one is under the cursor and may be empty.
        summaries: every command with a line about it.
    """
    *before, word = words or [""]
    yield from ((text, about) for text, about in _all(before, word, summaries) if text.startswith(word))


def _all(before: Sequence[str], word: str, summaries: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    if not before:
        yield from OWN_OPTIONS.items() if word.startswith("-") else summaries.items()
    elif before[0] == "--show-completion":
        yield from ((shell, "") for shell in SHELLS)
    elif before[0] in summaries and "--" not in before:  # after --, watch has somebody else's command
        yield from _of_command(COMMANDS[before[0]], before, word)


def _of_command(command: type[Command], before: Sequence[str], word: str) -> Iterator[tuple[str, str]]:
    declared = options_of(command)
    options = {name: one for one in declared for name in (*one.names, one.off)}
    asked = options.get(before[-1])
    if asked is not None and not asked.is_flag:
        yield from _values(asked, word)
    elif word.startswith("-"):
        if takes_runs(declared):
            from legroom.cli.overrides import shown_options  # only here: it brings the readers along

            options |= {one.names[0]: one for one in shown_options(before[1:], everything=True)}
        yield from ((name, one.help.partition(". ")[0]) for name, one in options.items() if name[:2] == "--")
        yield from ((name, OWN_OPTIONS[name]) for name in ("--help", "--help-all"))
    elif any(one.metavar in RUN_METAVARS for one in declared if not one.names):
        yield from _runs(word)


def _values(option: Option, word: str) -> Iterator[tuple[str, str]]:
    if option.metavar in RUN_METAVARS:
        yield from _runs(word)
    yield from ((choice, "") for choice in option.choices)


def _runs(word: str) -> Iterator[tuple[str, str]]:
    if "/" not in word:
        yield from ((name, "named run") for name in run_names())
        yield from ((one.name, "workload") for one in workloads())


def script_for(shell: str | None) -> str:
    """Return the script of a shell; of the one that asks where none is named.

    Raises:
        BadInput: there is none for that shell.
    """
    name = shell or Path(os.environ.get("SHELL", "")).name
    if name not in SCRIPTS:
        problem = f"there is no completion for {name}" if name else "this shell is not known"
        raise BadInput(problem, hint=f"name one: {', '.join(SHELLS)}")
    return SCRIPTS[name]
