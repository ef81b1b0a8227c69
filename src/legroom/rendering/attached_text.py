"""Savings attached to a program, as documents and as JSON: which make it fit, and what they did while it ran."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Sequence
from dataclasses import replace
from json import dumps
from typing import Any

from legroom.model.program_plan import Attached, AttachedNote, PredictedNote, ProgramPlan, StoredNote
from legroom.model.rehearsal import ProgramPrediction
from legroom.model.trace import Watched
from legroom.rendering.console import document
from legroom.rendering.document import Document, Note, Part, Section, Table, verdict
from legroom.rendering.item_text import peaks_data
from legroom.rendering.program_text import needs_text, not_reached_text, program_data, verdict_line
from legroom.rendering.watch_text import watched_document
from legroom.units import format_size

PLAIN, TRAIN = "as it is", "train"


def attached_plan_json(plan: ProgramPlan, command: Sequence[str]) -> str:
    """Return the plan as JSON, with the document of `predict` for what fits, else for the program as it is."""
    best = plan.best
    return document({
        "fits": plan.fits,
        "with": None if best is None else list(best.effective),
        "price": None if best is None else best.price,
        "command": None if best is None else train_command(best, command),
        "attach": None if best is None else attach_line(best),
        "tried": [_tried_data(one) for one in plan.tried],
        "runs": [program_data((best or plan.plain).prediction)],
    })  # fmt: skip


def _tried_data(one: Attached) -> dict[str, Any]:
    footprint = one.prediction.footprint
    return {
        "with": list(one.effective),
        "price": one.price,
        "fits": one.prediction.fits,
        **peaks_data(footprint),
        "notes": [{"name": note.name, "attached": note.attached, "text": note.text} for note in one.notes],
    }


def attached_plan_document(plan: ProgramPlan, command: Sequence[str]) -> Document:
    """The verdict, what was tried with what it takes, what could not be attached, and the command to type."""
    first, *others = _verdict(plan)
    told = Section("What to type", list(_closing(plan, command)))
    return Document("", first, [*others, Section("What was tried", [_table(plan)]), told], page_title="What fits")


def _verdict(plan: ProgramPlan) -> Iterator[Note]:
    best, seen = plan.best, plan.plain.prediction.rehearsal
    if seen.stopped == "failed":
        yield verdict(f"the program failed when it was rehearsed: {seen.failure or 'see its own output'}", "bold red")
    elif best is plan.plain:
        yield verdict(f"{_fits(best.prediction)} as it is: {_needs(best.prediction)}", "green")
    elif best is not None:
        how = f"{', '.join(best.effective)} ({best.price})"
        yield verdict(f"{_fits(best.prediction)} with {how}: {_needs(best.prediction)}", "green")
    elif plan.fits is False:
        yield verdict("does not fit with any saving that can be attached without changing results", "bold red")
        yield Note(f"  {verdict_line(plan.tried[-1].prediction)}")
    else:
        yield verdict(verdict_line(plan.tried[-1].prediction), "yellow")


def _closing(plan: ProgramPlan, command: Sequence[str]) -> Iterator[Part]:
    best, seen = plan.best, plan.plain.prediction.rehearsal
    for text in dict.fromkeys(
        f"not attached: {note.name}: {note.text}" for one in plan.tried for note in one.notes if not note.attached
    ):
        yield Note(text, "dim")
    if seen.stopped == "failed":
        yield f"its own output: legroom predict -- {shlex.join(command)}"
    elif best is not None:
        yield f"run it with: {train_command(best, command)}"
        if best is not plan.plain:
            yield f"or put this at the top of your program: import legroom; {attach_line(best)}"
    else:
        for way in plan.tried[-1].prediction.ways:
            yield f"try: {way}"
        yield f"its own arguments may help: legroom fit --param NAME=A..B -- {shlex.join(command)}"


def _fits(seen: ProgramPrediction) -> str:
    return "fits so far" if seen.so_far else "fits"


def _needs(seen: ProgramPrediction) -> str:
    return needs_text(seen) + not_reached_text(seen.rehearsal)


def with_cure(prediction: ProgramPrediction, tried: Attached, command: Sequence[str]) -> ProgramPrediction:
    """Return a prediction that names the saving which was tried against it, and whether it helps."""
    seen = tried.prediction
    if tried.to_ask_for and seen.fits is not False and seen.rehearsal.stopped not in ("failed", "interrupted"):
        needs = f"{_fits(seen)}, {_needs(seen)}" if seen.fits or seen.so_far else f"gets past it; {verdict_line(seen)}"
        return replace(prediction, ways=(f"{train_command(tried, command)} (rehearsed: {needs})", *prediction.ways))
    names = ",".join(set(tried.savings) - tried.free)
    why = next((note.text for note in tried.notes if note.name in names and not note.attached), verdict_line(seen))
    notes = (*prediction.footprint.notes, f"rehearsed again with --with {names}, which does not help: {why}")
    return replace(prediction, footprint=replace(prediction.footprint, notes=notes))


def train_command(best: Attached, command: Sequence[str]) -> str:
    """Return the command that runs the program with these savings."""
    options = ["--with", ",".join(best.to_ask_for)] if best.to_ask_for else []
    return shlex.join(["legroom", "train", *options, "--", *command])


def attach_line(best: Attached) -> str:
    """Return the line that attaches these savings from inside the program."""
    return f"legroom.attach({', '.join(map(dumps, best.to_ask_for))})"


def _table(plan: ProgramPlan) -> Table:
    table = Table(["tried", "price", "GPU", "host", "result"], "wlrrl")
    effects: set[tuple[str, ...]] = set()
    for one in plan.tried:
        if one.effective in effects and one is not plan.best:
            continue  # it found nothing more to attach to
        effects |= {one.effective} if one is not plan.plain else set()
        seen = one.prediction
        died = seen.rehearsal.stopped == "out-of-memory"
        fits = seen.so_far or seen.fits
        result = {True: _fits(seen), False: "out of memory" if died else "does not fit", None: "unknown"}[fits]
        gpu = seen.footprint.gpu
        table.add(
            ", ".join(one.effective) or (PLAIN if one is plan.plain else "nothing to attach to"),
            "" if one is plan.plain else one.price,
            "" if gpu is None or died else f"up to {format_size(gpu.high)}",
            "" if died else f"up to {format_size(seen.footprint.host.high)}",
            Note(result, {True: "green", False: "red", None: "yellow"}[fits]),
        )
    return table


def attached_report(
    watched: Watched,
    notes: Sequence[AttachedNote],
    stored: Sequence[StoredNote],
    predicted: Sequence[PredictedNote],
    *,
    wanted: Sequence[str],
    vram: int | None = None,
) -> Document:
    """The report at the end: that of a watching, and what the attachments did.

    Args:
        wanted: what was to be attached.
        vram: GPU memory that the user wants it to stay within.
    """
    report = watched_document(watched)
    table = Table(["", ""], "lw")
    if vram is not None and watched.trace.peak_gpu is not None:
        share = watched.trace.peak_gpu / vram
        table.add("GPU limit", f"{format_size(vram)} (--vram), the peak is {share:.0%} of it")
    for guess in predicted:
        table.add("predicted", predicted_text(guess))
    for note in notes:
        at = f" ({note.where})" if note.where else ""
        table.add("attached" if note.attached else "not attached", f"{note.name}: {note.text}{at}")
    for each in stored:
        table.add("stored", stored_text(each))
    if not notes and wanted:
        table.add("attached", f"nothing: none of {', '.join(wanted)} applies to this program")
    return replace(report, parts=[*report.parts, *([table] if table.rows else [])])


def stored_text(note: StoredNote) -> str:
    """Return what a buffer took, beside what the library's own takes."""
    share = note.nbytes / note.plain_nbytes if note.plain_nbytes else 1.0
    return f"{note.what}: {format_size(note.nbytes)} instead of {format_size(note.plain_nbytes)} ({share:.0%})"


def predicted_text(note: PredictedNote) -> str:
    """Return what a model would need without savings."""
    at = f", {note.where}" if note.where else ""
    return f"host {format_size(note.host)} without savings, by arithmetic ({note.what}{at})"


def attached_document(
    notes: Sequence[AttachedNote], stored: Sequence[StoredNote], predicted: Sequence[PredictedNote]
) -> dict[str, Any]:
    """Return the keys that the JSON of a watching has besides."""
    return {
        "predicted": [
            {"what": one.what, "where": one.where, "host": {"nbytes": one.host, "low": one.low, "high": one.high}}
            for one in predicted
        ],
        "attached": [{"name": one.name, "text": one.text, "where": one.where} for one in notes if one.attached],
        "not_attached": [{"name": one.name, "why": one.text, "where": one.where} for one in notes if not one.attached],
        "stored": [{"what": one.what, "nbytes": one.nbytes, "plain_nbytes": one.plain_nbytes} for one in stored],
    }
