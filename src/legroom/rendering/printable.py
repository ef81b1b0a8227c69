"""Text that may go to a terminal: control characters in names, paths and messages are shown, never obeyed.

A run's name, an environment's id or a line of somebody's log may hold escape sequences that move the cursor, set the
title or hide text. What legroom itself draws with (colours, lines that are wiped) is added after this.
"""

from __future__ import annotations

import re

# C0 without tab and newline, DEL, C1; marks that turn the direction of text; line and paragraph separators.
_CONTROL = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u200e\u200f\u2028-\u202e\u2066-\u2069\ufeff\ud800-\udfff]")


def printable(text: str) -> str:
    """Return the text with every control character written out: `\\x1b`."""
    return text if text.isascii() and text.isprintable() else _CONTROL.sub(_written_out, text)


def _written_out(found: re.Match[str]) -> str:
    return found[0].encode("unicode_escape", "surrogatepass").decode("ascii")
