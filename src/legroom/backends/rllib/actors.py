"""RLlib's actors: whether a cluster has room for them, asked before any is started, and why they died.

Ray itself would wait for room without an end. RLlib says at once that a runner does not answer, seldom why. That Ray's
memory monitor killed a worker is in Ray's table of workers, with the words of the monitor, seconds later: so the death
is told when it happens, and the reason with it, or when the runner is back.
"""

import logging
import os
import re
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass

from ray._private import state
from ray.core.generated.common_pb2 import NODE_OUT_OF_MEMORY  # type: ignore[attr-defined]  # made at import
from ray.core.generated.gcs_pb2 import WorkerTableData  # type: ignore[attr-defined]

from legroom.backends.rllib.translation import RllibPlan
from legroom.cluster.session import ray_nodes
from legroom.errors import BadInput
from legroom.explaining.explain import explain
from legroom.model.run import Run
from legroom.units import format_size

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


@dataclass(frozen=True)
class Room:
    """What one node has for actors."""

    cpus: float
    memory_nbytes: int
    gpus: float = 0

    def holds(self, cpus: float, nbytes: int | None, gpus: float = 0) -> int:
        """Return how many such actors the node could hold."""
        wanted = ((self.cpus, cpus), (self.memory_nbytes, nbytes), (self.gpus, gpus))
        return int(min((has / needs for has, needs in wanted if needs), default=10**6))


def local_cpus(plan: RllibPlan) -> int:
    """Return how many CPUs a Ray of our own should say it has: actors on one machine share its cores anyway."""
    asked = plan.runners * plan.cpus_per_runner + plan.learners * plan.cpus_per_learner
    return max(os.cpu_count() or 1, int(-(-asked // 1)) + 1)


def rooms_of_cluster() -> list[Room]:
    """Return what the living nodes of the connected cluster have in all."""
    nodes = [node["Resources"] for node in ray_nodes() if node["Alive"]]
    return [Room(n.get("CPU", 0.0), int(n.get("memory", 0)), n.get("GPU", 0.0)) for n in nodes]


def refuse_what_cannot_be_placed(run: Run, plan: RllibPlan, rooms: Sequence[Room]) -> None:
    """Refuse a plan whose actors the cluster could not hold even when nothing else runs on it.

    Raises:
        BadInput: with what one actor needs and what there is.
    """
    for what, count, cpus, nbytes, gpus in (
        ("env runner", plan.runners, plan.cpus_per_runner, run.memory.runner_bytes, 0.0),
        ("learner", plan.learners, plan.cpus_per_learner, run.memory.learner_bytes, plan.gpus_per_learner),
    ):
        held = sum(room.holds(cpus, nbytes, gpus) for room in rooms)
        if held >= count:
            continue
        needs = (
            f"{cpus:g} CPU" + (f" and {format_size(nbytes)}" if nbytes else "") + (f" and {gpus:g} GPU" if gpus else "")
        )
        largest = max((room.memory_nbytes for room in rooms), default=0)
        has = f"{sum(room.cpus for room in rooms):g} CPU, at most {format_size(largest)} on one"
        raise BadInput(
            f"the cluster has room for {held} of {count} {what}{'s' if count > 1 else ''} of {needs} each: "
            f"{len(rooms)} node{'s' if len(rooms) != 1 else ''} with {has}",
            hint=f"fewer of them (num_{what.replace(' ', '_')}s), or a larger cluster",
        )


class RunnerRaised(Exception):
    """An environment or a network raised something in a runner; the text is Ray's, with the traceback in it."""

    def __init__(self, text: str) -> None:
        """Say in one line what was raised, as it would have been said here."""
        self.traceback = _COLOUR.sub("", text).rstrip() + "\n"
        found = _EXCEPTION.findall(self.traceback)
        super().__init__(found[-1] if found else reason_of(text))


class DeathNotices(logging.Handler):
    """Hears RLlib take a runner out of service and put it back, and says both in one line each."""

    def __init__(self, say: Callable[[str], None]) -> None:
        super().__init__(logging.WARNING)
        self._say = say
        self._since: dict[str, float] = {}  # when a runner died
        self._looked_at_s = time.time()
        self.raised: RunnerRaised | None = None
        logging.getLogger(ACTOR_MANAGER).addHandler(self)

    def emit(self, record: logging.LogRecord) -> None:
        text = record.getMessage()
        if _RAISED.search(text):
            self.raised = self.raised or RunnerRaised(text)
        elif (gone := _GONE.search(text)) is not None and gone[1] not in self._since:
            self._since[gone[1]] = time.monotonic()
            why = self._killed_for_memory() or reason_of(text)
            self._say(f"env runner {gone[1]} does not answer ({why}): training continues without it")
        elif (back := _BACK.search(text)) is not None and back[1] in self._since:
            why = self.why_gone()
            away_s = time.monotonic() - self._since.pop(back[1])
            self._say(f"env runner {back[1]} is back after {away_s:.0f} s{why}")

    @property
    def gone(self) -> int:
        """Runners that died and are not back."""
        return len(self._since)

    def why_gone(self) -> str:
        """Return why runners died that are not back, as far as Ray told meanwhile; empty where it did not."""
        killed = self._killed_for_memory() if self._since else ""
        return f". {killed}" if killed else ""

    def close(self) -> None:
        logging.getLogger(ACTOR_MANAGER).removeHandler(self)
        super().close()

    def _killed_for_memory(self) -> str:
        """Return, in a line, what Ray's memory monitor said of a worker that it killed since this was asked last.

        Reads Ray's own table of workers (ray 2.60, `GlobalState`), which is there without Ray's dashboard.
        """
        since_s, self._looked_at_s = self._looked_at_s, time.time()
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
