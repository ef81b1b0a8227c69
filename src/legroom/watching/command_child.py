"""Starts the command as a child of the same process group, and tells how it ended.

It is started with the signal mask of before, since ours is blocked and would be inherited; `posix_spawn` sets it
between fork and exec without running any of our code there, and reports a command that cannot be started.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from legroom.errors import LegroomError
from legroom.watching.relay import Relay

EXIT_NOT_EXECUTABLE, EXIT_NOT_FOUND = 126, 127  # as a shell has them
_PYTHON_IGNORES = (signal.SIGPIPE, signal.SIGXFSZ)


class CannotStart(LegroomError):
    """The command is not there or cannot be executed."""

    def __init__(self, message: str, exit_code: int) -> None:
        super().__init__(message)
        self.exit_code = exit_code


@dataclass(frozen=True)
class Ended:
    """How a process ended: code, signal where one ended it, and the largest RSS of it or a child it waited for."""

    code: int
    signal: int | None
    rss_peak: int


def start(command: Sequence[str], relay: Relay, mask: set[Any], environment: Mapping[str, str] | None = None) -> int:
    """Start the command and return its process id.

    Args:
        environment: its variables; None: ours.

    Raises:
        CannotStart: with the exit code a shell would give.
    """
    actions = [(os.POSIX_SPAWN_DUP2, relay.inside, number) for number in relay.outputs]
    try:
        return os.posix_spawnp(
            command[0], list(command), os.environ if environment is None else environment,
            file_actions=actions, setsigmask=mask, setsigdef=_PYTHON_IGNORES,
        )  # fmt: skip
    except (FileNotFoundError, NotADirectoryError):
        raise CannotStart(f"watch: {command[0]}: there is no such command", EXIT_NOT_FOUND) from None
    except (OSError, ValueError) as error:
        why = getattr(error, "strerror", None) or str(error)
        raise CannotStart(f"watch: {command[0]}: cannot be executed ({why})", EXIT_NOT_EXECUTABLE) from None


def ended(pid: int) -> Ended | None:
    """Return how the child ended, None while it runs."""
    done, status, usage = os.wait4(pid, os.WNOHANG)
    if done == 0:
        return None
    code = os.waitstatus_to_exitcode(status)
    number = -code if code < 0 else None
    return Ended(128 + number if number else code, number, usage.ru_maxrss * 1024)


def pass_signal(pid: int, number: int) -> None:
    """Send the signal to the command, where it still runs."""
    with suppress(ProcessLookupError, PermissionError):
        os.kill(pid, number)
