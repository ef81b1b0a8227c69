"""A search over a program's arguments as a document and as JSON: the answer first, then what was tried."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from legroom import __version__
from legroom.model.program_plan import Number, ParamSearch, ParamTrial
from legroom.rendering.console import document
from legroom.rendering.document import Document, Note, Part, Section, Table, verdict
from legroom.rendering.item_text import peak_bars, peaks_data
from legroom.rendering.program_text import first_line, needs_text, not_reached_text, program_data
from legroom.units import format_size

_FOOTER = f"Every point is a rehearsal on a simulated GPU; nothing was trained. Written by legroom fit {__version__}."


def search_json(found: ParamSearch) -> str:
    """Return the search as JSON: the values found, every trial, and the document of `predict` for what was found."""
    best = found.best
    return document({
        "fits": found.fits,
        "params": None if best is None else dict(best.params),
        "next": None if found.next is None else dict(found.next.params),
        "why": found.why,
        "trials": [_trial_data(trial) for trial in found.trials],
        "frontier": [dict(trial.params) for trial in found.frontier],
        "runs": [] if best is None else [program_data(best.prediction)],
    })  # fmt: skip


def _trial_data(trial: ParamTrial) -> dict[str, Any]:
    footprint, seen = trial.prediction.footprint, trial.prediction.rehearsal
    return {
        "params": dict(trial.params),
        "fits": trial.fits,
        "refused": trial.refused or None,
        "stopped": seen.stopped,
        "seconds": round(seen.seconds, 3),
        **peaks_data(footprint),
    }


def search_document(found: ParamSearch) -> Document:
    """The answer, then a table of what was tried, and bars of its memory."""
    parts: list[Part] = [f"  {found.why}"] if found.why else []
    if found.frontier:
        parts.append(Section("The largest that fits", [trial_table(found.frontier, "largest that fits")]))
    if found.trials:
        parts.append(Section("What was tried", [trial_table(sorted(found.trials, key=by_value), "tried")]))
        tried = [trial for trial in sorted(found.trials, key=by_value) if not (trial.refused or _died(trial))]
        footprints = ((params_text(trial), trial.prediction.footprint) for trial in tried)
        parts += peak_bars(footprints, found.trials[0].prediction.budget)
    names = " and ".join(param.name for param in found.params)
    return Document("", _verdict(found), parts, _FOOTER, f"Memory by {names}")


def by_value(trial: ParamTrial) -> tuple[Number, ...]:
    return tuple(trial.params.values())


def _verdict(found: ParamSearch) -> Note:
    """What fits, in one line."""
    if found.best is None:
        if found.fits is False:
            smallest = min(found.trials, key=by_value)
            outcome = _outcome(smallest).removeprefix("does not fit, ")
            return verdict(f"does not fit: {params_text(smallest)} needs {outcome}", "bold red")
        return verdict("unknown what fits", "yellow")
    best = found.best
    above = ""
    if found.next is not None:
        above = f"; {params_text(found.next)} does not"
    elif len(found.params) == 1 and not found.why:
        above = ", the largest value given"
    fits = "fits so far" if best.prediction.so_far else "fits"
    unseen = not_reached_text(best.prediction.rehearsal)
    return verdict(f"{fits}: {params_text(best)} ({needs_text(best.prediction)}){above}{unseen}", "green")


def params_text(trial: ParamTrial) -> str:
    """Return the values of a trial as they were given."""
    return ", ".join(f"{name}={value:,}" for name, value in trial.params.items())


def refusal_text(found: ParamSearch) -> str:
    """Return that the program refuses all values that were tried, with its own message for the first."""
    first, count = found.trials[0], len(found.trials)
    values = f"all {count} values tried, {params_text(first)} first" if count > 1 else params_text(first)
    return f"the program refuses {values}: {first_line(first.refused)}"


def trial_line(trial: ParamTrial) -> str:
    """Return what came of one rehearsal, in one line."""
    return f"{params_text(trial)}: {_outcome(trial)} ({trial.prediction.rehearsal.seconds:.0f} s)"


def _outcome(trial: ParamTrial) -> str:
    if trial.refused:
        return f"refused: {first_line(trial.refused)}"
    failed = trial.prediction.rehearsal.failed
    if failed is not None:
        return f"out of GPU memory, {format_size(failed.requested)} requested at {_short(failed.file)}:{failed.line}"
    return f"{_result(trial)}, {needs_text(trial.prediction)}"


def _short(file: str) -> str:
    return file.rpartition("/")[2]


def trial_table(trials: Sequence[ParamTrial], title: str) -> Table:
    """Return one row per trial."""
    table = Table([title, "GPU", "host", "result"], "lrrw")
    for trial in trials:
        gpu, host = trial.prediction.footprint.gpu, trial.prediction.footprint.host
        died = trial.refused or _died(trial)
        style = {True: "green", False: "red", None: "yellow"}[trial.fits]
        table.add(
            params_text(trial),
            "" if gpu is None or died else format_size(gpu.nbytes),
            "" if died else format_size(host.nbytes),
            Note(_result(trial), style),
        )
    return table


def _died(trial: ParamTrial) -> bool:
    return trial.prediction.rehearsal.stopped == "out-of-memory"


def _result(trial: ParamTrial) -> str:
    if trial.refused:
        return f"refused: {first_line(trial.refused)}"
    if trial.prediction.rehearsal.failed is not None:
        return "out of memory"
    if trial.prediction.so_far:
        return "fits so far"
    return {True: "fits", False: "does not fit", None: "unknown"}[trial.fits]
