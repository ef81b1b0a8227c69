"""The end of a training as text: how it ended, predicted against measured memory, reward, and the commands to go on."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from legroom.model.footprint import Peak
from legroom.model.outcome import MeasuredItem, MeasuredPeak, Outcome
from legroom.model.progress import MemorySample, Moment, Progress, finite
from legroom.rendering.layout import Part, Styled, Table
from legroom.rendering.time_left import duration_text, number_text
from legroom.units import format_size

CLOSE, FAR = 0.10, 0.25  # differences shown as good, and as a miss
_STATUS = {"finished": "green", "stopped": "yellow", "failed": "bold red"}
_RESUME = {
    "exact": "bit for bit, as if it had never stopped",
    "approximate": "approximately, since the environment cannot give its state",
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
    """All that is shown of one training.

    Args:
        progress: all of it, those before a resume included.
        samples, moments: of this session, on one clock.
        at_host_peak: name and bytes of what the prediction consists of at the host's peak.
        host_limit, gpu_limit: bytes there are, None where nobody knows.
    """

    name: str
    outcome: Outcome
    progress: Sequence[Progress] = ()
    samples: Sequence[MemorySample] = ()
    moments: Sequence[Moment] = ()
    host: Peak | None = None
    gpu: Peak | None = None
    at_host_peak: Sequence[tuple[str, int]] = ()
    host_limit: int | None = None
    gpu_limit: int | None = None


def outcome_text(
    outcome: Outcome,
    directory: Path,
    *,
    run: str = "",
    progress: Sequence[Progress] = (),
    again: str = "",
    export: tuple[str, str] = ("elsewhere", ""),
) -> Iterator[Part]:
    """Yield the report of a training.

    Args:
        directory: where the training wrote.
        run: the name or the file of the run, as the user gave it.
        progress: all of it, those before a resume included, for the reward before and after.
        again: the command that goes on.
        export: where the policy can be used, and the command that exports it; none: it cannot be exported.
    """
    yield Styled(headline(outcome, run or str(directory)), _STATUS[outcome.status])
    if outcome.error:
        yield Styled(outcome.error, "bold red")
    yield ""
    yield peak_table(outcome)
    if any(item.measured is not None for item in outcome.items):
        yield ""
        yield item_table(outcome.items)
        if alone := sum(item.measured is None for item in outcome.items):
            yield Styled(f"{alone} further item{'s' * (alone > 1)} cannot be measured separately", "dim")
    yield from attempt_lines(outcome)
    yield from retreat_lines(outcome)
    results = result_table(outcome, progress)
    if results.rows:
        yield ""
        yield results
    yield ""
    yield from _closing_table(outcome, directory, again, export)


def retreat_lines(outcome: Outcome) -> Iterator[Part]:
    """Yield every time that memory ran out, and what was done about it."""
    if outcome.retreats:
        yield ""
    for each in outcome.retreats:
        at = f"step {each.step:,}" + (f", update {each.update:,}" if each.update is not None else "")
        yield Styled(f"{at}: {each.why}; {each.what}", "yellow")


def headline(outcome: Outcome, run: str) -> str:
    """Return how a training ended, in a line."""
    took = f" in {duration_text(outcome.seconds)}" if outcome.seconds > 0 else ""
    return f"{run}: {outcome.status} after {outcome.timesteps:,} steps{took}"


def peak_table(outcome: Outcome) -> Table:
    """Return the peaks, predicted and measured."""
    table = Table(["peak memory", "predicted", "measured", "difference"], "lrrr")
    for name, peak in (("host (libraries counted once)", outcome.peaks.host), ("GPU", outcome.peaks.gpu)):
        if peak is not None:
            table.add(name, *_against(peak), style="bold")
    return table


def item_table(items: Sequence[MeasuredItem]) -> Table:
    """Return the items that could be measured, beside what was predicted of them."""
    table = Table(["item", "predicted", "measured", "difference"], "lrrr")
    for item in sorted(items, key=lambda item: -(item.measured or 0)):
        if item.measured is not None:
            table.add(item.name, *_against(item))
    return table


def _against(pair: MeasuredPeak | MeasuredItem) -> tuple[str, str, Styled]:
    measured = "–" if pair.measured is None else format_size(pair.measured)
    if pair.predicted is None:
        return "–", measured, Styled("–")
    return format_size(pair.predicted), measured, _difference(pair.predicted, pair.measured)


def _difference(predicted: int, measured: int | None) -> Styled:
    """Return by how much the measured is more or less than predicted."""
    if measured is None or predicted == 0:
        return Styled("–")
    share = measured / predicted - 1
    style = "green" if abs(share) <= CLOSE else "yellow" if abs(share) <= FAR else "red"
    return Styled(f"{share:+.1%}" if abs(share) >= 0.0005 else "0.0%", style)


def attempt_lines(outcome: Outcome) -> Iterator[Part]:
    """Yield a line per attempt where there was more than one, or where knobs were turned."""
    if len(outcome.attempts) < 2 and not any(attempt.knobs for attempt in outcome.attempts):
        return
    yield ""
    for number, attempt in enumerate(outcome.attempts, 1):
        knobs = ", ".join(f"{name}: {_shown(value)}" for name, value in attempt.knobs.items())
        label = f"attempt {number}: " if len(outcome.attempts) > 1 else ""
        yield f"{label}{attempt.reason}" + (f" ({knobs})" if knobs else "")


def result_table(outcome: Outcome, progress: Sequence[Progress]) -> Table:
    """Return the reward before and after, and the score."""
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


def _closing_table(outcome: Outcome, directory: Path, again: str, export: tuple[str, str]) -> Iterator[Part]:
    table = Table(["", ""], "vw")  # a path that is broken cannot be copied
    for name, what in _CONTENTS:
        if (directory / name).exists():
            table.add(f"{directory / name}", what)
    if table.rows:
        yield table
        yield ""
    if outcome.status == "finished":
        use, command = export
        if command:
            yield f"to use the policy {use}:"
            yield Styled(f"  {command}", "cyan")
    elif outcome.resume is None:
        yield Styled("no checkpoint to continue from", "yellow")
    else:
        yield f"to continue, {_RESUME[outcome.resume]}:"
        yield Styled(f"  {again}", "cyan")
