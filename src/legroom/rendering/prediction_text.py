"""A prediction as a document (the bill of one run, or several compared) and as JSON."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict
from typing import Any

from legroom import __version__
from legroom.backends.base import backend_of
from legroom.errors import unseen_text
from legroom.model.footprint import Finding, Footprint
from legroom.model.plan import LeanOption, Prediction
from legroom.model.spaces import describe
from legroom.model.verdict import Budget, allocator_limit, refused_array
from legroom.rendering.console import document
from legroom.rendering.document import Document, Note, Section, Table, section, verdict
from legroom.rendering.item_text import (
    allocator_lines,
    item_table,
    peak_bars,
    peak_data,
    peak_text,
    phase_table,
    size_text,
)
from legroom.rendering.layout import SCREEN_LINES, SCREEN_WIDTH, wrap
from legroom.units import format_size, plural

ITEM_KEYS = ("name", "place", "phases", "count", "nbytes", "error", "known", "why")
_FOOTER = f"Every figure is predicted; nothing was trained for it. Written by legroom predict {__version__}."
ASK = "give --gpu or --vram"
FITS_STYLES = {True: "green", False: "bold red", None: "yellow"}
_SEVERITY = {"error": "bold red", "warning": "yellow", "info": "cyan"}


def prediction_json(
    predictions: Sequence[Prediction],
    more: Sequence[dict[str, Any]] = (),
    jobs: Sequence[dict[str, Any] | None] | None = None,
    notes: Sequence[str] = (),
) -> str:
    """Return the document.

    Args:
        more: runs of which nothing but this is known.
        jobs: what to ask schedulers for.
        notes: what was noted when the runs were read.
    """
    runs = [_as_json(each) for each in predictions]
    if jobs is not None:
        runs = [run | {"job": job} for run, job in zip(runs, jobs, strict=True)]
    return document({"runs": [*runs, *more], "notes": list(notes)})


def _as_json(prediction: Prediction) -> dict[str, Any]:
    lean = prediction.lean
    data = footprint_data(prediction.footprint, prediction.budget, fits=prediction.fits, free=prediction.free)
    data["with_free_savings"]["lean_storage"] = lean is not None and lean.price == "free"
    data["with_lean_storage"] = None if lean is None else _lean_json(lean)
    data["probe"] = None if prediction.probe is None else asdict(prediction.probe)
    return data


def footprint_data(footprint: Footprint, budget: Budget, *, fits: bool | None, free: Footprint) -> dict[str, Any]:
    """Return what the document says of one footprint, be it of a run or of a program."""
    gpu = footprint.gpu
    return {
        "name": footprint.name,
        "fits": fits,
        "device": footprint.device,
        "host": peak_data(footprint.host),
        "gpu": None if gpu is None else peak_data(gpu) | {"allocator": _allocator_json(footprint, budget)},
        "with_free_savings": {"host": peak_data(free.host), "lean_storage": False},
        "with_lean_storage": None,
        "probe": None,
        "findings": [finding.as_json() for finding in footprint.findings],
        "notes": list(footprint.notes),
        "items": [{key: getattr(item, key) for key in ITEM_KEYS} for item in footprint.items],
        **({"unseen": list(footprint.unseen)} if footprint.unseen else {}),
        **({"unknown": list(footprint.unknown)} if footprint.unknown else {}),
        **({"assumed": [asdict(each) for each in footprint.assumed]} if footprint.assumed else {}),
    }


def _allocator_json(footprint: Footprint, budget: Budget) -> dict[str, Any] | None:
    """Return what PyTorch's allocator reports, its band, and what it may take: the CUDA context is in none of them."""
    peaks, limit = footprint.allocator, allocator_limit(footprint, budget)
    if peaks is None:
        return None
    own = {"peak_allocated": peaks.peak_allocated, "peak_reserved": peaks.peak_reserved}
    return own | {"band": list(peaks.band), "limit": limit}


def _lean_json(lean: LeanOption) -> dict[str, Any]:
    return {"host": peak_data(lean.footprint.host), "price": lean.price, "slowdown": None}


def predictions_document(
    predictions: Sequence[Prediction], unread: Sequence[tuple[str, Exception]], everything: bool
) -> Document:
    """The bill of one run, or several runs side by side."""
    if len(predictions) > 1 or unread:
        return comparison_document(predictions, unread)
    return prediction_document(predictions[0], everything=everything)


def prediction_document(prediction: Prediction, *, everything: bool = False) -> Document:
    """Whether it fits, the peaks, then the bill: bars, phases, items, and what else to know.

    Args:
        everything: all items, and all that is known of them; otherwise the small ones are summed up, for a screen.
    """
    footprint = prediction.footprint
    head, remarks = verdict_line(prediction), list(remark_lines(prediction))
    peaks, phases = list(peak_lines(prediction)), phase_table(footprint)
    title = headline(prediction)
    texts = [head.text, title, *(note if isinstance(note, str) else note.text for note in (*peaks, *remarks))]
    around = 1 + 1 + len(phases.rows) + 1 + 1 + sum(len(wrap(text, SCREEN_WIDTH)) for text in texts)
    items = item_table(footprint, None if everything else SCREEN_LINES - around)
    parts = [
        *peaks,
        *peak_bars(_with_savings(prediction), prediction.budget),
        Section("Memory by phase", [phases]),
        Section("Item by item", [items]),
        *section("To know", remarks),
    ]
    return Document(title, head, parts, _FOOTER)


def _with_savings(p: Prediction) -> Iterator[tuple[str, Footprint]]:
    """The run as it is and with what would save memory, the same again left out."""
    yield p.footprint.name, p.footprint
    if p.free.host.nbytes < p.footprint.host.nbytes:
        yield "with every free saving", p.free
    if p.lean is not None and p.lean.footprint.host.nbytes < p.free.host.nbytes:
        yield "and with lean storage", p.lean.footprint


def comparison_document(predictions: Sequence[Prediction], unread: Sequence[tuple[str, Exception]] = ()) -> Document:
    """How many fit, one row per run, the first being what the others are compared with, and notes.

    Args:
        unread: runs that could not be read or predicted, and why.
    """
    table = comparison_table(predictions)
    for name, _ in unread:
        table.add(name, *[""] * (len(table.header) - 2), Note("not read", "yellow"))
    reasons = (f"{name}: {reason}" for name, reason in unread)
    parts = [
        table,
        Section("To know", [*reasons, *comparison_lines(predictions)]),
        *peak_bars([(p.footprint.name, p.footprint) for p in predictions], predictions[0].budget),
        *(Section(headline(p), [verdict_line(p), item_table(p.footprint)], folded=True) for p in predictions),
    ]
    title = f"{', '.join(p.footprint.name for p in predictions)}: side by side"
    return Document("", _comparison_verdict(predictions, len(unread)), parts, _FOOTER, title)


def _comparison_verdict(predictions: Sequence[Prediction], unread: int = 0) -> Note:
    fitting = [p.footprint.name for p in predictions if p.fits]
    unknown = sum(p.fits is None for p in predictions) + unread
    refused = sum(bool(p.footprint.refused) for p in predictions)
    named = ", ".join(fitting[:3]) + (f" and {len(fitting) - 3} more" if len(fitting) > 3 else "")
    text = f"{len(fitting) or 'none'} of {len(predictions) + unread} runs fit{'s' if len(fitting) == 1 else ''}"
    text += (f": {named}" if named else "") + (f"; unknown for {unknown}" if unknown else "")
    text += f"; {refused} invalid" if refused else ""
    return verdict(text, "green" if fitting else "yellow" if unknown else "bold red")


def comparison_table(predictions: Sequence[Prediction]) -> Table:
    """Return one row per run, the first being what the others are compared with."""
    with_gpu = any(p.footprint.gpu for p in predictions)
    gpu_title, gpu_align = (["GPU peak"], "r") if with_gpu else ([], "")
    table = Table(
        ["configuration", "host peak", *gpu_title, "observation", "steps", "envs", "reduction", "fits"],
        f"lr{gpu_align}wrrrl",
        spare=("observation", "reduction"),
    )
    first = predictions[0].footprint.host.nbytes
    largest = max((p for p in predictions if p.fits), key=_everything, default=None)
    for p in predictions:
        gpu = p.footprint.gpu
        table.add(
            p.footprint.name,
            format_size(p.footprint.host.nbytes),
            *([size_text(gpu.nbytes if gpu else 0)] if with_gpu else []),
            describe(backend_of(p.run).predictor.storage(p.run).observation),
            f"{backend_of(p.run).predictor.storage(p.run).steps:,}",
            f"{p.run.env.n_envs:,}",
            f"{first / p.footprint.host.nbytes:.1f}×",
            Note("yes, the largest", "green") if p is largest else _yes_or_no(p),
        )
    return table


def comparison_lines(predictions: Sequence[Prediction]) -> Iterator[str | Note]:
    """The budget, findings, and notes, what is noted of several runs once."""
    yield budget_line(predictions[0].footprint, predictions[0].budget)
    noted: dict[str, list[str]] = {}
    for p in predictions:
        yield from (finding_text(finding, p.footprint.name) for finding in p.footprint.findings)
        for note in p.footprint.notes:
            noted.setdefault(note, []).append(p.footprint.name)
    yield from (Note(f"{', '.join(names)}: {note}", "dim") for note, names in noted.items())


def headline(p: Prediction) -> str:
    """Return what a run is, in a line."""
    run = p.run
    envs = plural(run.env.n_envs, "env")
    storage = backend_of(run).predictor.storage(run)
    kept = f", {storage}" if storage.steps else ""
    observation = describe(storage.observation)
    return f"{p.footprint.name}: {run.algo} on {p.footprint.device}, {envs}{kept}, observation {observation}"


def verdict_line(p: Prediction, *, ask: str = ASK) -> Note:
    """Whether it fits, in its colour."""
    return verdict(verdict_text(p, ask=ask), FITS_STYLES[p.fits])


def peak_lines(p: Prediction) -> Iterator[str | Note]:
    yield Note(f"host peak {peak_text(p.footprint.host)}", "bold")
    if p.footprint.gpu is not None:
        yield Note(f"GPU peak  {peak_text(p.footprint.gpu)}", "bold")
        yield from allocator_lines(p.footprint)
    if p.free.host.nbytes < p.footprint.host.nbytes:
        yield f"with every free saving ({', '.join(_free_names(p))}): host peak {format_size(p.free.host.nbytes)}"
    if p.lean is not None and _saves_more(p):
        size = format_size(p.lean.footprint.host.nbytes)
        also = "and " if p.free.host.nbytes < p.footprint.host.nbytes else ""
        yield f"{also}with lean storage ({_price_text(p.lean)}): host peak {_at_most(p.lean)}{size}"


def remark_lines(p: Prediction) -> Iterator[str | Note]:
    """Findings, notes and assumptions."""
    yield from footprint_remarks(p.footprint)
    for each in p.footprint.assumed:
        yield Note(f"assumed: {each.file}:{each.line}: {each.what}, {each.count:,} times", "dim")


def footprint_remarks(footprint: Footprint) -> Iterator[Note]:
    """Findings and notes."""
    for finding in footprint.findings:
        yield finding_text(finding)
    for note in footprint.notes:
        yield Note(f"note: {note}", "dim")


def verdict_text(p: Prediction, *, ask: str = ASK) -> str:
    """Whether it fits, and where it does not; `ask` is how a GPU can be named."""
    short = shortfall(p.footprint, p.budget)
    if p.footprint.refused:
        return f"invalid, whatever the memory (the error below); {need_text(p.footprint, p.budget)}".removesuffix("; ")
    if short:
        return f"does not fit: {short}"
    if p.footprint.unseen:
        return f"unknown whether it fits: {unseen_text(p.footprint.unseen)}"
    if p.footprint.unknown:
        return f"unknown whether it fits: {'; '.join(p.footprint.unknown)}"
    if p.footprint.not_built:
        need = need_text(p.footprint, p.budget) or f"up to {format_size(p.footprint.host.high)} of RAM"
        return f"unknown whether it fits: {need}, without the environment, which was not built: {p.footprint.not_built}"
    if p.fits is None:
        return f"fits the host; no GPU budget is known ({ask})"
    return f"fits: {need_text(p.footprint, p.budget) or 'no limit is known'}"


def shortfall(footprint: Footprint, budget: Budget) -> str:
    """Return where a footprint exceeds its budget, and by what; empty where it does not."""
    parts = (need_text(footprint, budget, only_exceeded=True), refused_array(footprint, budget))
    return "; ".join(filter(None, parts))


def need_text(footprint: Footprint, budget: Budget, *, only_exceeded: bool = False) -> str:
    """Return what a footprint needs at most of each kind of memory that has a limit, beside that limit."""
    places = (
        ("RAM", footprint.host, budget.ram, budget.ram_origin),
        ("GPU memory", footprint.gpu, budget.vram, budget.vram_origin),
    )
    parts = [
        f"up to {format_size(peak.high)} of {name}, {limit_text(budget, limit, origin)}"
        for name, peak, limit, origin in places
        if peak is not None and limit is not None and (peak.high > budget.usable(limit) or not only_exceeded)
    ]
    return f"needs {'; '.join(parts)}" if parts else ""


def limit_text(budget: Budget, limit: int, origin: str) -> str:
    """Return a limit, what is kept free of it, and who says so."""
    kept = f" less {budget.reserve:.0%} reserve" if budget.reserve else ""
    return f"{format_size(limit)}{kept} {origin}".rstrip()


def budget_line(footprint: Footprint, budget: Budget) -> str:
    """Return what there is of the memory that a footprint uses."""
    parts = []
    if budget.ram is not None:
        parts.append(f"RAM: {limit_text(budget, budget.ram, budget.ram_origin)}")
    if footprint.gpu is not None and budget.vram is not None:
        parts.append(f"GPU: {limit_text(budget, budget.vram, budget.vram_origin)}")
    return "; ".join(parts)


def _free_names(p: Prediction) -> list[str]:
    names = ["lean storage"] if p.lean is not None and p.lean.price == "free" else []
    return [*names, "light workers"] if p.run.env.workers == "subproc" else names


def _saves_more(p: Prediction) -> bool:
    """Say whether lean storage saves something beyond what is free."""
    return p.lean is not None and p.lean.price != "free" and p.lean.footprint.host.nbytes < p.free.host.nbytes


def _price_text(lean: LeanOption) -> str:
    return "bit-equal; may be slower" if lean.measured else "bit-equal; speed not measured"


def _at_most(lean: LeanOption) -> str:
    return "" if lean.measured else "at most "


def finding_text(finding: Finding, name: str = "") -> Note:
    prefix = f"{name}: " if name else ""
    hint = f" ({finding.hint})" if finding.hint else ""
    return Note(f"{finding.severity}: {prefix}{finding.message}{hint}", _SEVERITY[finding.severity])


def _everything(p: Prediction) -> int:
    return p.footprint.host.nbytes + (p.footprint.gpu.nbytes if p.footprint.gpu else 0)


def _yes_or_no(p: Prediction) -> Note:
    if p.footprint.refused:
        return Note("no: invalid", "red")
    return {True: Note("yes", "green"), False: Note("no", "red"), None: Note("?")}[p.fits]
