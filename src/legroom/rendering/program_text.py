"""A rehearsed program as a document and as JSON: the verdict first, then what holds the memory, line by line."""

from __future__ import annotations

import os
import shlex
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any, NamedTuple

from legroom import __version__
from legroom.model.footprint import Footprint, Place
from legroom.model.outcome import TrainingEvent
from legroom.model.rehearsal import OutOfMemory, ProgramPrediction, Rehearsal, SameRun, SourceLine
from legroom.model.verdict import allocator_limit
from legroom.rendering.console import document
from legroom.rendering.document import Curves, Document, Limit, Note, Part, Section, Series, Table, section, verdict
from legroom.rendering.item_text import allocator_lines, error_text, peak_bars, peak_text, why_text
from legroom.rendering.layout import SCREEN_LINES, SCREEN_WIDTH, draw
from legroom.rendering.prediction_text import FITS_STYLES, finding_text, footprint_data, need_text, shortfall
from legroom.rendering.run_file import run_data
from legroom.units import format_size, plural

SHOWN_PLACES = 3
SMALL_SHARE, ALL = 0.01, "--all lists them"  # what is not shown without --all
POINTS, STEPS, MOST_AREAS, LONGEST_SOURCE, MOST_REQUESTS = 600, 200, 300, 200, 40  # of a document
NO_LINE = "(no line of the program)"
_FOOTER = f"The program was run on a simulated GPU; nothing was trained. Written by legroom predict {__version__}."


def program_json(prediction: ProgramPrediction, **more: Any) -> str:
    """Return the document of `predict`, with what the rehearsal saw under `program`, and keys beside them."""
    return document({"runs": [program_data(prediction) | more]})


def program_data(prediction: ProgramPrediction) -> dict[str, Any]:
    """What a document says of a program: what `predict` says of a run, and what the rehearsal saw."""
    footprint = prediction.footprint
    data = footprint_data(footprint, prediction.budget, fits=prediction.fits, free=footprint)
    return data | {"program": _rehearsal_data(prediction)}


def _rehearsal_data(prediction: ProgramPrediction) -> dict[str, Any]:
    seen = prediction.rehearsal
    place = stopped_at(seen)
    return {
        "command": list(seen.command),
        "exit_code": seen.exit_code,
        "stopped": seen.stopped,
        "updates": seen.updates,
        "repeats": seen.repeats,
        "seconds": round(seen.seconds, 3),
        "jax": seen.jax if seen.jax_alone else "",
        "at": None if place is None else {"file": place[0], "line": place[1]},
        "assumed": [asdict(each) for each in seen.assumed],
        "lines": [{"file": line.file, "line": line.line, "nbytes": line.nbytes} for line in by_line(seen)],
        "areas": [_line_data(line) for line in (seen.card.lines if seen.card is not None else ())[:MOST_AREAS]],
        "card": _card_data(seen),
        "timeline": {"points": _thinned(seen.points, POINTS), "steps": _thinned(seen.step_times, STEPS)},
        "failure": seen.failure,
        "out_of_memory": None if seen.failed is None else seen.failed.text,
        "so_far": prediction.so_far,
        "not_reached": [asdict(each) | {"may_allocate": True} for each in seen.not_reached],
        "failed_requests": [_request_data(each) for each in seen.out_of_memory[:MOST_REQUESTS]],
        "budget": asdict(prediction.budget),
        "leaks": [{"file": leak.file, "line": leak.line, "nbytes": leak.nbytes} for leak in seen.leaks],
        "ways": list(prediction.ways),
        "host": host_data(seen),
        "same_run": run_data(seen.same_runs[0].run) if len(seen.same_runs) == 1 else None,
    }


def _request_data(request: OutOfMemory) -> dict[str, Any]:
    retried = None if request.retried is None else {"file": request.retried[0], "line": request.retried[1]}
    about = {key: getattr(request, key) for key in ("file", "line", "requested", "free", "caught")}
    return about | {"retried": retried}


def _card_data(seen: Rehearsal) -> dict[str, Any] | None:
    card = seen.card
    if card is None:
        return None
    at = None if card.at is None else _line_data(card.at)
    return {"phase": card.phase, "interval": card.interval, "at": at}


def _line_data(line: SourceLine) -> dict[str, Any]:
    about = {key: getattr(line, key) for key in ("file", "line", "nbytes", "module", "role")}
    return about | {"source": source_text(line.file, line.line)[:LONGEST_SOURCE]}


def _thinned(rows: Sequence[Any], most: int) -> list[Any]:
    """Return at most so many rows, of each stretch the one with most reserved and allocated."""
    if len(rows) <= most:
        return list(rows)
    size = -(-len(rows) // most)
    stretches = (rows[at : at + size] for at in range(0, len(rows), size))
    return [max(each, key=lambda row: row[:0:-1]) if isinstance(each[0], tuple) else each[0] for each in stretches]


def host_data(seen: Rehearsal) -> dict[str, Any]:
    """Return what a document says of host memory over time: now, and which buffers fill or grow, where and when."""
    keys = ("file", "line", "what", "nbytes", "touched", "seconds", "steps")
    filling = [{key: getattr(one, key) for key in keys} for one in seen.host.filling]
    known = [one for one in filling if one["seconds"] is not None]
    last = max(known, key=lambda one: one["seconds"] or 0.0, default=None)
    return {
        "now": seen.host.last,
        "full": None if last is None else {"seconds": last["seconds"], "steps": last["steps"]},
        "filling": filling,
        "growing": [asdict(one) for one in seen.host.endless],
    }


def stopped_at(seen: Rehearsal) -> tuple[str, int] | None:
    """Return the line that matters: of the request that failed, of the exception, else of the GPU's peak."""
    failed = seen.failed
    if failed is not None and failed.file:
        return failed.file, failed.line
    if seen.failed_at is not None:
        return seen.failed_at
    peak = seen.card.at if seen.card is not None else None
    return (peak.file, peak.line) if peak is not None and peak.file else None


def by_line(seen: Rehearsal) -> list[SourceLine]:
    """Return what each line of the program holds on the GPU at the peak, the modules that ran there together."""
    sums: Counter[tuple[str, int]] = Counter()
    for line in seen.card.lines if seen.card is not None else ():
        sums[line.file, line.line] += line.nbytes
    return [SourceLine(*place, nbytes) for place, nbytes in sums.most_common()]


class _Shown(NamedTuple):
    """How much of a bill is shown: items and lines from a share on, and so many lines, notes and lines of a table."""

    share: float = 0.0
    lines: int | None = None
    notes: int | None = None
    table_lines: int | None = None


# of the text, whichever leaves a screen first; --all shows what that leaves out
SCREENS = (_Shown(SMALL_SHARE, 5, 4, 9), _Shown(SMALL_SHARE, 4, 3, 5), _Shown(0.02, 4, 2, 1), _Shown(0.05, 3, 1, 1))


def program_document(prediction: ProgramPrediction, *, everything: bool = False) -> Document:
    """The verdict, how far it came, the peaks, the bill by role and by line, and what helps.

    Args:
        everything: every line and every reason; otherwise what leaves a screen.
    """
    for shown in () if everything else SCREENS:
        document = _document(prediction, shown)
        if draw(document, width=SCREEN_WIDTH, colour=False).count("\n") <= SCREEN_LINES:
            return document
    return _document(prediction, _Shown()) if everything else document


def _document(prediction: ProgramPrediction, shown: _Shown) -> Document:
    seen, footprint = prediction.rehearsal, prediction.footprint
    parts: list[Part] = []
    if (
        seen.stopped != "failed" or seen.updates or seen.card is not None
    ):  # before that, what it holds says nothing about its training
        parts += [Section("Peaks", list(_peaks(prediction))), *_over_time(prediction)]
        parts.append(Section("Host memory", [_item_table(footprint, shown, gpu=False)]))
        if seen.card is not None:
            parts.append(Section("GPU memory", [_item_table(footprint, shown, gpu=True)]))
            title = "What holds GPU memory at the peak, by line and module"
            parts.append(Section(title, [line_table(seen, shown)]))
        parts += peak_bars([(footprint.name, footprint)], prediction.budget)
    parts += section("To know", closing_lines(prediction, shown.notes))
    parts.append(Section("Command", [shlex.join(seen.command)], folded=True))
    style = FITS_STYLES[prediction.fits or (None if prediction.so_far else prediction.fits)]
    title = f"{footprint.name}: {progress_line(seen)}"
    return Document(title, verdict(verdict_line(prediction), style), parts, _FOOTER, ways=prediction.ways)


def _over_time(prediction: ProgramPrediction) -> list[Section]:
    """Allocated and reserved bytes over time, with the optimizer steps."""
    seen, limit = prediction.rehearsal, allocator_limit(prediction.footprint, prediction.budget)
    points, title = seen.points, "GPU memory over time"
    layers = (
        Series("allocated", "var(--k-update)", [allocated for _, allocated, _ in points]),
        Series("reserved, not allocated", "var(--k-runtime)", [max(held - given, 0) for _, given, held in points]),
    )
    marks = [TrainingEvent(t, "step", f"optimizer step {number:,}") for number, t in enumerate(seen.step_times, 1)]
    curves = Curves(
        title, [t for t, _, _ in points], layers, marks=marks,
        limit=None if limit is None else Limit(limit, "limit of the allocator"),
    )  # fmt: skip
    return [Section(title, [curves])] if points else []


def verdict_line(prediction: ProgramPrediction) -> str:
    """Return whether it fits, and why not or why that is unknown."""
    seen, footprint, budget = prediction.rehearsal, prediction.footprint, prediction.budget
    failed = seen.failed
    if failed is not None:
        at, skipped = place_text(failed.file, failed.line), _skipped_steps(seen)
        return f"does not fit: {skipped}out of GPU memory at {at}: {first_line(failed.text)}"
    if seen.stopped == "out-of-memory":
        at = f" at {place_text(*seen.failed_at)}" if seen.failed_at else ""
        return f"does not fit: out of host memory{at}: {seen.failure}"
    if prediction.fits is False:
        return f"does not fit: {shortfall(footprint, budget)}"
    if footprint.unknown:
        return f"unknown whether it fits: {'; '.join(footprint.unknown)}"
    needs = need_text(footprint, budget) or "no limit is known"
    if budget.host_only and footprint.gpu is not None:
        needs += f"; {gpu_text(prediction)}"
    if seen.retried is not None and seen.retried.retried is not None and (prediction.fits or prediction.so_far):
        first, place = seen.out_of_memory[0], place_text(*seen.retried.retried)
        needs = f"out of GPU memory at {place_text(first.file, first.line)}, went on with less at {place}"
        if not prediction.so_far:
            return f"fits after retries: {needs}"
        needs = f"after retries, {needs}"
    if prediction.so_far:
        return f"fits so far: {needs}{not_reached_text(seen)}"
    if prediction.fits is None:
        short = shortfall(footprint, budget)
        if short:
            return f"unknown whether it fits: {short}, if its arrays are written"
        return "no GPU budget is known (give --gpu or --vram)"
    return f"fits: {needs}"


def not_reached_text(seen: Rehearsal) -> str:
    """Return the first places that were not reached and may take GPU memory, and what to do about them."""
    if not seen.not_reached:
        return ""
    named = [f"{place_text(each.file, each.line)} ({each.text})" for each in seen.not_reached[:SHOWN_PLACES]]
    others = len(seen.not_reached) - SHOWN_PLACES
    more = f" and {others} more" if others > 0 else ""
    return f"; not reached: {', '.join(named)}{more} (shorten the training by its arguments to see them)"


def _skipped_steps(seen: Rehearsal) -> str:
    """Return how many steps were left out for want of memory, where training went on without them."""
    skipped = sum(request.steps_after > 0 and request.retried is None for request in seen.out_of_memory)
    if not skipped:
        return ""
    return f"{skipped:,} of {seen.updates + skipped:,} steps ran out of memory and were skipped: "


def needs_text(prediction: ProgramPrediction) -> str:
    """Return the upper ends of both peaks, each with its budget."""
    footprint, budget = prediction.footprint, prediction.budget
    host = f"host up to {format_size(footprint.host.high)}"
    host += f" of {format_size(budget.usable(budget.ram))}" if budget.ram else ""
    return f"{gpu_text(prediction)}, {host}" if footprint.gpu is not None else host


def gpu_text(prediction: ProgramPrediction) -> str:
    """Return the upper end of the GPU's peak with its budget, or how to give one."""
    assert prediction.footprint.gpu is not None
    needs, budget = f"GPU up to {format_size(prediction.footprint.gpu.high)}", prediction.budget
    if budget.vram:
        return f"{needs} of {format_size(budget.usable(budget.vram))}"
    return f"{needs} (compared with none; --gpu or --vram names one)" if budget.host_only else needs


def progress_line(seen: Rehearsal) -> str:
    """Return how far the rehearsal came, and why it ended."""
    what = "call" if seen.jax_alone else "optimizer step"
    steps = plural(seen.updates, what) + (" of large functions" if what == "call" else "")
    why = {
        "repeats": f"{seen.repeats:,} repeats, stopped because nothing new happened",
        "finished": "the program ended",
        "updates": "stopped at --updates",
        "seconds": "stopped at --seconds",
        "failed": f"the program failed (exit code {seen.exit_code})",
        "out-of-memory": "the program ran out of memory",
        "interrupted": "interrupted",
        "real-limit": "stopped at --real-limit",
    }[seen.stopped]
    return f"{steps} in {seen.seconds:.0f} s, {why}"


def _peaks(prediction: ProgramPrediction) -> Iterator[Part]:
    footprint, seen = prediction.footprint, prediction.rehearsal
    if footprint.gpu is not None and seen.card is not None:
        yield Note(f"GPU peak  {peak_text(footprint.gpu)}", "bold")
        yield from allocator_lines(footprint)
        if seen.card.at is not None:
            yield f"          {moment_text(seen)}"
    yield Note(f"host peak {peak_text(footprint.host)}", "bold")
    forecast = forecast_text(seen, footprint.host.nbytes)
    if forecast:
        yield f"          {forecast}"


def forecast_text(seen: Rehearsal, peak: int) -> str:
    """Return what the host holds now and will hold, when, and at which line; empty where nothing fills."""
    filling = [one for one in seen.host.filling if not one.at_once]
    if not filling:
        return ""
    last = max(filling, key=lambda one: (one.seconds or 0.0, one.nbytes))
    made = f"the arrays made at {Path(last.file).name}:{last.line} are" if last.file else "a large array is"
    if last.what:
        made = f"{last.what.split(',')[0]}, {Path(last.file).name}:{last.line}, is"
    several = len({(one.file, one.line) for one in filling}) > 1
    others = ", the last of several" if several else ""
    now = f"{format_size(seen.host.last)} now;"
    if last.seconds is None:
        return f"{now} up to {format_size(peak)} once {made} written{others}"
    return f"{now} {format_size(peak)} once {made} full{others}, {last.when}"


def _item_table(footprint: Footprint, shown: _Shown, *, gpu: bool) -> Table:
    """Items at the peak, what fills counted as full; those that are next to nothing as one line."""
    there = Counter(item for item in footprint.items if (item.place is Place.GPU) == gpu and item.total)
    alike = (replace(item, count=item.count * times) for item, times in there.items())
    items = sorted(alike, key=lambda item: -item.total)
    large = [item for item in items if item.total >= shown.share * sum(item.total for item in items)]
    rest = items[len(large) :]
    table = Table([f"on the {'GPU' if gpu else 'host'} at the peak", "size", "±", "why"], "lrrw", shown.table_lines)
    for item in large:
        name = item.name.removeprefix("host.").removeprefix("gpu.")
        table.add(name, format_size(item.total), error_text(item), why_text(item))
    if rest:
        nbytes = sum(item.total for item in rest)
        table.add(plural(len(rest), "smaller item"), format_size(nbytes), "", ALL, style="dim")
    return table


def moment_text(seen: Rehearsal) -> str:
    """Return what was running when most was handed out."""
    assert seen.card is not None and seen.card.at is not None
    at, step = seen.card.at, seen.card.interval + 1
    inside = f", in {at.module}" if at.module else ""
    phase = f", {seen.card.phase} of step {step:,}" if seen.card.phase else ""
    return f"at {place_text(at.file, at.line)}{phase}{inside}"


def line_table(seen: Rehearsal, shown: _Shown) -> Table:
    """Which line's tensors hold how much at the peak."""
    table = Table(
        ["line of the program", "holds", "share", "source"], "lrrw", None if shown.lines is None else shown.lines + 3
    )
    lines = by_line(seen)
    whole = sum(line.nbytes for line in lines) or 1
    large = [line for line in lines[: shown.lines] if line.nbytes >= shown.share * whole]
    for line in large:
        share = f"{line.nbytes / whole:.0%}"
        table.add(place_text(line.file, line.line), format_size(line.nbytes), share, source_text(line.file, line.line))
    if rest := lines[len(large) :]:
        nbytes = sum(line.nbytes for line in rest)
        share = f"{nbytes / whole:.0%}" if nbytes >= whole / 200 else ""
        table.add(plural(len(rest), "other"), format_size(nbytes), share, ALL, style="dim")
    return table


def closing_lines(prediction: ProgramPrediction, most: int | None) -> Iterator[Note]:
    """Findings, notes and assumptions, the first of each kind where not all are asked for."""
    footprint = prediction.footprint
    same = [same_run_text(each) for each in prediction.rehearsal.same_runs]
    notes = list(dict.fromkeys(f"note: {note}" for note in (*same, *footprint.notes)))
    assumed = [
        f"assumed: {place_text(each.file, each.line)}: {each.what}, {each.count:,} times" for each in footprint.assumed
    ]
    yield from map(finding_text, footprint.findings)
    for what, lines in (("notes", notes), ("assumptions", assumed)):
        shown = lines if most is None or len(lines) <= most + 1 else lines[:most]
        yield from (Note(line, "dim") for line in shown)
        if rest := len(lines) - len(shown):
            yield Note(f"{rest} more {what}: {ALL}", "dim")


def same_run_text(same: SameRun) -> str:
    """Return which run file would be the same as a model that the program makes."""
    run = same.run
    env = (f"{run.env.id}, " if run.env.id else "") + plural(run.env.n_envs, "env")
    given = "".join(f", {name}={value}" for name, value in run.hyperparams.items() if isinstance(value, int | float))
    at = place_text(same.file, same.line)
    return f"{at}: the same as a run of {run.algo} ({run.policy.name}, {env}{given}); -o run.yaml writes its run file"


def place_text(file: str, line: int) -> str:
    """Return a line of source, its file relative to here where it is below; of a library, below its folder."""
    if not file:
        return NO_LINE
    if "/site-packages/" in file:
        return f"{file.rpartition('/site-packages/')[2]}:{line} (library)"
    near = os.path.relpath(file) if Path(file).is_absolute() else file
    return f"{file if near.startswith('..') else near}:{line}"


def source_text(file: str, line: int) -> str:
    """Return the text of a line of source, empty where it cannot be read."""
    try:
        lines = Path(file).read_text(errors="replace").splitlines() if file else []
    except OSError:
        return ""
    return lines[line - 1].strip() if 0 < line <= len(lines) else ""


def first_line(text: str) -> str:
    """Return the first sentences of PyTorch's own message: what was tried, and what is free."""
    return ". ".join(text.strip().partition("\n")[0].split(". ")[:3]) or "no message"
