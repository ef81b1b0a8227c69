"""The end of a training as a document: how it ended, predicted and measured memory, reward, the commands to go on."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from legroom import __version__
from legroom.model.footprint import Peak
from legroom.model.outcome import MeasuredItem, MeasuredPeak, MemorySample, Outcome, Progress, TrainingEvent, finite
from legroom.rendering.document import (
    Bar,
    Bars,
    BarSegment,
    Curves,
    Document,
    Limit,
    Note,
    Part,
    Section,
    Series,
    Table,
    section,
    verdict,
)
from legroom.units import duration_text, format_size, number_text

CLOSE, FAR = 0.10, 0.25  # differences shown as good, and as a miss
_STATUS = {"finished": "green", "stopped": "yellow", "failed": "bold red"}
_RESUME = {
    "exact": "bit for bit, as if it had never stopped",
    "approximate": "not bit-exact, since the environment cannot save its state",
}
_CONTENTS = (
    ("outcome.json", "this outcome"),
    ("progress.csv", "every figure over time"),
    ("tensorboard", "tensorboard --logdir"),
    ("pictures", "pictures of the workload"),
    ("checkpoints", "to resume from"),
)


@dataclass(frozen=True)
class TrainingReport:
    """All that is shown of one training."""

    name: str
    outcome: Outcome
    progress: Sequence[Progress] = ()  # all of it, those before a resume included
    samples: Sequence[MemorySample] = ()  # of this session, on one clock
    moments: Sequence[TrainingEvent] = ()
    host: Peak | None = None
    gpu: Peak | None = None
    at_host_peak: Sequence[tuple[str, int]] = ()  # name and bytes of what the prediction consists of at the host's peak
    host_limit: int | None = None  # bytes there are, None where nobody knows
    gpu_limit: int | None = None


def outcome_document(
    report: TrainingReport, directory: Path, *, again: str = "", export: tuple[str, str] = ("elsewhere", "")
) -> Document:
    """The report of a training.

    Args:
        directory: where the training wrote.
        again: the command that goes on.
        export: where the policy can be used, and the command that exports it; none: it cannot be exported.
    """
    outcome = report.outcome
    took = f" in {duration_text(outcome.seconds)}" if outcome.seconds > 0 else ""
    head = verdict(f"{outcome.status} after {outcome.timesteps:,} steps{took}", _STATUS[outcome.status])
    parts: list[Part] = [Note(outcome.error, "bold red")] if outcome.error else []
    peaks = (("host (libraries counted once)", outcome.peaks.host), ("GPU", outcome.peaks.gpu))
    known = [(name, peak) for name, peak in peaks if peak is not None]
    parts.append(Section("Peak memory", [_measured("peak memory", known, "bold")]))
    parts += _over_time(report)
    if any(item.measured is not None for item in outcome.items):
        alone = sum(item.measured is None for item in outcome.items)
        rest = Note(f"{alone} further item{'s' * (alone > 1)} cannot be measured separately", "dim")
        items = sorted(outcome.items, key=lambda item: -(item.measured or 0))
        table = _measured("item", ((item.name, item) for item in items if item.measured is not None))
        parts.append(Section("Item by item", [table, *([rest] if alone else [])]))
    parts += section("Where memory ran out, or was about to", [*_attempt_lines(outcome), *retreat_lines(outcome)])
    parts += _reward(report)
    parts += _predicted_bars(report)
    parts += section("Files", [_file_table(directory)])
    parts += section("What next", _closing(outcome, again, export))
    versions = ", ".join(f"{name} {version}" for name, version in outcome.versions.items())
    footer = (
        "Host memory is the sum of PSS over the tree of processes: a page that several share counts once. "
        + (f"With {versions}. " if versions else "")
        + f"Written by legroom train {__version__}."
    )
    return Document(report.name, head, parts, footer)


def _over_time(report: TrainingReport) -> Iterator[Section]:
    """Memory of host and GPU by phase, against the prediction and what there is."""
    rows = [(s.seconds, s.host_nbytes, s.gpu_nbytes, s.phase) for s in report.samples]
    limits = [
        None if nbytes is None else Limit(nbytes, "available") for nbytes in (report.host_limit, report.gpu_limit)
    ]
    return memory_over_time(rows, (report.host, report.gpu), limits, f" of {report.name}", marks=report.moments)


def memory_over_time(
    rows: Sequence[tuple[float, int, int | None, str]],
    predicted: Sequence[Peak | None] = (None, None),
    limits: Sequence[Limit | None] = (None, None),
    of: str = "",
    *,
    marks: Sequence[TrainingEvent] = (),
) -> Iterator[Section]:
    """Curves of what was measured.

    Args:
        rows: seconds, bytes of the host and of the GPU, and the phase, empty where none is known.
        predicted, limits: of the host and of the GPU.
    """
    for where, name in enumerate(("Host", "GPU")):
        known = [(row[0], nbytes, row[3]) for row in rows if (nbytes := row[1 + where]) is not None]
        if known:
            times, held, phases = zip(*known, strict=True)
            peak, colour = predicted[where], "var(--ink)" if any(phases) else "var(--trainer)"
            yield Section(f"{name} memory over time", [Curves(
                f"{name} memory{of} over time", times, [Series("measured", colour, held)], limit=limits[where],
                phases=phases if any(phases) else (), predicted=peak, marks=marks, stacked=not any(phases),
            )])  # fmt: skip


def _reward(report: TrainingReport) -> Iterator[Section]:
    table = _result_table(report.outcome, report.progress)
    if table.rows:
        yield reward_curve(report.progress, f"the episodes of {report.name}", table)


def reward_curve(progress: Sequence[Progress], what: str, *more: Part) -> Section:
    """The mean reward over steps, and what belongs to it."""
    points = [(float(p.timesteps), r) for p in progress if (r := finite(p.reward_mean)) is not None]
    layer = Series("reward", "var(--trainer)", [reward for _, reward in points])
    curve = Curves(f"Mean reward of {what} over steps", [steps for steps, _ in points], [layer], along="count",
                   stacked=False, unit="number")  # fmt: skip
    return Section("Mean reward over steps", [curve, *more])


def _predicted_bars(report: TrainingReport) -> Iterator[Section]:
    """What the predicted peak is made of, beside what was measured."""
    if report.at_host_peak and report.host is not None:
        predicted = tuple(BarSegment(name, nbytes) for name, nbytes in report.at_host_peak if nbytes > 0)
        whole = BarSegment("measured", report.outcome.peaks.host.measured, "the whole tree of processes")
        host, phase = report.host, f"during {report.host.phase.value}"
        bars = [Bar("predicted", predicted, host.low, host.high, phase), Bar("measured", (whole,))]
        limits = [Limit(report.host_limit, "available")] if report.host_limit else []
        yield Section("What the predicted peak is made of", [Bars("Host memory at its peak", bars, limits)])


def retreat_lines(outcome: Outcome) -> Iterator[Part]:
    """Every time that memory ran out, and what was done about it."""
    for each in outcome.retreats:
        at = f"step {each.step:,}" + (f", update {each.update:,}" if each.update is not None else "")
        yield Note(f"{at}: {each.why}; {each.what}", "yellow")


def _measured(title: str, rows: Iterable[tuple[str, MeasuredPeak | MeasuredItem]], style: str = "") -> Table:
    """What was predicted of each, and measured."""
    table = Table([title, "predicted", "measured", "difference"], "lrrr")
    for name, pair in rows:
        measured = "–" if pair.measured is None else format_size(pair.measured)
        predicted = "–" if pair.predicted is None else format_size(pair.predicted)
        table.add(name, predicted, measured, _difference(pair.predicted, pair.measured), style=style)
    return table


def _difference(predicted: int | None, measured: int | None) -> Note:
    """Return by how much the measured is more or less than predicted."""
    if measured is None or not predicted:
        return Note("–")
    share = measured / predicted - 1
    style = "green" if abs(share) <= CLOSE else "yellow" if abs(share) <= FAR else "red"
    return Note(f"{share:+.1%}" if abs(share) >= 0.0005 else "0.0%", style)


def _attempt_lines(outcome: Outcome) -> Iterator[Part]:
    """Yield a line per attempt where there was more than one, or where knobs were turned."""
    if len(outcome.attempts) < 2 and not any(attempt.knobs for attempt in outcome.attempts):
        return
    for number, attempt in enumerate(outcome.attempts, 1):
        knobs = ", ".join(f"{name}: {_shown(value)}" for name, value in attempt.knobs.items())
        label = f"attempt {number}: " if len(outcome.attempts) > 1 else ""
        yield f"{label}{attempt.reason}" + (f" ({knobs})" if knobs else "")


def _result_table(outcome: Outcome, progress: Sequence[Progress]) -> Table:
    table = Table(["", "", ""], "lrw")
    for row in (*_reward_rows(progress), *_score_rows(outcome)):
        table.add(*row)
    return table


def _reward_rows(progress: Sequence[Progress]) -> list[tuple[str, ...]]:
    known = [(p.timesteps, reward) for p in progress if (reward := finite(p.reward_mean)) is not None]
    if not known:
        return []
    (began, first), (ended, last) = known[0], known[-1]
    rows: list[tuple[str, ...]] = [("reward before", number_text(first), f"mean of the episodes at step {began:,}")]
    if ended > began:
        rows.append(("reward after", number_text(last), f"at step {ended:,}"))
    return rows


def _score_rows(outcome: Outcome) -> list[tuple[str, ...]]:
    return [(name.replace("_", " "), _shown(value)) for name, value in outcome.score.items()]


def _shown(value: object) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int):
        return f"{value:,}"
    return "–" if value is None else number_text(value) if isinstance(value, float) else str(value)


def _file_table(directory: Path) -> Table:
    """What the folder holds."""
    table = Table(["", ""], "vw")  # a path that is broken cannot be copied
    for name, what in _CONTENTS:
        if (directory / name).exists():
            table.add(f"{directory / name}", what)
    return table


def _closing(outcome: Outcome, again: str, export: tuple[str, str]) -> Iterator[Part]:
    if outcome.status == "finished":
        use, command = export
        if command:
            yield f"to use the policy {use}:"
            yield Note(f"  {command}", "cyan")
    elif outcome.resume is None:
        yield Note("no checkpoint to continue from", "yellow")
    else:
        yield f"to continue, {_RESUME[outcome.resume]}:"
        yield Note(f"  {again}", "cyan")
