"""A watching for a person: a live line while it goes on, a few lines at its end; and as JSON.

The line is on a terminal, wherever the command has ended its own, and is wiped before anything of the command is passed
on. Into a file or a pipe goes a line now and then, ever more rarely, and what happens: memory is about to run out, a
limit was passed.
"""

from __future__ import annotations

import json
import shlex
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import replace
from shutil import get_terminal_size
from typing import Any

from legroom import __version__
from legroom.model.trace import ROLES, Forecast, MemoryLimit, Role, Sample, Trace, Watched
from legroom.rendering.console import JSON_VERSION
from legroom.rendering.document import Curves, Document, Limit, Note, Part, Section, Series, Table
from legroom.rendering.explanation_text import MOST_ADVICE, explanation_document
from legroom.rendering.layout import draw, paint
from legroom.rendering.printable import printable
from legroom.scheduling.requests import MEASURED_BYTES, MEASURED_SHARE, measured_request, request_words
from legroom.units import duration_text, format_size
from legroom.watching.watch import Display

WATCH = "watch"  # the relay knows our own lines by `legroom watch: `
DRAW_EVERY_S = 0.5
SAY_AGAIN_SHARE = 0.35  # of the time left: a forecast that moved so much is news
FIRST_LINE_S, MOST_APART_S = 10.0, 600.0  # of the lines into a file or a pipe; each doubles the time before it
WIPE = b"\r\x1b[K"
BAR = 16
STALE_S, STALE_SHARE = 3.0, 0.15  # of the time: a forecast that was not made again
LONGEST_COMMAND = 36
LIMIT_NAMES = {"container": "what the container has", "machine": "what the machine has"}
ROLE_NAMES: dict[Role, str] = {"trainer": "trainer", "workers": "env workers", "others": "others"}
VERDICT_STYLES = {"leak": "bold red", "growing": "yellow", "ok": "green"}
_SIGNALS = {1: "SIGHUP", 2: "SIGINT", 3: "SIGQUIT", 6: "SIGABRT", 9: "SIGKILL", 11: "SIGSEGV", 13: "SIGPIPE",
            15: "SIGTERM"}  # fmt: skip


class WatchDisplay(Display):
    """Shows a watching on standard error; `write` puts bytes there whole."""

    def __init__(
        self, write: Callable[[bytes], None], *, live: bool, colour: bool = False, command: str = WATCH
    ) -> None:
        self._write, self._live, self._colour, self._command = write, live, colour, command
        self._lock = threading.Lock()  # the relay passes on in a thread of its own
        self._drawn, self._line_complete = False, True
        self._next_draw = 0.0 if live else FIRST_LINE_S
        self._said: Forecast | None = None

    def pass_on(self, chunk: bytes) -> None:
        with self._lock:
            self._write((WIPE if self._drawn else b"") + chunk)
            self._drawn, self._line_complete = False, chunk.endswith(b"\n")

    def memory(self, sample: Sample, limit: MemoryLimit | None, coming: Forecast | None) -> None:
        if sample.t < self._next_draw:
            return
        line = live_line(sample, limit, coming)
        if not self._live:
            self._next_draw = sample.t + min(sample.t, MOST_APART_S)
            self._say(line)
        elif self._line_complete:  # never over a progress bar of the command's
            self._next_draw = sample.t + DRAW_EVERY_S
            line = line[: max(get_terminal_size().columns - 1, 20)]
            self._put(WIPE + (paint(line, "dim") if self._colour else line).encode(), drawn=True)

    def exceeded(self, sample: Sample, limit: MemoryLimit) -> None:
        roles = ", ".join(f"{ROLE_NAMES[role]} {format_size(n)}" for role, n in sample.by_role.items() if n)
        self._say(f"above the limit of {format_size(limit.nbytes)}: {format_size(sample.host)} ({roles})")

    def forecast(self, coming: Forecast, limit: MemoryLimit) -> None:
        left = coming.reaches - coming.made
        if self._said is not None and abs(coming.reaches - self._said.reaches) <= SAY_AGAIN_SHARE * left:
            return
        self._said = coming
        self._say(f"{runs_out_text(coming)}; the limit is {format_size(limit.nbytes)}")

    def end(self, report: Document) -> None:
        """Take the line away and write the report, its verdict with our name, since the command wrote before it."""
        said = report.verdict or Note("")
        report = replace(report, verdict=Note(f"legroom {self._command}: {said.text}", said.style))
        width = min(max(get_terminal_size().columns, 40), 100)
        self._put(self._new_line() + draw(report, width=width, colour=self._colour).encode())

    def _say(self, text: str) -> None:
        self._put(self._new_line() + f"legroom {self._command}: {printable(text)}\n".encode())

    def _new_line(self) -> bytes:
        return WIPE if self._drawn else b"" if self._line_complete else b"\n"

    def _put(self, data: bytes, *, drawn: bool = False) -> None:
        with self._lock, suppress(OSError):  # nobody reads any more: no reason to leave the command alone
            self._write(data)
            self._drawn, self._line_complete = drawn, True


def live_line(sample: Sample, limit: MemoryLimit | None, coming: Forecast | None) -> str:
    """Return the line: how full, how much, by whom, and when it will be over."""
    parts = [format_size(sample.host)]
    if limit is not None:
        share = min(sample.host / limit.nbytes, 1.0)
        parts[0] = f"{'█' * round(share * BAR)}{'░' * (BAR - round(share * BAR))} {format_size(sample.host)}"
        parts[0] += f" of {format_size(limit.nbytes)}"
    if sample.gpu is not None:
        parts.append(f"GPU {format_size(sample.gpu)}")
    if sample.by_role.get("workers"):
        parts.append(f"workers {format_size(sample.by_role['workers'])}")
    parts.append(duration_text(sample.t))
    if coming is not None:
        parts.append(runs_out_text(coming) if coming.certain else "growing")
    return " · ".join(parts)


def runs_out_text(coming: Forecast) -> str:
    """The sentence of a forecast, with the hour on the clock."""
    left = coming.reaches - coming.made
    hour = time.strftime("%H:%M" if left >= 120 else "%H:%M:%S", time.localtime(time.time() + left))
    day = time.strftime(" on %d %b", time.localtime(time.time() + left)) if left > 20 * 3600 else ""
    return f"memory runs out in about {duration_text(left)} (at {hour}{day})"


def watched_document(watched: Watched, *, everything: bool = False) -> Document:
    """The verdict, how it ended, peaks, growth, forecast, memory over time, and what ran out.

    Args:
        everything: all advice about what ran out.
    """
    trace, name = watched.trace, command_text(watched)
    parts: list[Part] = [_figures(watched)] if trace.samples else []
    if watched.left_behind:
        pids = " ".join(map(str, watched.left_behind))
        parts.append(Note(f"still running: {len(watched.left_behind)} of its processes (kill {pids})", "yellow"))
    if watched.trouble:
        parts.append(Note(f"watching stopped early: {watched.trouble}", "yellow"))
    if not watched.exact:
        parts.append("memory of some processes is RSS, because their exact share cannot be read")
    if watched.explanation is not None:
        told = explanation_document(watched.explanation, None if everything else MOST_ADVICE)
        summary = [told.verdict] if told.verdict is not None and not watched.of_memory else []  # else it is the verdict
        parts.append(Section("What happened", [*summary, *told.parts]))
    limit = None if watched.limit is None else Limit(watched.limit.nbytes, limit_name(watched.limit))
    parts += _over_time(trace, f"{name} over {duration_text(watched.seconds)}", limit)
    began = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(watched.began))
    footer = (
        "Host memory is the sum of PSS over the tree of processes: a page that several share counts once. "
        f"Began {began}. Written by legroom watch {__version__}."
    )
    style = "bold red" if watched.of_memory else VERDICT_STYLES[trace.verdict]
    return Document(ending_text(watched), Note(verdict_text(watched), style), parts, footer)


def _over_time(trace: Trace, what: str, limit: Limit | None) -> Iterator[Section]:
    """Memory of the host by role, and of the GPU."""
    times = [sample.t for sample in trace.samples]
    layers = [
        Series(ROLE_NAMES[role], f"var(--{role})", [sample.by_role.get(role, 0) for sample in trace.samples])
        for role in ROLES
    ]
    said = f"{_host_peak_text(trace)}. Verdict {trace.verdict}, {trace.why}."
    if times:
        curves = Curves(f"Host memory of {what}", times, layers, limit=limit, said=said)
        yield Section("Host memory over time", [curves])
    on_gpu = [(sample.t, sample.gpu) for sample in trace.samples if sample.gpu is not None]
    if trace.peak_gpu is not None and on_gpu:
        layer = Series("GPU", "var(--gpu)", [nbytes for _, nbytes in on_gpu])
        yield Section("GPU memory over time", [Curves(f"GPU memory of {what}", [t for t, _ in on_gpu], [layer])])


def _figures(watched: Watched) -> Table:
    trace = watched.trace
    steps = [f"{phase.name} {format_size(phase.peak)} until {duration_text(phase.end)}" for phase in trace.phases]
    table = Table(["", ""], "lw")
    table.add("peak", peak_text(watched))
    table.add("growth", ", ".join(steps))
    for name, line in (("limit", limit_text(watched)), ("forecast", forecast_text(watched))):
        if line is not None:
            table.add(name, line)
    table.add("next time", next_time_text(watched))
    return table


def verdict_text(watched: Watched) -> str:
    """Return what came of it in a line: memory ran out, or it leaks, grows, or does neither."""
    trace = watched.trace
    if watched.of_memory:
        return "it ran out of memory" if watched.explanation is None else watched.explanation.summary
    if not trace.samples:
        return "too short to tell: it ended before its memory could be read"
    return f"{'no leak' if trace.verdict == 'ok' else trace.verdict}: {trace.why}"


def next_time_text(watched: Watched) -> str:
    """Return what to ask a scheduler for, the next time that this runs."""
    trace = watched.trace
    asked = ", ".join(request_words(measured_request(trace.peak_host)))
    if watched.of_memory or trace.verdict != "ok":
        why = "it ran out of memory" if watched.of_memory else "it was still growing"
        return f"ask for more than {asked}: {why}"
    return f"ask for {asked}: peak + {MEASURED_SHARE:.0%} + {format_size(MEASURED_BYTES)}"


def ending_text(watched: Watched) -> str:
    name = command_text(watched)
    after = f"after {duration_text(watched.seconds)}"
    if watched.exit_code is None:
        return f"{name} was watched for {duration_text(watched.seconds)}"
    if watched.signal is not None:
        signal = _SIGNALS.get(watched.signal, f"signal {watched.signal}")
        return f"{name} was ended by {signal} {after} (exit code {watched.exit_code})"
    return f"{name} ended {after}, exit code {watched.exit_code}"


def command_text(watched: Watched) -> str:
    """Return the command as it could be typed, shortened."""
    text = shlex.join(watched.command) if watched.command else f"process {watched.pid}"
    text = " ".join(text.split())
    return text if len(text) <= LONGEST_COMMAND else f"{text[: LONGEST_COMMAND - 3]}..."


def peak_text(watched: Watched) -> str:
    """Return the peaks of host, roles and GPU."""
    trace = watched.trace
    gpu = f", GPU {format_size(trace.peak_gpu)}" if trace.peak_gpu is not None else ""
    return f"host {_host_peak_text(trace)}{gpu}"


def _host_peak_text(trace: Trace) -> str:
    by_role = trace.peak_by_role
    roles = [f"{ROLE_NAMES[role]} {format_size(by_role[role])}" for role in ROLES if by_role.get(role)]
    return f"{format_size(trace.peak_host)} ({', '.join(roles)})" if roles else format_size(trace.peak_host)


def limit_text(watched: Watched) -> str | None:
    """Return the limit and how near it came, None where there was none."""
    if watched.limit is None:
        return None
    share = watched.trace.peak_host / watched.limit.nbytes
    over = f", above it after {duration_text(watched.exceeded)}" if watched.exceeded is not None else ""
    origin = limit_name(watched.limit)
    return f"{format_size(watched.limit.nbytes)} ({origin}), the peak is {share:.0%} of it{over}"


def limit_name(limit: MemoryLimit) -> str:
    """Return who sets a limit: the option that gave it, or what it is part of."""
    return LIMIT_NAMES.get(limit.origin, limit.option)


def forecast_text(watched: Watched) -> str | None:
    """Return what was expected last, None where nothing was or it is past."""
    trace = watched.trace
    if not trace.forecasts or watched.limit is None or trace.verdict == "ok":
        return None
    coming, end = trace.forecasts[-1], trace.samples[-1].t
    if end - coming.made > max(STALE_S, STALE_SHARE * end):  # later looks foretold nothing
        return None
    unless = "" if coming.certain or trace.verdict == "leak" else ", unless it settles before"
    low, high = duration_text(coming.earliest), duration_text(coming.latest or 0)
    band = f" ({low} to {high})" if coming.certain and low != high else ""
    when = f"{duration_text(coming.reaches)} after the start"
    return f"{format_size(watched.limit.nbytes)} reached {when}{band}{unless}"


def watched_json(watched: Watched, **more: Any) -> str:
    """Return the document; its samples are at most 2,000.

    Args:
        more: keys beside the watching's own.
    """
    trace = watched.trace
    document: dict[str, Any] = {
        "legroom": JSON_VERSION,
        **more,
        "command": list(watched.command),
        "pid": watched.pid,
        "began": watched.began,
        "seconds": round(watched.seconds, 3),
        "exit_code": watched.exit_code,
        "signal": watched.signal,
        "cause": watched.explanation.kind if watched.explanation is not None else None,
        "of_memory": watched.of_memory,
        "summary": watched.explanation.summary if watched.explanation is not None else None,
        "hint": watched.hint or None,
        "peak": {"host": trace.peak_host, "gpu": trace.peak_gpu, "by_role": dict(trace.peak_by_role)},
        "next_request": measured_request(trace.peak_host) if trace.samples else None,
        "verdict": trace.verdict,
        "why": trace.why,
        "growth_per_s": round(trace.growth_per_s),
        "limit": None if watched.limit is None else {"nbytes": watched.limit.nbytes, "origin": watched.limit.origin},
        "exceeded": watched.exceeded,
        "phases": [
            {"name": one.name, "begin": round(one.begin, 3), "end": round(one.end, 3), "peak": one.peak}
            for one in trace.phases
        ],
        "forecast": _forecast_json(trace.forecasts[-1]) if trace.forecasts and trace.verdict != "ok" else None,
        "forecasts": [_forecast_json(one) for one in trace.forecasts],
        "left_behind": list(watched.left_behind),
        "exact": watched.exact,
        "trouble": watched.trouble or None,
        "cpu": {"own_s": round(watched.own_cpu_s, 3), "command_s": round(watched.command_cpu_s, 3)},
        "samples": [
            {"t": round(s.t, 3), "host": s.host, "gpu": s.gpu, "by_role": dict(s.by_role)} for s in trace.samples
        ],
    }  # fmt: skip
    return json.dumps(document, ensure_ascii=False, allow_nan=False)


def _forecast_json(coming: Forecast) -> dict[str, Any]:
    return {
        "made": round(coming.made, 3),
        "reaches": round(coming.reaches, 3),
        "earliest": round(coming.earliest, 3),
        "latest": None if coming.latest is None else round(coming.latest, 3),
        "certain": coming.certain,
    }
