"""`live.jsonl`: what a training or a watch shows while it goes on, for whoever looks at its folder meanwhile.

One JSON object per line: memory (`t`, seconds since 1970, with `host`, `gpu`, `phase`, `limit`) or a word (`t`, `say`).
Samples come several times a second and a training lasts days, so a line is written ever more seldom: after a time t at
most every t/1000, with the highest sample since the last line, which keeps every peak and needs a few thousand lines.
"""

import json
import time
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

LIVE = "live.jsonl"
OFTEN_S, LINES = 0.5, 1000
LONGEST_SAY = 500


class LiveLog:
    """Appends to the file; a disk that is full stops nobody."""

    def __init__(self, folder: Path) -> None:
        self._path, self._began, self._due = folder / LIVE, time.time(), 0.0
        self._highest: dict[str, Any] | None = None
        if self._path.exists():  # a kill may have cut its last line off: what follows shall not be lost with it
            with suppress(OSError), self._path.open("a", encoding="utf-8") as file:
                file.write("\n")

    def memory(self, host: int, gpu: int | None, *, phase: str | None = None, limit: int | None = None) -> None:
        """Take a sample; it is written when one is due and none since the last was higher."""
        now = time.time()
        if self._highest is None or host >= self._highest["host"]:
            self._highest = {"t": round(now, 2), "host": host, "gpu": gpu, "phase": phase, "limit": limit}
        if now >= self._due:
            self._write(self._highest)
            self._highest, self._due = None, now + max(OFTEN_S, (now - self._began) / LINES)

    def say(self, text: str) -> None:
        self._write({"t": round(time.time(), 2), "say": text[:LONGEST_SAY]})

    def _write(self, record: dict[str, Any]) -> None:
        told = {key: value for key, value in record.items() if value is not None}
        with suppress(OSError), self._path.open("a", encoding="utf-8") as file:
            file.write(json.dumps(told) + "\n")


@dataclass(frozen=True)
class LiveSample:
    """Memory at one moment."""

    t: float
    host: int
    gpu: int | None
    phase: str | None
    limit: int | None


def read_live(text: str) -> tuple[list[LiveSample], list[tuple[float, str]]]:
    """Return the samples and the words of a log; a line that is cut off or none of ours is left out."""
    samples: list[LiveSample] = []
    said: list[tuple[float, str]] = []
    for line in text.splitlines():
        try:
            record = json.loads(line)
            when = float(record["t"])
            if "say" in record:
                said.append((when, str(record["say"])))
            else:
                gpu, limit, phase = record.get("gpu"), record.get("limit"), record.get("phase")
                numbers = (int(record["host"]), None if gpu is None else int(gpu))
                there = None if limit is None else int(limit)
                samples.append(LiveSample(when, *numbers, None if phase is None else str(phase), there))
        except (ValueError, TypeError, KeyError, RecursionError, OverflowError):
            continue
    return samples, said
