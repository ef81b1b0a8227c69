"""Trainings and watches to follow: which there are in the folders that the page was given, and what they are doing.

Only folders that hold a training or a watch are named, never their files, and of a folder only the files that it is
known by are read: plain ones, up to a size, not links to somewhere else. Somebody may have sent them: the page itself
only sees that they change, and a process that can be killed reads and draws them.
"""

from __future__ import annotations

import asyncio
import json
import os
import stat
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Iterator, Sequence
from html import escape
from pathlib import Path
from typing import Any

from legroom.errors import LegroomError
from legroom.machine.live_log import LIVE, LiveSample, read_live
from legroom.model.footprint import Peak
from legroom.model.outcome import FILE_NAME as OUTCOME
from legroom.model.outcome import Outcome, Progress, finite
from legroom.rendering.document import Limit, Part, Section, Table
from legroom.rendering.outcome_text import memory_over_time, retreat_lines, reward_curve
from legroom.rendering.page import parts_html
from legroom.training.progress_log import read_progress
from legroom.training.run_folder import PREDICTION, RUN, RunFolder
from legroom.units import MIB, duration_text, format_size, number_text

WATCH, PROGRESS = "watch.json", "progress.csv"
FILES = (RUN, PREDICTION, OUTCOME, PROGRESS, LIVE, WATCH)
LARGEST_FILE = 32 * MIB
MOST_FOLDERS = 200
LOOK_EVERY_S, PING_EVERY_S = 1.0, 15.0
SILENT_AFTER_S = 30.0  # a training that is alive writes several times a second, and after days every few minutes
MOST_SAID = 12
Tell = Callable[[str, Path], Awaitable[dict[str, str]]]


def folders_in(roots: tuple[Path, ...]) -> dict[str, Path]:
    """Return the trainings and watches in the given folders and one level below, the newest first, by their names."""
    found: dict[str, Path] = {}
    for root in roots:
        below = sorted((each for each in _entries(root) if _is_followed(each)), key=_changed, reverse=True)
        for folder in ([root] if _is_followed(root) else []) + below[:MOST_FOLDERS]:
            name = root.name if folder == root else f"{root.name}/{folder.name}"
            found.setdefault(name, folder)
    return found


def listed(name: str, folder: Path) -> dict[str, Any]:
    """Return what the list says of a folder: what it is, whether it goes on, and when it was written last."""
    ago = max(time.time() - _changed(folder), 0.0)
    kind = "training" if _is_plain(folder / RUN) else "watch"
    ended = _is_plain(folder / (OUTCOME if kind == "training" else WATCH)) and not (
        kind == "training" and _goes_on(folder)
    )
    state = "ended" if ended else "silent" if ago > SILENT_AFTER_S else "running"
    return {"name": name, "kind": kind, "state": state, "ago": f"{duration_text(ago)} ago"}


def _entries(root: Path) -> list[Path]:
    try:
        with os.scandir(root) as entries:
            return [Path(entry.path) for entry in entries if entry.is_dir(follow_symlinks=False)]
    except OSError:
        return []


def _is_followed(folder: Path) -> bool:
    return any(_about(f"{folder}/{name}") for name in (RUN, WATCH, LIVE))


def _is_plain(path: Path) -> bool:
    return _about(str(path)) is not None


def _about(path: str) -> os.stat_result | None:
    """Return what is known of a file of its own that is no larger than such files are; None of anything else.

    By text: this is asked every second, and pathlib keeps what it is given (`machine.tree`).
    """
    try:
        about = os.lstat(path)
    except OSError:
        return None
    return about if stat.S_ISREG(about.st_mode) and about.st_size <= LARGEST_FILE else None


def _changed(folder: Path) -> float:
    return max((when for when, _ in _signature(folder)), default=0.0)


def _signature(folder: Path) -> tuple[tuple[float, int], ...]:
    """Return when its files were written and how long they are: what changes when there is news."""
    found = (_about(f"{folder}/{name}") for name in FILES)
    return tuple((about.st_mtime, about.st_size) for about in found if about is not None)


async def news(name: str, folder: Path, tell: Tell) -> AsyncIterator[str]:
    """Yield server-sent events: the folder as `tell` draws it, at once and whenever something in it changed."""
    seen: Any = None
    quiet_since = time.monotonic()
    while True:
        now = (_signature(folder), _is_silent(folder))
        if now != seen:
            seen, quiet_since = now, time.monotonic()
            try:
                told = await tell(name, folder)
            except LegroomError as error:
                told = _unreadable(name, error)
            yield f"data: {json.dumps(told)}\n\n"
        elif time.monotonic() - quiet_since > PING_EVERY_S:  # so that a browser that has gone is noticed
            quiet_since = time.monotonic()
            yield ": still here\n\n"
        await asyncio.sleep(LOOK_EVERY_S)


def _is_silent(folder: Path) -> bool:
    return time.time() - _changed(folder) > SILENT_AFTER_S


def told_of(name: str, folder: Path) -> dict[str, str]:
    """Return what a folder says now: a sentence, its kind (good, bad or neither) and the drawings."""
    try:
        samples, said = read_live(_text(folder, LIVE))
        words, kind, parts = (_training if _is_plain(folder / RUN) else _watch)(name, folder, samples)
        return {"words": words, "kind": kind, "body": _body(parts, said)}
    except (LegroomError, OSError, ValueError, KeyError, TypeError, ArithmeticError, AssertionError) as error:
        return _unreadable(name, error)


def _unreadable(name: str, error: Exception) -> dict[str, str]:
    return {"words": f"{name} cannot be read now: {str(error)[:200]}", "kind": "error", "body": ""}


def _text(folder: Path, name: str) -> str:
    if not _is_plain(folder / name):
        return ""
    return (folder / name).read_text("utf-8", errors="replace")


def _training(name: str, folder: Path, samples: list[LiveSample]) -> tuple[str, str, Iterator[Part]]:
    """What a training does in a sentence, whether that is good or bad, and its figures."""
    run = json.loads(_text(folder, RUN))
    if not isinstance(run, dict):
        raise ValueError(f"{RUN} holds no run")
    predicted = RunFolder(folder).predicted() if _is_plain(folder / PREDICTION) else None
    host, gpu = (predicted.host, predicted.gpu) if predicted else (None, None)
    progress = read_progress(folder / PROGRESS) if _is_plain(folder / PROGRESS) else []
    outcome = Outcome.read(folder / OUTCOME) if _is_plain(folder / OUTCOME) and not _goes_on(folder) else None
    parts = _training_parts(run, progress, samples, (host, gpu), outcome)
    name, total = str(run.get("name")), run.get("total_timesteps")
    expected = "" if host is None else f", {format_size(host.nbytes)} predicted"
    if outcome is not None:
        kind = {"finished": "good", "failed": "bad"}.get(outcome.status, "")
        why = f": {outcome.error}" if outcome.error else ""
        ended = f"{name} {outcome.status} at step {outcome.timesteps:,}{why}"
        return f"{ended}. Host peak {format_size(outcome.peaks.host.measured)}{expected}.", kind, parts
    step = f"step {progress[-1].timesteps if progress else 0:,}" + (f" of {total:,}" if isinstance(total, int) else "")
    if _is_silent(folder):
        return f"{name} has written nothing for a while: it has stopped or is waiting, at {step}.", "", parts
    if not samples:
        return f"{name} trains: {step}.", "good", parts
    over = host is not None and max(sample.host for sample in samples) > host.high
    now = f"{name} trains: {step}. Host {format_size(samples[-1].host)} now{expected}."
    return now, "bad" if over else "good", parts


def _training_parts(
    run: dict[str, Any], progress: Sequence[Progress], samples: list[LiveSample],
    predicted: tuple[Peak | None, Peak | None], outcome: Outcome | None,
) -> Iterator[Part]:  # fmt: skip
    """Figures, memory, rewards, and what was done where memory ran out."""
    reward = next((r for p in reversed(progress) if (r := finite(p.reward_mean)) is not None), None)
    table = Table(["", ""], "lw")
    table.add("algorithm", str(run.get("algo")))
    if reward is not None:
        table.add("mean reward", number_text(reward))
    if samples:
        table.add("time", duration_text(samples[-1].t - samples[0].t))
        table.add("highest so far", format_size(max(sample.host for sample in samples)))
    yield table
    yield from _memory(samples, predicted)
    yield reward_curve(progress, "episodes")
    if outcome is not None and outcome.retreats:
        yield Section("Retreats", list(retreat_lines(outcome)))


def _watch(name: str, folder: Path, samples: list[LiveSample]) -> tuple[str, str, Iterator[Part]]:
    text = _text(folder, WATCH)
    if not text:
        peak = format_size(max(sample.host for sample in samples)) if samples else "nothing"
        now = f"{format_size(samples[-1].host)} now, {peak} peak so far" if samples else "nothing measured yet"
        return f"{name} is watched: {now}.", "", _memory(samples)
    told = json.loads(text)
    if not isinstance(told, dict):
        raise ValueError(f"{WATCH} holds no watch")
    samples = samples or [LiveSample(float(s["t"]), int(s["host"]), s["gpu"], None, None) for s in told["samples"]]
    kind = {"ok": "good", "leak": "bad"}.get(told["verdict"], "")
    command = " ".join(str(part) for part in told["command"])
    said = [f"command: {command}", f"peak: {format_size(int(told['peak']['host']))}", f"{told['summary'] or ''}"]
    return f"{name}: {told['verdict']}, {told['why']}.", kind, iter([*said, *_memory(samples)])


def _goes_on(folder: Path) -> bool:
    """Whether something was written well after the outcome: the training was resumed."""
    return _is_plain(folder / LIVE) and (folder / LIVE).lstat().st_mtime > (folder / OUTCOME).lstat().st_mtime + 5


def _memory(samples: list[LiveSample], predicted: tuple[Peak | None, Peak | None] = (None, None)) -> Iterator[Section]:
    limit = next((s.limit for s in reversed(samples) if s.limit is not None), None)
    rows = [(s.t - samples[0].t, s.host, s.gpu, s.phase or "") for s in samples]
    return memory_over_time(rows, predicted, (Limit(limit, "limit") if limit is not None else None, None))


def _body(parts: Iterable[Part], said: list[tuple[float, str]]) -> str:
    lines = [f"{time.strftime('%H:%M:%S', time.localtime(t))}  {escape(text)}" for t, text in said[-MOST_SAID:]]
    log = '<h2>Messages</h2><p class="log">' + "\n".join(lines) + "</p>" if lines else ""
    return parts_html(parts) + log
