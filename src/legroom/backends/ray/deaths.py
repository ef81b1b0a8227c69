"""What became of env runners that died, as RLlib says it to its log: the only place where the reason stands."""

from __future__ import annotations

import logging
import re
from collections.abc import Callable

from legroom.explaining.explain import explain

ACTOR_MANAGER = "ray.rllib.utils.actor_manager"
_ACTOR = re.compile(r"taking actor (\d+) out of service")
_REASONS = (
    (
        re.compile(r"node which ran the actor .{0,40}(?:died|dead)|node was terminated|The node .{0,80}died"),
        "its node is gone",
    ),
    (re.compile(r"SIGKILL|exit type: SYSTEM_ERROR|Worker unexpectedly exits"), "its process was killed"),
)


class DeathNotices(logging.Handler):
    """Hears RLlib take a runner out of service, and says once per death what the reason was.

    Args:
        say: told one line per runner.
    """

    def __init__(self, say: Callable[[str], None]) -> None:
        super().__init__(logging.WARNING)
        self._say = say
        self.count = 0
        logging.getLogger(ACTOR_MANAGER).addHandler(self)

    def emit(self, record: logging.LogRecord) -> None:
        text = record.getMessage()
        found = _ACTOR.search(text)
        if found is not None:
            self.count += 1
            self._say(f"env runner {found[1]} died ({reason_of(text)}): training goes on, and it is started anew")

    def close(self) -> None:
        logging.getLogger(ACTOR_MANAGER).removeHandler(self)
        super().close()


def reason_of(text: str) -> str:
    """Return why an actor died, from Ray's own message, in a few words."""
    explanation = explain(text)
    if explanation.recognised and explanation.kind == "ray":
        return explanation.summary.rstrip(".")
    for pattern, words in _REASONS:
        if pattern.search(text):
            return words
    line = next((line.strip() for line in text.splitlines() if line.strip()), "no reason given")
    return line if len(line) <= 160 else f"{line[:159]}…"
