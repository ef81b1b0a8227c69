"""What the GitHub Action runs: `legroom check` as annotations, and `legroom diff` of every changed file as a comment.

Reads LEGROOM_PATHS, LEGROOM_RAM, LEGROOM_VRAM and LEGROOM_BASE; writes the comment's file to GITHUB_OUTPUT and the same
text to GITHUB_STEP_SUMMARY. Exit code 1: the check found something, or a run is over the budget. 2: something failed.
"""

from __future__ import annotations

import json
import os
import shlex
import subprocess
import sys
import tempfile
from pathlib import Path

KINDS = (".py", ".ipynb", ".yaml", ".yml", ".json", ".toml", ".gin", ".sh")
HEAD = "### legroom: what this change does to memory"


def main() -> int:
    """Check, compare, and return the worse exit code."""
    paths = shlex.split(os.environ.get("LEGROOM_PATHS") or ".")
    budget = [word for name in ("ram", "vram") if (size := _given(name)) for word in (f"--{name}", size)]
    checked = subprocess.run([*_legroom(), "check", *paths, *budget, "--format", "github"], check=False).returncode
    lines, worst = _compared(_given("base"), budget)
    if lines:
        _publish("\n".join([HEAD, "", *lines, ""]))
    return max(checked, worst)


def _compared(base: str, budget: list[str]) -> tuple[list[str], int]:
    """Return a line per run that changed, and the worst exit code."""
    if not base:
        return [], 0
    lines: list[str] = []
    worst = 0
    with tempfile.TemporaryDirectory() as name:
        for path in _changed(base):
            old = Path(name) / path
            old.parent.mkdir(parents=True, exist_ok=True)
            old.write_bytes(_git("show", f"{base}:./{path}"))
            told = subprocess.run(
                [*_legroom(), "diff", str(old), path, *budget, "--json"], capture_output=True, text=True, check=False
            )
            if told.returncode == 2:  # neither version is of a training, or one cannot be read
                sys.stderr.write(told.stderr)
                continue
            worst = max(worst, told.returncode)
            for run in json.loads(told.stdout)["runs"]:
                over = " **over the budget**" if run["fits"] is False else ""
                assumed = f" (sizes for {run['stand_in']})" if run["stand_in"] else ""
                lines.append(f"- `{path}` {run['text']}{assumed}{over}")
    return lines, worst


def _changed(base: str) -> list[str]:
    """Return the files that both versions have and that differ."""
    names = _git("diff", "--name-only", "--relative", "--diff-filter=M", "-z", base, "--").decode().split("\0")
    return [name for name in names if name.endswith(KINDS) and "lock" not in Path(name).stem]


def _publish(text: str) -> None:
    """Write the comment where the next step finds it, and onto the job's page."""
    sys.stdout.write(text)
    if summary := os.environ.get("GITHUB_STEP_SUMMARY"):
        with Path(summary).open("a") as file:
            file.write(text)
    if output := os.environ.get("GITHUB_OUTPUT"):
        comment = Path(os.environ.get("RUNNER_TEMP") or tempfile.gettempdir()) / "legroom-comment.md"
        comment.write_text(text)
        with Path(output).open("a") as file:
            file.write(f"comment={comment}\n")


def _git(*words: str) -> bytes:
    return subprocess.run(["git", *words], capture_output=True, check=True).stdout


def _legroom() -> list[str]:
    return [sys.executable, "-m", "legroom"]


def _given(name: str) -> str:
    return os.environ.get(f"LEGROOM_{name.upper()}", "").strip()


if __name__ == "__main__":
    sys.exit(main())
