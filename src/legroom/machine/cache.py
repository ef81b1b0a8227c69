"""What was measured on this machine, kept as small JSON files under the user's cache directory.

Imports next to nothing: a prediction by arithmetic reads the cache at every start.
"""

import json
import os
import zlib
from collections.abc import Collection
from contextlib import suppress
from pathlib import Path
from typing import Any


def cache_folder() -> Path:
    """Return where legroom keeps what it measured on this machine; it may not exist yet."""
    root = os.environ.get("XDG_CACHE_HOME") or "~/.cache"
    return Path(root).expanduser() / "legroom"


def read_json(path: Path) -> Any:
    """Return the content of a cache file, None when there is none or it is damaged."""
    try:
        return json.loads(path.read_bytes())
    except (OSError, ValueError):
        return None


def read_figures(path: Path, known: Collection[str]) -> dict[str, int]:
    """Return the base figures that a cache file holds, by name; none where it is damaged or of other names."""
    content = read_json(path)
    figures = content.get("figures") if isinstance(content, dict) else None
    if not isinstance(figures, dict) or not set(figures) <= set(known):
        return {}
    return figures if all(type(n) is int and 0 <= n < 1 << 40 for n in figures.values()) else {}


def write_json(path: Path, content: Any) -> None:
    """Write a cache file in one step, so that no reader sees half of it; a cache that cannot be written is none."""
    temporary = path.with_suffix(f".{os.getpid()}.tmp")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        temporary.write_text(json.dumps(content))
        temporary.replace(path)
    except OSError:
        with suppress(OSError):
            temporary.unlink()


def digest(*parts: object) -> str:
    """Return a short name for a cache key: two checksums, because a key is no secret and hashlib is slow to import."""
    text = repr(parts).encode()
    return f"{zlib.crc32(text):08x}{zlib.adler32(text):08x}"
