"""What the page was started with: its port, runs, and folders to follow."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from legroom.model.run import Run

HOST, DEFAULT_PORT = "127.0.0.1", 8765  # no other machine reaches it


@dataclass(frozen=True)
class Started:
    """A run that the page was started with: what was said on the command line, and what it was read as."""

    target: str
    run: Run


@dataclass(frozen=True)
class Settings:
    """All that a server is told; `folders` are resolved, so that a path can be held against them."""

    port: int = DEFAULT_PORT
    started: tuple[Started, ...] = ()
    folders: tuple[Path, ...] = ()
