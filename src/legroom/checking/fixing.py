"""Fixes: mechanical changes of a file, as replacements of text that leave everything else as it was.

Positions count lines as `str.splitlines` does, without their ends, so a file keeps its line ends, its byte order mark
and its mode. Of fixes that touch the same text the first is made; the others come with the next check.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable
from pathlib import Path

from legroom.errors import BadInput
from legroom.model.files import write_whole
from legroom.model.rule import Fix


def applied(text: str, fixes: Iterable[Fix]) -> tuple[str, list[Fix]]:
    """Return the text with the fixes made, and those that were; overlapping and impossible ones are left out."""
    starts = _line_starts(text)
    spans: list[tuple[int, int, Fix]] = []
    for fix in sorted(fixes, key=lambda f: (f.line, f.column, f.end_line, f.end_column)):
        first, last = _offset(starts, text, fix.line, fix.column), _offset(starts, text, fix.end_line, fix.end_column)
        if first is None or last is None or last < first or (spans and first < spans[-1][1]):
            continue
        if any((first, last, fix.text) == (a, b, other.text) for a, b, other in spans):
            continue  # two rules, or two runs, want the same
        spans.append((first, last, fix))
    for first, last, fix in reversed(spans):
        text = text[:first] + fix.text + text[last:]
    return text, [fix for _, _, fix in spans]


def fix_file(path: str, fixes: Iterable[Fix], *, dry_run: bool = False) -> tuple[list[Fix], str]:
    """Make the fixes in the file, whole or not at all; return those made and the change as a unified diff.

    Args:
        dry_run: leave the file as it is.

    Raises:
        BadInput: the file cannot be read or written.
    """
    file = Path(path)
    try:
        data = file.read_bytes()
        old = data.decode("utf-8")
        mark = "\ufeff" if old.startswith("\ufeff") else ""
        new, made = applied(old.removeprefix(mark), fixes)
        difference = "".join(
            difflib.unified_diff(
                _unended(old.removeprefix(mark)), _unended(new), f"{path}", f"{path} (fixed)", lineterm="\n"
            )
        )
        if made and not dry_run:
            mode = file.stat().st_mode
            target = file.resolve()  # a link keeps being one
            write_whole(target, (mark + new).encode("utf-8"))
            target.chmod(mode & 0o7777)
    except (OSError, UnicodeDecodeError) as error:
        what = getattr(error, "strerror", None) or error
        raise BadInput(f"cannot be fixed: {what}", path=path, hint="check its permissions") from None
    return made, difference


def _unended(text: str) -> list[str]:
    return [f"{line}\n" for line in text.splitlines()]


def _line_starts(text: str) -> list[int]:
    starts = [0]
    for line in text.splitlines(keepends=True):
        starts.append(starts[-1] + len(line))
    return starts


def _offset(starts: list[int], text: str, line: int, column: int) -> int | None:
    if not 1 <= line <= len(starts) or column < 0:
        return None
    start = starts[line - 1]
    end = starts[line] if line < len(starts) else len(text)
    return start + column if start + column <= end else None
