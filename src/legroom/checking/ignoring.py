"""Findings that the user has said not to be told: `# legroom: ignore[LR012]`, in Python and YAML alike.

At the end of a line it holds for that line; on a line of its own, for the next line that is no comment. It names codes
or rule names, or nothing, which means all of them. `# legroom: ignore-file[...]` among the first comment lines holds
for the whole file.
"""

from __future__ import annotations

import re
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


def read_ignored(text: str) -> Ignored:
    """Return what the comments of a file say."""
    source = text.splitlines()
    lines: dict[int, frozenset[str]] = {}
    everywhere: frozenset[str] = frozenset()
    for number, line in enumerate(source, 1):
        for found in _DIRECTIVE.finditer(line) if "legroom:" in line else ():
            given = (name.strip().lower() for name in (found["names"] or "").split(","))
            names = frozenset(filter(None, given)) or EVERYTHING
            if found["kind"] == "ignore-file":
                everywhere |= names if number <= _heading(source) else frozenset()
                continue
            at = number if line[: found.start()].strip() else _next_line(source, number)
            lines[at] = lines.get(at, frozenset()) | names
    return Ignored(lines, everywhere)


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
