"""What the page was started with: runs, folders to follow, and who may ask."""

from __future__ import annotations

from dataclasses import dataclass
from ipaddress import ip_address
from pathlib import Path

from legroom.errors import BadInput
from legroom.model.run import Run

DEFAULT_HOST, DEFAULT_PORT = "127.0.0.1", 8765
LEAST_TOKEN = 8  # characters: the page may be asked as often as somebody likes


@dataclass(frozen=True)
class Started:
    """A run that the page was started with: what was said on the command line, and what it was read as."""

    target: str
    run: Run


@dataclass(frozen=True)
class Settings:
    """All that a server is told; `folders` are resolved, so that a path can be held against them."""

    host: str = DEFAULT_HOST
    port: int = DEFAULT_PORT
    token: str | None = None
    started: tuple[Started, ...] = ()
    folders: tuple[Path, ...] = ()

    @property
    def is_local(self) -> bool:
        return is_loopback(self.host)


def is_loopback(host: str) -> bool:
    """Say whether a host is this machine and cannot be reached from another one."""
    if host == "localhost":
        return True
    try:
        return ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return False


def checked(settings: Settings) -> Settings:
    """Return the settings, refused where others could reach the page without a token.

    Raises:
        BadInput: another host than this one without a token, a token that is too short, a port that cannot be.
    """
    if not settings.is_local and settings.token is None:
        raise BadInput(
            f"--host {settings.host} lets other machines in", hint="give --token SECRET as well, or leave --host out"
        )
    if settings.token is not None and not (len(settings.token) >= LEAST_TOKEN and settings.token.isascii()):
        raise BadInput(f"--token needs {LEAST_TOKEN} plain characters or more", hint="uuidgen makes one")
    if not 0 <= settings.port <= 65_535:
        raise BadInput(f"--port {settings.port} is out of range", hint="0 to 65535; 0 takes any that is free")
    return settings
