"""A training as one page: how it ended, its memory against the prediction, its reward, and where it had to retreat."""

from __future__ import annotations

from collections.abc import Iterator
from html import escape

from legroom import __version__
from legroom.model.outcome import MeasuredPeak, Outcome
from legroom.model.progress import finite
from legroom.rendering.figures.bars import Bar, Limit, Segment, bar_of_items, stacked_bars
from legroom.rendering.figures.curves import Layer, curve, timeline
from legroom.rendering.figures.tables import text_lines, text_table
from legroom.rendering.outcome_text import (
    TrainingReport,
    attempt_lines,
    headline,
    item_table,
    peak_table,
    result_table,
    retreat_lines,
)
from legroom.rendering.page import facts, footer, verdict, whole_page
from legroom.units import format_size

_STATUS = {"finished": "ok", "stopped": "growing", "failed": "leak"}
_RESUME = {"exact": "to the bit", "approximate": "approximately"}


def training_page(report: TrainingReport) -> str:
    """Return the whole page."""
    return whole_page(f"Training of {report.name}", _body(report))


def _body(report: TrainingReport) -> Iterator[str]:
    outcome = report.outcome
    yield f"<h1>{escape(headline(outcome, report.name))}</h1>"
    yield verdict(outcome.status, _STATUS[outcome.status], outcome.error or _against(outcome.peaks.host))
    resume = None if outcome.resume is None else _RESUME[outcome.resume]
    yield facts([("resuming continues", resume), ("parameters (SHA-256)", outcome.parameters_sha256)])
    yield text_table(peak_table(outcome))
    yield from _memory(report)
    yield from _retreats(outcome)
    yield from _reward(report)
    yield from _composition(report)
    versions = ", ".join(f"{name} {version}" for name, version in outcome.versions.items())
    yield footer(
        "Host memory is the sum of PSS over the tree of processes: a page that several share counts once. "
        + (f"With {versions}. " if versions else "")
        + f"Written by legroom train {__version__}."
    )


def _against(peak: MeasuredPeak) -> str:
    if not peak.predicted:
        return f"measured {format_size(peak.measured)}; nothing was predicted"
    share = peak.measured / peak.predicted - 1
    return f"measured {format_size(peak.measured)}, predicted {format_size(peak.predicted)} ({share:+.1%})"


def _memory(report: TrainingReport) -> Iterator[str]:
    host = [(s.seconds, s.host_nbytes, s.phase) for s in report.samples]
    gpu = [(s.seconds, s.gpu_nbytes, s.phase) for s in report.samples if s.gpu_nbytes is not None]
    for name, moments, predicted, nbytes in (
        ("host", host, report.host, report.host_limit),
        ("GPU", gpu, report.gpu, report.gpu_limit),
    ):
        drawn = timeline(
            [seconds for seconds, _, _ in moments], [Layer("measured", "var(--ink)", [n for _, n, _ in moments])],
            name=f"{name}-memory", title=f"{name} memory of {report.name} over time",
            phases=[phase for _, _, phase in moments], predicted=predicted,
            limit=Limit(nbytes, "available") if nbytes else None, marks=report.moments,
        )  # fmt: skip
        if drawn:
            yield f"<h2>{name[0].upper()}{name[1:]} memory over time</h2>"
            yield drawn


def _retreats(outcome: Outcome) -> Iterator[str]:
    if outcome.retreats:
        yield "<h2>Where memory ran out, or was about to</h2>"
    yield text_lines([*retreat_lines(outcome), *attempt_lines(outcome)])


def _reward(report: TrainingReport) -> Iterator[str]:
    points = [(float(p.timesteps), r) for p in report.progress if (r := finite(p.reward_mean)) is not None]
    drawn = curve(points, name="reward", title=f"Mean reward of the episodes of {report.name} over steps")
    if drawn:
        yield "<h2>Mean reward of episodes over steps</h2>"
        yield drawn
    results = result_table(report.outcome, report.progress)
    if results.rows:
        yield text_table(results)


def _composition(report: TrainingReport) -> Iterator[str]:
    """Yield what the prediction was made of, and what could be measured of it."""
    if report.at_host_peak and report.host is not None:
        yield "<h2>What the predicted peak is made of</h2>"
        predicted = bar_of_items("predicted", report.at_host_peak, report.host, f"during {report.host.phase.value}")
        whole = Segment("measured", report.outcome.peaks.host.measured, "the whole tree of processes")
        limits = [Limit(report.host_limit, "available")] if report.host_limit else []
        yield stacked_bars([predicted, Bar("measured", (whole,))], limits, title="Host memory at its peak")
    if any(item.measured is not None for item in report.outcome.items):
        yield "<h2>Item by item</h2>"
        yield text_table(item_table(report.outcome.items))
