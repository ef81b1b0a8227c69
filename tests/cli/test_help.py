"""Help fits a screen of 24 lines by 80 columns, examples first; `--help-all` leaves nothing out."""

import resource
import subprocess
import sys
from pathlib import Path

import pytest
from tests.cli.in_process import legroom

from legroom.cli.commands import COMMANDS, WITH_PROGRAM
from legroom.cli.main import SUMMARIES
from legroom.cli.parsing import Command, options_of
from legroom.named_runs import workloads
from legroom.reading.workload_options import declared_options

SCREENS = [
    [],
    ["--help"],
    *([name, "--help"] for name in COMMANDS),
    *([name, "--help", "--"] for name in WITH_PROGRAM),
    *([name, workload.name, "--help"] for name in COMMANDS for workload in workloads()),
]


@pytest.mark.parametrize("words", SCREENS, ids=" ".join)
def test_help_fits_a_screen(words: list[str]) -> None:
    done = legroom(*words, COLUMNS="80")
    lines = done.stdout.splitlines()
    assert done.returncode == 0 and not done.stderr
    assert len(lines) <= (30 if words == ["--help"] else 24)  # the list of commands begins with examples
    assert [line for line in lines if len(line) > 80] == []


@pytest.mark.parametrize("name", COMMANDS)
def test_examples_come_before_options_and_begin_with_the_command(name: str) -> None:
    lines = legroom(name, "--help", COLUMNS="80").stdout.splitlines()
    examples = lines[lines.index("Examples:") + 1 :]
    examples = examples[: examples.index("")]
    assert examples and all(f"legroom {name}" in line for line in examples[:1])
    assert lines.index("Examples:") < next(i for i, line in enumerate(lines) if line.startswith(("What  ", "Output  ")))


def test_no_summary_is_cut_short_and_the_version_is_the_packages() -> None:
    shown = legroom("--help", COLUMNS="80").stdout
    assert all(summary in shown for summary in SUMMARIES.values())
    program = str(Path(sys.executable).parent / "legroom")  # as it is installed
    done = subprocess.run([program, "--version"], capture_output=True, text=True, check=True)
    assert done.stdout == legroom("--version").stdout == "legroom 0.2.0\n"


def names_of(command: type[Command]) -> set[str]:
    return {name for each in options_of(command) for name in (*each.names, each.off) if name}


@pytest.mark.parametrize(
    ("name", "after", "command"),
    [
        *((name, [], command) for name, command in COMMANDS.items()),
        *((name, ["--"], command) for name, command in WITH_PROGRAM.items()),
    ],
    ids=lambda each: each if isinstance(each, str) else "".join(each) if isinstance(each, list) else "",
)
def test_help_all_lists_every_option(name: str, after: list[str], command: type[Command]) -> None:
    shown = legroom(name, "--help-all", *after).stdout
    words = set(shown.replace(",", " ").split())
    assert names_of(command) <= words
    if "--set" in names_of(command):
        assert {option.name for _, option in declared_options()} <= words
    few = legroom(name, "--help", *after).stdout
    assert ("--help-all" in few) == any(each.rare for each in options_of(command))


def test_options_of_a_workload_are_shown_with_it_alone() -> None:
    assert "--rom" not in legroom("predict", "--help").stdout
    assert "--rom" not in legroom("predict", "mine:full", "--help").stdout
    assert "--rom" in legroom("predict", "gameboy:default", "--help").stdout


def test_legroom_alone_shows_five_things() -> None:
    shown = legroom().stdout
    assert sum(line.startswith("  legroom ") for line in shown.splitlines()) == 5


@pytest.mark.parametrize("name", ["predict", "train", "watch"])
def test_help_takes_little_processor_time(name: str) -> None:
    took = []
    for _ in range(3):
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        subprocess.run([sys.executable, "-m", "legroom.cli.main", name, "--help"], check=True, capture_output=True)
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        took.append(after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime)
    assert min(took) <= 0.35  # 0.2 on a quiet machine: `python -m bench.speed output`
