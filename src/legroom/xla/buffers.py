"""XLA's buffer assignment, read: what each allocation of a compiled program is for.

Asked to (`xla_dump_to`), XLA writes it once it has optimised and scheduled a program and before it generates code.
Mirrors the text of `BufferAssignment::ToString` as of jaxlib 0.9.
"""

import re

_ALLOCATION = re.compile(r"^allocation (\d+): size (\d+),? ?(.*)$")
_KINDS = {
    "preallocated-temp": "temporaries", "parameter": "arguments", "maybe-live-out": "results", "constant": "constants",
}  # fmt: skip


def read_allocations(text: str) -> dict[str, int]:
    """Return the bytes of arguments, results (without those in an argument's place), temporaries and constants."""
    found = dict.fromkeys(("arguments", "results", "temporaries", "constants"), 0)
    for line in text.splitlines():
        if (match := _ALLOCATION.match(line)) and (kind := _kind(match[3])):
            found[kind] += int(match[2])
    return found


def _kind(words: str) -> str:
    if "thread-local" in words:
        return ""
    return next((kind for word, kind in _KINDS.items() if word in words), "")
