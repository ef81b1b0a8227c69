"""What became of env runners that died: heard from RLlib's log, explained from what Ray itself says meanwhile.

RLlib says at once that a runner does not answer, seldom why. That Ray's memory monitor killed a worker is in Ray's
table of workers, with the words of the monitor; other reasons come seconds later, from the node's own service, to the
standard error of the training process, or a node is gone. So the death is told when it happens, and the reason with it,
or when the runner is back.
"""

import logging
import re
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from ray._private import state
from ray.core.generated.common_pb2 import NODE_OUT_OF_MEMORY  # type: ignore[attr-defined]  # made at import
from ray.core.generated.gcs_pb2 import WorkerTableData  # type: ignore[attr-defined]

from legroom.cluster.session import ray_nodes
from legroom.explaining.explain import explain

ACTOR_MANAGER = "ray.rllib.utils.actor_manager"
_GONE = re.compile(r"taking actor (\d+) out of service")
_BACK = re.compile(r"now-healthy actor (\d+) back into service")
_NODE_GONE = re.compile(r"has been marked dead|node which ran the actor|node was terminated")
_KILLED = re.compile(
    r"SIGKILL|SYSTEM_ERROR|unexpectedly exit|Socket closed|connection error code 2|died unexpectedly|was restarted"
)
_RAISED = re.compile(r"^Ray error \((?:.{0,40}ray::\w+\.|.*raised in its creation task)", re.DOTALL)
_EXCEPTION = re.compile(r"^(?:[a-z_]\w*\.)*([A-Z]\w*: .+?)\)?(?:, taking actor \d+ out of service\.)?$", re.MULTILINE)
_USED = re.compile(r"was ([\d.]+ ?[KMGT]?B) used / ([\d.]+ ?[KMGT]?B) limit")
_COLOUR = re.compile(r"\x1b\[[0-9;]*m")
LONGEST_LOG = 1 << 20  # bytes of it that are looked at


class RunnerRaised(Exception):
    """An environment or a network raised something in a runner; the text is Ray's, with the traceback in it."""

    def __init__(self, text: str) -> None:
        """Say in one line what was raised, as it would have been said here."""
        self.traceback = _COLOUR.sub("", text).rstrip() + "\n"
        found = _EXCEPTION.findall(self.traceback)
        super().__init__(found[-1] if found else reason_of(text))


class DeathNotices(logging.Handler):
    """Hears RLlib take a runner out of service and put it back, and says both in one line each.

    Args:
        say: told the lines.
        log: where this process's standard error goes, and with it what Ray's services say.
    """

    def __init__(self, say: Callable[[str], None], log: Path) -> None:
        super().__init__(logging.WARNING)
        self._say, self._log = say, log
        self._since: dict[str, tuple[float, int]] = {}  # when a runner died, and where the log was then
        self._nodes, self._looked_at_s = _living_nodes(), time.time()
        self.raised: RunnerRaised | None = None
        logging.getLogger(ACTOR_MANAGER).addHandler(self)

    def emit(self, record: logging.LogRecord) -> None:
        text = record.getMessage()
        if _RAISED.search(text):
            self.raised = self.raised or RunnerRaised(text)
        elif (gone := _GONE.search(text)) is not None and gone[1] not in self._since:
            self._since[gone[1]] = (time.monotonic(), self._log_size())
            why = self._killed_for_memory() or reason_of(text)
            self._say(f"env runner {gone[1]} does not answer ({why}): training continues without it")
        elif (back := _BACK.search(text)) is not None and back[1] in self._since:
            died_at, offset = self._since.pop(back[1])
            why = self._reason_since(offset)
            self._say(f"env runner {back[1]} is back after {time.monotonic() - died_at:.0f} s{why}")

    @property
    def gone(self) -> int:
        """Runners that died and are not back."""
        return len(self._since)

    def why_gone(self) -> str:
        """Return why runners that are not back died, as Ray's services told meanwhile; empty where they did not."""
        if not self._since:
            return ""
        return self._reason_since(min(offset for _, offset in self._since.values()))

    def close(self) -> None:
        logging.getLogger(ACTOR_MANAGER).removeHandler(self)
        super().close()

    def _killed_for_memory(self) -> str:
        """Return what Ray's memory monitor says of workers that it killed since this was asked last."""
        told, self._looked_at_s = killed_for_memory(self._looked_at_s), time.time()
        return told

    def _log_size(self) -> int:
        with suppress(OSError):
            return self._log.stat().st_size
        return 0

    def _reason_since(self, offset: int) -> str:
        """Return what Ray's services have said since a death, as far as it is a reason."""
        if killed := self._killed_for_memory():
            return f". {killed}"
        text = ""
        with suppress(OSError), self._log.open("rb") as file:
            file.seek(offset)
            text = file.read(LONGEST_LOG).decode(errors="replace")
        explanation = explain(text)
        if explanation.recognised and explanation.kind == "ray" and explanation.certain:
            return f". {explanation.summary}"
        before, self._nodes = self._nodes, _living_nodes()
        if self._nodes < before:
            return f": its node is gone, {self._nodes} of {before} are left"
        return ""


def killed_for_memory(since_s: float) -> str:
    """Return, in a line, what Ray's memory monitor said of a worker that it killed since then; empty: it did not.

    Reads Ray's own table of workers (ray 2.60, `GlobalState`), which is there without Ray's dashboard.
    """
    with suppress(Exception):  # internals of Ray: where they have changed, nothing is known
        for row in state.state._connect_and_get_accessor().get_worker_table():
            worker = WorkerTableData.FromString(row)
            if worker.exit_type == NODE_OUT_OF_MEMORY and worker.end_time_ms >= 1000 * since_s:
                used = _USED.search(worker.exit_detail)
                memory = f": {used[1]} of {used[2]} in use on its node" if used else ""
                return f"Ray's memory monitor killed it{memory}"
    return ""


def reason_of(text: str) -> str:
    """Return why an actor died, from Ray's own message, in a few words."""
    explanation = explain(text)
    if explanation.recognised and explanation.kind == "ray" and explanation.certain:
        return explanation.summary.rstrip(".")
    for pattern, words in ((_NODE_GONE, "its node is gone"), (_KILLED, "its process is gone")):
        if pattern.search(text):
            return words
    line = next((line.strip() for line in text.splitlines() if line.strip()), "no reason given")
    return line if len(line) <= 160 else f"{line[:159]}…"


def _living_nodes() -> int:
    with suppress(Exception):  # a connection that is lost is somebody else's to tell
        return sum(bool(node["Alive"]) for node in ray_nodes())
    return 0
