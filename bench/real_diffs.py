"""Commits of public repositories that change a value memory depends on: does `legroom diff` name it?

A commit counts where a file loses one line and gains one that differ in the number given to one of `NAMES`. Which value
that is is read from the lines themselves; `legroom diff` sees the two files. Named means printed: a value that the
line cuts off as "and 3 more" is not.

    python -m bench.real_diffs [--others] REPOSITORY...      # clones, or bare mirrors, with history: the first two sets
    python -m bench.real_diffs --one-each SET SEED REPOSITORY...  # one commit of each, under more names
"""

from __future__ import annotations

import json
import random
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from bench.results import write_section

COMMITS, SEED = 20, 28
COMMENT = re.compile(r"[+-]\s*(#|//)")
NAMES = "batch_size|minibatch_size|buffer_size|replay_size|n_steps|num_steps|n_envs|num_envs|num_workers|hidden_size"
NAMES += "|net_arch"
MORE = "|memory_size|capacity|hidden_dim|hidden_units|seq_len|rollout_length|horizon|frame_stack|img_size|num_actors"
GIVEN = r"(?:default\s*=|(?<![=<>!])=(?!=)|:)"  # an option's default, an assignment or argument, a key
VALUE = re.compile(rf"""["'-]*\b({NAMES.replace("_", "[_-]")})\b["']?[^=:\n]*{GIVEN}\s*[^\d\n]{{0,8}}([\d._e+*]+)""")
# the same with words before the name, in capitals too: REPLAY_BUFFER_SIZE
WORDS = (NAMES + MORE).replace("_", "[_-]")
WIDE = re.compile(
    rf"""(?<!>>>)["'\s+(,.-]\b((?:\w+[_-])?(?:{WORDS}))\b["']?"""
    r"""(?:\]?\s*(?::\s*\w+\s*)?=(?!=)|\s*:|.*\bdefault\s*=)\s*[^\d\n,]{0,8}(\d[\d._e+*]*)""",
    re.IGNORECASE,
)
NOT_TRAINING = re.compile(r"(^|/)(tests?|docs?)/|(^|/)(test_|conftest)|setup\.py$")


def git(repository: str, *words: str) -> str:
    done = subprocess.run(["git", "-C", repository, *words], capture_output=True, check=True)
    return done.stdout.decode(errors="replace")


def changes(repository: str, wide: bool = False) -> Iterator[tuple[str, str, str]]:
    """Yield (commit, file, name of the value) for each changed value; a file once per commit."""
    words = ["--no-merges", "--diff-filter=M", "-U0", "-p", "--format=commit %H"]
    log = git(
        repository, "log", *words, "--", "*.py", "*.yml", "*.yaml", *(["*.json", "*.toml", "*.sh"] if wide else [])
    )
    commit = file = ""
    lost: dict[str, str] = {}
    seen: set[tuple[str, str]] = set()
    for line in log.splitlines():
        if line.startswith("commit "):
            commit = line.split()[1]
        elif line.startswith("+++ "):
            file, lost = line[6:].rstrip("\t"), {}  # git ends names with spaces so
        elif line.startswith("@@"):
            lost = {}
        elif line[:1] in ("+", "-") and not COMMENT.match(line) and (found := (WIDE if wide else VALUE).search(line)):
            name, value = found[1].replace("-", "_"), found[2]
            if line[0] == "-":
                lost[name] = value
            elif _differ(lost.get(name, value), value, wide) and (commit, file) not in seen:
                seen.add((commit, file))
                if not (wide and NOT_TRAINING.search(file)):
                    yield commit, file, name


def _differ(one: str, two: str, as_numbers: bool) -> bool:
    """Return whether two values differ; 1_000_000 and 1e6 do not, as numbers."""
    if as_numbers:
        with suppress(ValueError):
            return float(one) != float(two)
    return one != two


def named(repository: str, commit: str, file: str) -> tuple[str, list[str]]:
    """Return what `legroom diff` prints, and all the keys it knows of."""
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
    keys = [cause["key"] for run in runs for cause in (*run["because"], *run["minor"])]
    return " | ".join(run["text"].replace(name, "") for run in runs), keys


def is_printed(name: str, text: str) -> bool:
    """Return whether the text says what the value was and is."""
    words = name.replace("_", "[_-]")
    return re.search(rf"(?<![\w-]){words} [^→;|]*→", text, re.IGNORECASE) is not None


def chosen(words: list[str]) -> tuple[list[tuple[str, str, str, str]], int, str]:
    """Return (repository, commit, file, name) of a set, of how many it was taken, and its title."""
    if words[0] == "--one-each":
        _, number, seed, *repositories = words
        rng = random.Random(int(seed))
        each = [(repository, list(changes(repository, wide=True))) for repository in repositories]
        picked = [(repository, *rng.choice(found)) for repository, found in each if found]
        rng.shuffle(picked)
        return picked[:COMMITS], sum(len(found) for _, found in each), f" (set {number}, one of each repository)"
    others = words[0] == "--others"  # the commits after the first twenty, which nobody looked at
    repositories = [word for word in words if not word.startswith("--")]
    found = [(repository, *change) for repository in repositories for change in changes(repository)]
    random.Random(SEED).shuffle(found)
    one_each: dict[str, tuple[str, str, str, str]] = {}
    for change in found:
        one_each.setdefault(change[1], change)  # a commit once
    of_set = list(one_each.values())[COMMITS : 2 * COMMITS] if others else list(one_each.values())[:COMMITS]
    return of_set, len(one_each), " (a second one)" if others else ""


def main() -> int:
    of_set, all_of_them, title = chosen(sys.argv[1:])
    rows, right, known = [], 0, 0
    for repository, commit, file, name in of_set:
        text, keys = named(repository, commit, file)
        printed = is_printed(name, text)
        right += printed
        known += any(key.rpartition(".")[2].replace("-", "_").lower() == name.lower() for key in keys)
        whose = next(part for part in reversed(Path(repository).parts) if part not in ("repo", ".git"))
        rows.append([f"{whose}@{commit[:9]}", file, name, text[:110], "yes" if printed else "no"])
        print(" | ".join([*rows[-1][:3], text[:400] if not printed else rows[-1][3], rows[-1][4]]), flush=True)
    rows.append([f"{right} of {len(rows)} named, {known} in --json; {all_of_them} such commits found", "", "", "", ""])
    columns = ["commit", "file", "changed value", "legroom diff", "named"]
    heading = f"legroom diff on commits of public repositories{title}"
    write_section(heading, columns, rows, "python -m bench.real_diffs REPOSITORY...")
    return 0 if right >= 0.9 * (len(rows) - 1) else 1


if __name__ == "__main__":
    sys.exit(main())
