"""What README and documentation say people can type works, and prints what the pages show.

Commands with an output block are run and compared word by word, figures that vary masked (`docs/blocks.py`); slow ones
only with LEGROOM_SLOW_DOCS=1, which `make test-docs` sets. All others are parsed: their options exist, their runs can
be read. Python is compiled, and run where its page says so.
"""

from __future__ import annotations

import ast
import difflib
import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from docs.blocks import FILES, ROOT, Block, Session, Told, blocks_of, masked, pages, snippets_of, told_by

from legroom.cli.commands import COMMANDS, WITH_PROGRAM
from legroom.cli.main import command_called
from legroom.cli.overrides import split_settings
from legroom.cli.parsing import Command, UsageError, options_of
from legroom.cli.parsing import parse as parse_words
from legroom.errors import BadInput
from legroom.reading import read_all
from legroom.reading.workload_options import declared_options, split_overrides

SLOW = os.environ.get("LEGROOM_SLOW_DOCS") == "1"
PAGES = pages()
RUN_PAGES = [page for page in PAGES if any(SLOW or not block.slow for block in blocks_of(page))]


def name_of(page: Path) -> str:
    return str(page.relative_to(ROOT))


@pytest.mark.parametrize("page", RUN_PAGES, ids=name_of)
def test_commands_print_what_the_page_shows(page: Path, tmp_path: Path) -> None:
    session = Session(tmp_path)
    for block in blocks_of(page):
        if (SLOW or not block.slow) and block.can_run:
            assert block.output is not None, f"{block.where}: no output yet; python docs/fill.py --slow {page.stem}"
            compare(block, session.run(block.command, slow=block.slow))


def compare(block: Block, printed: str) -> None:
    shown, now = block.output or "", printed
    if block.loosely:
        shown, now = shown.split("\n", 1)[0], now.split("\n", 1)[0]
    compare_words(block, masked(shown), masked(now))


def compare_words(block: Block, shown: list[str], now: list[str]) -> None:
    if shown != now:
        changes = [line for line in difflib.ndiff(shown, now) if not line.startswith("?")]
        changed = [i for i, line in enumerate(changes) if line[0] in "+-"]
        around = changes[max(changed[0] - 8, 0) : changed[0] + 40]
        pytest.fail(
            f"{block.where}: {block.command}\nprints something else (- shown, + now); if that is right, "
            f"python docs/fill.py {block.page.stem}\n" + "\n".join(around)
        )


def test_every_shown_output_is_there() -> None:
    """Also of commands that only `make test-docs` runs."""
    empty = [block.where for page in PAGES for block in blocks_of(page) if not block.output]
    assert not empty, f"python docs/fill.py --slow fills {empty}"


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_commands_that_are_only_told_can_be_typed(page: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(FILES)
    for told in told_by(page):
        parse(told)


def parse(told: Told) -> None:
    """Fail where a command, an option or a run does not exist."""
    if not told.words or told.words[0].startswith("--"):
        return
    name, *arguments = told.words
    assert name in COMMANDS, f"{told.where}: there is no command {name}"
    if arguments == [] or "--help" in arguments or "--help-all" in arguments:
        return  # the command itself is meant
    command = command_called(name, with_program="--" in arguments or "--with" in arguments)
    if len(arguments) == 1 and arguments[0] in {each for one in options_of(command) for each in one.names}:
        return  # an option is meant
    try:
        asked = parse_words(command, arguments)
    except (UsageError, BadInput) as error:
        pytest.fail(f"{told.where}: legroom {' '.join(told.words)}: {error}")
    check_runs(told, asked)


def check_runs(told: Told, asked: Command) -> None:
    given: Any = vars(asked)
    settings = () if any("VALUE" in text for text in told.words) else given.get("settings", ())
    overrides, _ = split_overrides(split_settings(settings))  # files that options of a workload name need not be there
    if given.get("backend"):
        overrides.insert(0, ("backend", given["backend"]))
    for argument in options_of(type(asked)):
        if argument.names:
            continue
        metavar, values = argument.metavar, given[argument.field]
        for value in (values,) if isinstance(values, str) else values if isinstance(values, list) else ():
            if value.rstrip(".").isupper():  # RUN, PATH: stands for one
                continue
            if "RUN" in metavar or ("PATH" in metavar and ":" in value and not Path(value).exists()):
                try:
                    read_all(value, overrides=overrides, like=given.get("like"))
                except BadInput as error:
                    pytest.fail(f"{told.where}: {error}")
            elif "PATH" in metavar or metavar == "[FILE|-]":
                assert value == "-" or Path(value).exists(), f"{told.where}: {value} is not in docs/files"


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_python_compiles_and_where_cheap_runs(page: Path, tmp_path: Path) -> None:
    for number, snippet in enumerate(snippets_of(page)):
        source = snippet.source
        if source.startswith(">>>"):
            lines = source.splitlines()
            source = "\n".join(line[4:] for line in lines if line.startswith((">>> ", "... ")))
        compile(source, f"{name_of(page)}:{snippet.line}", "exec")
        if snippet.execute:
            folder = tmp_path / str(number)
            folder.mkdir()
            session = Session(folder)
            (session.folder / "snippet.py").write_text(source)
            assert session.run("python snippet.py")


def test_masks_keep_words_and_hide_figures_that_vary() -> None:
    line = "  rollout.observations   4.2 GiB   1%  collect on  8,192 steps x 2 envs x 276,480 B [measured]"
    assert " ".join(masked(line)) == "rollout.observations SIZE collect on 8,192 steps x 2 envs x SIZE"
    line = "17×49×71×58 float32, 581.3× less, 12 min, 9 smaller items"
    assert " ".join(masked(line)) == "17×49×71×58 float32, TIMES less, TIME, SOME smaller items"


PRINTED = re.compile(r"\blegroom (" + "|".join(COMMANDS) + r")\b((?: (?!-- )[^\s;:,]+)*)")


def messages() -> Iterator[tuple[str, str]]:
    """Where each string of the source is, and its text with X where a value goes."""
    for file in sorted((ROOT / "src").rglob("*.py")):
        for node in ast.walk(ast.parse(file.read_text())):
            if isinstance(node, ast.JoinedStr):
                parts = (part.value if isinstance(part, ast.Constant) else "X" for part in node.values)
                yield f"{file.relative_to(ROOT)}:{node.lineno}", "".join(map(str, parts))
            elif isinstance(node, ast.Constant) and isinstance(node.value, str):
                yield f"{file.relative_to(ROOT)}:{node.lineno}", node.value


def test_options_of_commands_in_messages_exist() -> None:
    """A hint that names an option of another command sends people to an error."""
    seen, wrong, of_workloads = 0, [], {option.name for _, option in declared_options()}
    for where, text in messages():
        for name, words in PRINTED.findall(text):
            commands = [each[name] for each in (COMMANDS, WITH_PROGRAM) if name in each]
            known = {option for command in commands for one in options_of(command) for option in one.names}
            for word in words.split():
                option = word.strip("'\"`.)").partition("=")[0]
                if option.startswith("--") and option not in ("--", "--help", "--help-all"):
                    seen += 1
                    wrong += [] if option in known | of_workloads else [f"{where}: legroom {name} {option}"]
    assert wrong == [] and seen > 60, (wrong, seen)
