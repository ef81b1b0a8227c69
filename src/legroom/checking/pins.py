"""The release of a library that a project trains with, where its requirement files say so with certainty.

What is installed beside legroom need not be what the project uses. A pin is only believed where it settles the
question: `==2.3.2`, `~=2.3.0`, `<2.5` are, `>=2.0` is not.
"""

from __future__ import annotations

import re
from functools import lru_cache
from pathlib import Path

from legroom.model.files import open_plain
from legroom.reading.user_files import exists

FILES = ("requirements*.txt", "pyproject.toml", "setup.cfg", "setup.py", "environment*.y*ml", "Pipfile")
LEVELS = 2  # folders above the file that are looked at too
LARGEST = 1 << 20
_BOUND = re.compile(r"(?P<operator>===|==|~=|<=|<|\^|(?<![<>=!~])=)\s*[\"']?\s*(?P<version>\d+(?:\.\d+)*)")


def find_pin(path: str, package: str) -> tuple[str, str] | None:
    """Return the newest version of the package that the pin beside `path` allows, and the pin's file.

    None where there is no such pin.
    """
    return _above(str(Path(path).absolute().parent), package)


@lru_cache(maxsize=1024)
def _above(folder: str, package: str) -> tuple[str, str] | None:
    top = Path(folder).resolve()
    for level in (top, *list(top.parents)[: LEVELS - 1]):
        found = _in_folder(str(level), package)
        if found is not None:
            return found
        if exists(level / ".git"):
            break
    return None


@lru_cache(maxsize=256)
def _in_folder(folder: str, package: str) -> tuple[str, str] | None:
    name = re.escape(package).replace(r"\-", "[-_]")
    required = re.compile(rf"{name}(?![-\w])(?:\[[^\]]*\])?(?P<rest>[^#;]*)", re.IGNORECASE)
    for pattern in FILES:
        for file in sorted(Path(folder).glob(pattern)):
            try:
                with open_plain(file) as opened:
                    content = opened.read(LARGEST + 1)
            except OSError:
                continue
            text = content.decode("utf-8", "replace") if len(content) <= LARGEST else ""
            for line in text.splitlines():
                named = required.search(line.partition("#")[0])
                rest = re.split(r"[\"']\s*,", named["rest"])[0] if named else ""  # not the next requirement's
                newest = [_newest(bound["operator"], bound["version"]) for bound in _BOUND.finditer(rest)]
                if newest:
                    return min(newest, key=_numbers), file.name
    return None


def _newest(operator: str, version: str) -> str:
    """Return the newest version the operator allows, as far as it matters which features that has."""
    parts = [int(part) for part in version.split(".")]
    if operator == "<":  # the one just below: 2.7.1 -> 2.7.0, 2.5 -> 2.4.99
        parts += [0] * (3 - len(parts))
        for i in (2, 1, 0):
            if parts[i] > 0:
                return ".".join(map(str, [*parts[:i], parts[i] - 1, *[99] * (2 - i)]))
    if operator == "~=" and len(parts) >= 2:  # ~=2.3 allows 2.99, ~=2.3.0 allows 2.3.99
        return ".".join(map(str, [*parts[:-1], 99] if len(parts) > 2 else [parts[0], 99, 99]))
    if operator == "^":
        return f"{parts[0]}.99.99"
    return ".".join(map(str, [*parts, *[0] * (3 - len(parts))]))


def _numbers(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in version.split("."))
