"""What the documentation promises: commands with their output, commands alone, and Python.

A page writes

    <!-- run: legroom predict run.yaml --mode arithmetic --ram 16GiB -->

and `fill.py` puts a `text` block with the real output below it. Blocks of a page run in order in one folder, which
begins as a copy of `docs/files`, so that pages say `run.yaml` and mean it. `run slow:` is left to `make test-docs`;
`run loosely:` prints what depends on this machine in more than figures (which knob is enough, which cards there are),
and only its first line is compared. `run slow loosely:` is both. `run slow needs torchrl:` is left out where that
package is not installed.
"""

from __future__ import annotations

import importlib.util
import os
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

DOCS = Path(__file__).resolve().parent
ROOT = DOCS.parent
FILES = DOCS / "files"
MOST_S = 1800  # a training on a busy machine
_RUN = re.compile(
    r"^<!-- run(?P<how>(?: slow| loosely| needs \w+)*): (?P<command>.+?) -->\n(?:\n```text\n(?P<output>.*?)\n```\n)?",
    re.M | re.S,
)
_FENCE = re.compile(r"^```(?P<kind>\{?[\w+-]*\}?)[^\n]*\n(?P<body>.*?)^```\s*?$", re.M | re.S)
_SPAN = re.compile(r"(?<!`)`(legroom [^`]+)`(?!`)")


@dataclass(frozen=True)
class Block:
    """A command that is run, and the output that its page shows (None: not filled yet)."""

    page: Path
    line: int
    command: str
    output: str | None
    slow: bool
    loosely: bool
    needs: str | None = None

    @property
    def where(self) -> str:
        return f"{self.page.relative_to(ROOT)}:{self.line}"

    @property
    def can_run(self) -> bool:
        """Whether the package that its program uses is installed."""
        return self.needs is None or importlib.util.find_spec(self.needs) is not None


@dataclass(frozen=True)
class Told:
    """A command that a page only names, in an indented or fenced line or inside a sentence."""

    page: Path
    line: int
    words: tuple[str, ...]

    @property
    def where(self) -> str:
        return f"{self.page.relative_to(ROOT)}:{self.line}"


@dataclass(frozen=True)
class Snippet:
    """A fenced piece of Python; `execute` where a comment before it says so."""

    page: Path
    line: int
    source: str
    execute: bool


def pages() -> list[Path]:
    """Return every page that people write: README, docs and the workloads' own."""
    written = [page for page in sorted(DOCS.rglob("*.md")) if DOCS / "generated" not in page.parents]
    workloads = sorted((ROOT / "src/legroom_workloads").glob("*/README.md"))
    return [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *written, *workloads]


def blocks_of(page: Path) -> list[Block]:
    """Return the commands of a page that are run, in order."""
    text = page.read_text()
    found = []
    for match in _RUN.finditer(text):
        output = match["output"]
        shown = None if output is None else output.removeprefix(f"$ {match['command']}").lstrip("\n")
        how = match["how"].split()
        needs = how[how.index("needs") + 1] if "needs" in how else None
        found.append(Block(page, _line(text, match), match["command"], shown, "slow" in how, "loosely" in how, needs))
    return found


def told_by(page: Path) -> Iterator[Told]:
    """Yield every `legroom ...` of a page: fenced, indented, or between backticks."""
    text = page.read_text()
    fenced = False
    for number, line in enumerate(text.splitlines(), 1):
        fenced ^= line.startswith("```")
        if re.match(r" *(?:\$ )?legroom [\w-]+(?: |$)" if fenced else r" {4,}(?:\$ )?legroom \S", line):
            for words in _commands_in(line.strip().removeprefix("$ ")):
                yield Told(page, number, words)
    for match in _SPAN.finditer(text):
        for words in _commands_in(" ".join(match[1].split())):
            yield Told(page, _line(text, match), words)


def snippets_of(page: Path) -> Iterator[Snippet]:
    """Yield the Python of a page."""
    text = page.read_text()
    for match in _FENCE.finditer(text):
        if match["kind"] == "python":
            before = text[: match.start()].rstrip().endswith("<!-- execute -->")
            yield Snippet(page, _line(text, match), match["body"], before)


def _commands_in(line: str) -> Iterator[tuple[str, ...]]:
    """Yield the words after `legroom` of each command of a line; nothing of lines that stand for several."""
    if "…" in line or "..." in line:
        return
    words = shlex.split(line, comments=True)
    command: list[str] | None = None
    for word in [*words, ";"]:
        if word in (";", "|", "&&", ">", "2>&1"):
            if command is not None:
                yield tuple(command)
            command = None
        elif command is not None:
            command.append(word)
        elif word == "legroom":
            command = []


def _line(text: str, match: re.Match[str]) -> int:
    return text.count("\n", 0, match.start()) + 1


class Session:
    """A folder with the files of the documentation, in which commands run as a reader would run them."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder / "here"
        shutil.copytree(FILES, self.folder, ignore=shutil.ignore_patterns("__pycache__"))
        programs = folder / "bin"
        programs.mkdir()
        for name, module in (("legroom", "-m legroom.cli.main"), ("python", "")):
            program = programs / name
            program.write_text(f'#!/bin/sh\nexec "{sys.executable}" {module} "$@"\n')
            program.chmod(0o755)
        found_in = os.pathsep.join([str(ROOT / "src"), os.environ.get("PYTHONPATH", "")])
        self._environment = {
            **os.environ, "PATH": f"{programs}:{os.environ['PATH']}", "PYTHONPATH": found_in, "COLUMNS": "100",
            "LC_ALL": "C.UTF-8", "PYTHONDONTWRITEBYTECODE": "1",
        }  # fmt: skip
        for name in ("CLICOLOR_FORCE", "FORCE_COLOR"):
            self._environment.pop(name, None)

    def run(self, command: str, *, slow: bool = False) -> str:
        """Return what a command prints, its folder called `.`.

        Quick ones find nothing that this machine has measured before, and so say what is shipped: the same everywhere.

        Raises:
            RuntimeError: it ended with bad input or worse.
        """
        environment = self._environment if slow else {**self._environment, "XDG_CACHE_HOME": str(self.folder.parent)}
        done = subprocess.run(
            ["bash", "-c", command], cwd=self.folder, env=environment, capture_output=True, text=True, check=False,
            timeout=MOST_S,
        )  # fmt: skip
        if done.returncode > 1:
            raise RuntimeError(f"{command}: exit code {done.returncode}\n{done.stderr[-2000:]}")
        printed = done.stdout if done.stdout.strip() else done.stderr
        lines = [line.rstrip() for line in printed.replace(str(self.folder), ".").splitlines()]
        return "\n".join(lines).strip("\n")


# What may differ from machine to machine and from day to day, and what stands for it. Order matters.
_NUMBER = r"[-+−]?\d[\d,]*(?:\.\d+)?(?:e[-+]\d+)?"
_MASKS = (
    (r"\b[0-9a-f]{12,64}\b", "HASH"),
    (r"\d{4}-\d\d-\d\d(?:[T ]\d\d:\d\d(?::\d\d)?)?|\d{8}-\d{6}", "DATE"),
    (r"/tmp/\S+", "PATH"),
    (r"\[(?:measured|default|traced|probed)\]", ""),  # how it is known here; elsewhere it may be known otherwise
    (rf"{_NUMBER} ?(?:B|[kKMGT]i?B)\b", "SIZE"),
    (rf"{_NUMBER} ?(?:ms|µs|us|min|seconds?|minutes?|hours?|s|h)\b", "TIME"),
    (rf"{_NUMBER} ?%", ""),  # an error that rounds to nothing is not printed
    (rf"{_NUMBER}×(?!\d)", "TIMES"),
    (r"\d+\.\d+\.\d+\S*", "VERSION"),
    (r"\b\d{7,}\b", "BYTES"),
    (r"\d+(?= (?:smaller|further) items?\b)", "SOME"),
    (r"[\d,]+(?= steps, \S+ per second)", "SOME"),  # more where a trend is not clear at once
    (rf"{_NUMBER}(?= (?:per second|steps/s|fit into|PSS)\b)", "SOME"),
    (r"(?<=about )[\d,]+(?= steps)|(?<=seen in )[\d,]+(?= observations)", "SOME"),
    (r"[-+−]?\d+\.\d+", "NUMBER"),
)


def masked(output: str) -> list[str]:
    """Return the words of an output with figures that vary replaced; where lines break varies with them."""
    for pattern, stands_for in _MASKS:
        output = re.sub(pattern, stands_for, output)
    return output.split()
