"""What was attached to a program, what was not and why, and what buffers took: for a person, and as JSON."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from legroom.model.attachment import AttachedNote, PredictedNote, StoredNote
from legroom.model.trace import Watched
from legroom.rendering.document import Document, Table
from legroom.rendering.watch_text import watched_document
from legroom.units import format_size

TRAIN = "train"


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
