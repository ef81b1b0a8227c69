"""Findings that the user has said not to be told: `# legroom: ignore[LR012]`, in Python and YAML alike.

At the end of a line it holds for that line; on a line of its own, for the next line that is no comment. It names codes
or rule names, or nothing, which means all of them. `# legroom: ignore-file[...]` among the first comment lines holds
for the whole file.
"""

from __future__ import annotations

import io
import re
import tokenize
from collections.abc import Iterator
from dataclasses import dataclass, field

from legroom.model.footprint import Finding

_DIRECTIVE = re.compile(r"#\s*legroom:\s*(?P<kind>ignore-file|ignore)\b\s*(?:\[(?P<names>[^\]]*)\])?")
EVERYTHING = frozenset({"*"})


@dataclass(frozen=True)
class Ignored:
    """What a file asks to be left out: by line, and altogether."""

    lines: dict[int, frozenset[str]] = field(default_factory=dict)
    everywhere: frozenset[str] = frozenset()

    def covers(self, finding: Finding) -> bool:
        here = self.lines.get(finding.line, frozenset()) if finding.line is not None else frozenset()
        names = self.everywhere | here
        return bool(names & (EVERYTHING | {finding.code.lower(), finding.name.lower()}))


def read_ignored(text: str, *, python: bool) -> Ignored:
    """Return what the comments of a file say."""
    if "legroom:" not in text:
        return Ignored()
    source = text.splitlines()
    lines: dict[int, frozenset[str]] = {}
    everywhere: frozenset[str] = frozenset()
    heading = _heading(source)
    for number, column, comment in _comments(text, python):
        for found in _DIRECTIVE.finditer(comment):
            names = _names(found["names"])
            if found["kind"] == "ignore-file":
                everywhere |= names if number <= heading else frozenset()
                continue
            at = number if source[number - 1][:column].strip() else _next_line(source, number)
            lines[at] = lines.get(at, frozenset()) | names
    return Ignored(lines, everywhere)


def _names(text: str | None) -> frozenset[str]:
    names = frozenset(name.strip().lower() for name in (text or "").split(",") if name.strip())
    return names or EVERYTHING


def _comments(text: str, python: bool) -> Iterator[tuple[int, int, str]]:
    """Yield (line, column, comment); in Python by its tokens, so that a string that holds a `#` is none."""
    if python:
        try:
            for token in tokenize.generate_tokens(io.StringIO(text).readline):
                if token.type == tokenize.COMMENT:
                    yield token.start[0], token.start[1], token.string
        except (tokenize.TokenError, SyntaxError):
            return
        return
    for number, line in enumerate(text.splitlines(), 1):
        found = re.search(r"(?:^|\s)(#.*)$", line)
        if found:
            yield number, found.start(1), found[1]


def _heading(source: list[str]) -> int:
    """Return the last line of the comments that a file begins with; a docstring does not end them."""
    for number, line in enumerate(source, 1):
        if line.strip() and not line.lstrip().startswith("#") and line.strip() != "---":
            return number - 1
    return len(source)


def _next_line(source: list[str], number: int) -> int:
    """Return the next line that is neither empty nor a comment."""
    for following in range(number, len(source)):
        if source[following].strip() and not source[following].lstrip().startswith("#"):
            return following + 1
    return number
