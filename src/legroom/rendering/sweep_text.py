"""A sweep as text: a line while it runs, and a table of its trials when it is over, the best of them marked."""

from __future__ import annotations

import sys
import time
from typing import Any

from legroom.rendering.console import LINES
from legroom.rendering.document import Document, Note, Part, Section, Table, verdict
from legroom.sweeping.trial import SweepView
from legroom.units import duration_text, format_size, number_text

LINE_EVERY_S = 10.0


class SweepLine:
    """A line that stays in its place on a terminal, and one now and then elsewhere."""

    def __init__(self) -> None:
        self._due, self._last = 0.0, ""

    def __call__(self, view: SweepView) -> None:
        text = glance_text(view)
        if sys.stderr.isatty():
            LINES.draw([text[: LINES.width]])
        elif text != self._last and time.monotonic() >= self._due:
            self._due, self._last = time.monotonic() + LINE_EVERY_S, text
            LINES.say(text)


def glance_text(view: SweepView) -> str:
    """Return a sweep at one moment as one line."""
    counts = f"{view.running} running, {view.finished} finished, {view.failed} failed, {view.waiting} waiting"
    memory = f"{format_size(view.nbytes)} in use, {format_size(view.requested)} requested"
    return f"{'stopping: ' * view.is_stopping}{counts}; {memory} of {format_size(view.declared)}"


def sweep_document(sweep: dict[str, Any], out: str, *, resume: str = "") -> Document:
    """The report of a sweep.

    Args:
        sweep: as it is in JSON.
        resume: the command that goes on with it; empty where nothing is left to do.
    """
    trials, best = sweep["trials"], sweep["best"]
    finished = sum(trial["status"] == "finished" for trial in trials)
    head = f"{finished} of {len(trials)} trials finished in {duration_text(sweep['seconds'])}"
    at_once = f"{sweep['most_at_once']} at once at most; " if sweep["most_at_once"] else ""
    keys = list(trials[0]["params"]) if trials else []
    table = Table(
        ["", *map(_short, keys), "status", sweep["metric"], "peak", "requested", ""], "l" + "r" * len(keys) + "lrrrw"
    )
    for number, trial in enumerate(trials):
        is_best = number == best
        metric = "" if trial["metric"] is None else _metric_text(sweep["metric"], trial["metric"])
        params = [_value_text(trial["params"][key]) for key in keys]
        memory = [format_size(trial["peak"]) if trial["peak"] else "", format_size(trial["requested"])]
        note = "best" if is_best else trial["reason"] or _again(trial["runs"])
        style = "green" if is_best else "" if trial["status"] == "finished" else "red"
        table.add(f"{number:03d}", *params, trial["status"], metric, *memory, note, style=style)
    where: list[Part] = [
        f"{out}/result.json; each trial: {out}/trials/NNN",
        *([f"continue with: {resume}"] if resume else []),
    ]
    if best is None and finished:
        known = sorted({name for trial in trials for name in trial["score"]} | {"seconds", "peak"})
        where.insert(0, Note(f"no trial has a metric {sweep['metric']!r}; there are: {', '.join(known)}", "yellow"))
    declared = f"{at_once}{format_size(sweep['declared'])} declared"
    parts: list[Part] = [declared, Section("Trials", [table]), Section("Files", where)]
    return Document("", verdict(head, "green" if finished == len(trials) else "yellow"), parts)


def _again(runs: int) -> str:
    return f"run {runs} times: took more than predicted" if runs > 1 else ""


def _short(key: str) -> str:
    return key.rpartition(".")[2]


def _value_text(value: Any) -> str:
    return f"{value:g}" if isinstance(value, float) else str(value)


def _metric_text(name: str, value: float) -> str:
    return format_size(value) if name == "peak" else number_text(value)
