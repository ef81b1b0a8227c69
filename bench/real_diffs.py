"""Commits of public repositories that change a value memory depends on: does `legroom diff` name it?

A commit counts where a file loses one line and gains one that differ in the number given to one of `NAMES`. Which value
that is is read from the lines themselves; `legroom diff` sees the two files.

    python -m bench.real_diffs [--others] REPOSITORY...     # clones, or bare mirrors, with history
"""

from __future__ import annotations

import json
import random
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

from bench.results import write_section

COMMITS, SEED = 20, 28
COMMENT = re.compile(r"[+-]\s*#")
NAMES = "batch_size|minibatch_size|buffer_size|replay_size|n_steps|num_steps|n_envs|num_envs|num_workers|hidden_size"
NAMES += "|net_arch"
GIVEN = r"(?:default\s*=|(?<![=<>!])=(?!=)|:)"  # an option's default, an assignment or argument, a key
VALUE = re.compile(rf"""["'-]*\b({NAMES.replace("_", "[_-]")})\b["']?[^=:\n]*{GIVEN}\s*[^\d\n]{{0,8}}([\d._e+*]+)""")


def git(repository: str, *words: str) -> str:
    done = subprocess.run(["git", "-C", repository, *words], capture_output=True, check=True)
    return done.stdout.decode(errors="replace")


def changes(repository: str) -> Iterator[tuple[str, str, str]]:
    """Yield (commit, file, name of the value) for each changed value; a file once per commit."""
    words = ["--no-merges", "--diff-filter=M", "-U0", "-p", "--format=commit %H"]
    log = git(repository, "log", *words, "--", "*.py", "*.yml", "*.yaml")
    commit = file = ""
    lost: dict[str, str] = {}
    seen: set[tuple[str, str]] = set()
    for line in log.splitlines():
        if line.startswith("commit "):
            commit = line.split()[1]
        elif line.startswith("+++ "):
            file, lost = line[6:], {}
        elif line.startswith("@@"):
            lost = {}
        elif line[:1] in ("+", "-") and not COMMENT.match(line) and (found := VALUE.search(line)):
            name, value = found[1].replace("-", "_"), found[2]
            if line[0] == "-":
                lost[name] = value
            elif lost.get(name, value) != value and (commit, file) not in seen:
                seen.add((commit, file))
                yield commit, file, name


def named(repository: str, commit: str, file: str) -> tuple[str, list[str]]:
    """Return what `legroom diff` says, and the keys it names."""
    with tempfile.TemporaryDirectory() as name:
        paths = []
        for version, revision in (("old", f"{commit}~1"), ("new", commit)):
            path = Path(name) / version / Path(file).name
            path.parent.mkdir()
            path.write_text(git(repository, "show", f"{revision}:{file}"))
            paths.append(str(path))
        words = [sys.executable, "-m", "legroom", "diff", *paths, "--json"]
        told = subprocess.run(words, capture_output=True, text=True, check=False)
    if told.returncode == 2:
        return told.stderr.strip()[-80:], []
    runs = json.loads(told.stdout)["runs"]
    keys = [cause["key"] for run in runs for cause in run["because"]]
    return "; ".join(run["text"].replace(name, "") for run in runs)[:110], keys


def main() -> int:
    others = "--others" in sys.argv  # the commits after the first twenty, which nobody looked at
    repositories = [word for word in sys.argv[1:] if not word.startswith("--")]
    found = [(repository, *change) for repository in repositories for change in changes(repository)]
    random.Random(SEED).shuffle(found)
    one_each: dict[str, tuple[str, str, str, str]] = {}
    for change in found:
        one_each.setdefault(change[1], change)  # a commit once
    rows, right = [], 0
    chosen = list(one_each.values())[COMMITS : 2 * COMMITS] if others else list(one_each.values())[:COMMITS]
    for repository, commit, file, name in chosen:
        text, keys = named(repository, commit, file)
        good = any(key.rpartition(".")[2].replace("-", "_").partition("#")[0] == name for key in keys)
        right += good
        whose = Path(repository).parent.name if Path(repository).name == "repo" else Path(repository).name
        rows.append([f"{whose}@{commit[:9]}", file, name, text, "yes" if good else "no"])
        print(" | ".join(rows[-1]), flush=True)
    rows.append([f"{right} of {len(rows)} named; {len(one_each)} such commits found", "", "", "", ""])
    columns = ["commit", "file", "changed value", "legroom diff", "named"]
    title = f"legroom diff on commits of public repositories{' (a second one)' if others else ''}"
    write_section(title, columns, rows, "python -m bench.real_diffs REPOSITORY...")
    return 0 if right >= 0.9 * (len(rows) - 1) else 1


if __name__ == "__main__":
    sys.exit(main())
