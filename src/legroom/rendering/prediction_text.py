"""A prediction as a bill (one run), as a comparison (several) and as JSON."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict
from typing import Any

from legroom.backends.base import backend_of
from legroom.errors import unseen_text
from legroom.model.finding import Finding
from legroom.model.footprint import HOST_PLACES, Footprint, Phase, Place
from legroom.model.prediction import LeanOption, Prediction
from legroom.model.spaces import describe
from legroom.model.verdict import Budget, allocator_limit, fits_closely, refused_array
from legroom.rendering.console import document
from legroom.rendering.item_text import PLACE_NAMES, error_text, peak_data, peak_text, when_text, why_text
from legroom.rendering.layout import Part, Styled, Table, verdict, wrap
from legroom.units import format_size, plural

ITEM_KEYS = ("name", "place", "phases", "count", "nbytes", "error", "known", "why")
SCREEN_LINES, SCREEN_WIDTH = 40, 100  # a bill shall be seen as a whole; --all shows what that leaves out
# items below this share of their place are shown as one line: the first share that leaves a screen
SMALL_SHARES = (0.002, 0.005, 0.01, 0.02, 0.05)
_FITS_STYLES = {True: "green", False: "bold red", None: "yellow"}
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


def prediction_text(prediction: Prediction, *, everything: bool = False) -> Iterator[Part]:
    """Yield whether it fits, peaks, then the bill: phases, items (the small ones summed up), and what else to know."""
    phases, remarks = phase_table(prediction.footprint), list(remark_lines(prediction))
    opening = [verdict_line(prediction), Styled(headline(prediction), "bold"), *peak_lines(prediction)]
    told = sum(
        len(wrap(part.text if isinstance(part, Styled) else str(part), SCREEN_WIDTH)) for part in (*opening, *remarks)
    )
    around = 1 + 1 + len(phases.rows) + 1 + 1 + told  # empty lines, the head of the phases, the rest
    yield from opening
    yield ""
    yield phases
    yield ""
    yield _item_table(prediction.footprint, None if everything else SCREEN_LINES - around)
    if remarks:
        yield ""
        yield from remarks


def comparison_text(predictions: Sequence[Prediction], unread: Sequence[tuple[str, Exception]] = ()) -> Iterator[Part]:
    """Yield how many fit, one row per run, the first being what the others are compared with, and notes.

    Args:
        unread: runs that could not be read or predicted, and why.
    """
    yield _comparison_verdict(predictions, len(unread))
    table = comparison_table(predictions)
    for name, _ in unread:
        table.add(name, *[""] * (len(table.header) - 2), Styled("not read", "yellow"))
    yield table
    yield ""
    for name, reason in unread:
        yield f"{name}: {reason}"
    yield from comparison_lines(predictions)


def _comparison_verdict(predictions: Sequence[Prediction], unread: int = 0) -> Styled:
    """Return how many of several runs fit, and which."""
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
            *([_size(gpu.nbytes if gpu else 0)] if with_gpu else []),
            describe(backend_of(p.run).stored_observation(p.run)),
            f"{backend_of(p.run).storage(p.run).steps:,}",
            f"{p.run.env.n_envs:,}",
            f"{first / p.footprint.host.nbytes:.1f}×",
            Styled("yes, the largest", "green") if p is largest else _yes_or_no(p),
        )
    return table


def comparison_lines(predictions: Sequence[Prediction]) -> Iterator[Part]:
    """Yield the budget, findings, notes, and what savings would do."""
    yield budget_line(predictions[0].footprint, predictions[0].budget)
    for p in predictions:
        for finding in p.footprint.findings:
            yield finding_text(finding, p.footprint.name)
        for note in p.footprint.notes:
            yield Styled(f"{p.footprint.name}: {note}", "dim")
    yield from _savings_summary(predictions)


def estimate_text(predictions: Sequence[Prediction]) -> str:
    """Return in a line what arithmetic says of runs, while something better is being worked out."""
    told = []
    for p in predictions[:3]:
        gpu = f", {format_size(p.footprint.gpu.nbytes)} of GPU memory" if p.footprint.gpu is not None else ""
        fits = {True: "fits", False: "does not fit", None: "unknown whether it fits"}[p.fits]
        told.append(f"{p.footprint.name}: about {format_size(p.footprint.host.nbytes)} of RAM{gpu}, {fits}")
    return f"{'; '.join(told)} by arithmetic; measuring"


def headline(p: Prediction) -> str:
    """Return what a run is, in a line."""
    run, backend = p.run, backend_of(p.run)
    envs = plural(run.env.n_envs, "env")
    storage = backend.storage(run)
    kept = f", {storage}" if storage.steps else ""
    observation = describe(backend.stored_observation(run))
    return f"{p.footprint.name}: {run.algo} on {p.footprint.device}, {envs}{kept}, observation {observation}"


def phase_table(footprint: Footprint) -> Table:
    """Return what each place holds in each phase."""
    table = Table(["memory by phase", *(phase.value for phase in Phase)], "l" + "r" * len(Phase))
    for place in (*HOST_PLACES, Place.GPU):
        if any(item.place is place for item in footprint.items):
            table.add(_place_name(footprint, place), *(_size(footprint.at(phase, (place,))) for phase in Phase))
    if any(item.place in (Place.WORKER, Place.SHM) for item in footprint.items):
        table.add("host total", *(_size(footprint.at(phase)) for phase in Phase), style="bold")
    return table


def _place_name(footprint: Footprint, place: Place) -> str:
    if place is not Place.WORKER:
        return PLACE_NAMES[place]
    count = max(item.count for item in footprint.items if item.place is place)
    return f"{count:,} workers"


def _item_table(footprint: Footprint, most_lines: int | None) -> Table:
    """Return the items by place; all of them and all that is known of them where no number of lines is given."""
    shares = (0.0,) if most_lines is None else SMALL_SHARES
    for share in shares:
        table = _items_from(footprint, share, most_lines)
        if most_lines is None or len(table.rows) < most_lines:
            break
    return table


def _items_from(footprint: Footprint, share: float, most_lines: int | None) -> Table:
    """Return the items that have at least this share of their place, and the others as one line."""
    table = Table(["item", "size", "±", "when", "why"], "lrrlw", most_lines)
    for place in Place:
        items = sorted((item for item in footprint.items if item.place is place), key=lambda item: -item.total)
        smallest = share * sum(item.total for item in items)
        shown = [item for item in items if item.total >= smallest]
        if items:
            table.add(PLACE_NAMES[place], style="bold")
        for item in shown:
            table.add(f"  {item.name}", _size(item.total), error_text(item), when_text(item), why_text(item))
        if rest := items[len(shown) :]:
            count = plural(len(rest), "smaller item")
            table.add(f"  {count}", _size(sum(item.total for item in rest)), "", "", "--all lists them", style="dim")
    return table


def verdict_line(p: Prediction) -> Styled:
    """Return whether it fits, in its colour."""
    return verdict(verdict_text(p), _FITS_STYLES[p.fits])


def peak_lines(p: Prediction) -> Iterator[Part]:
    """Yield peaks, and what savings would do."""
    yield Styled(f"host peak {peak_text(p.footprint.host)}", "bold")
    if p.footprint.gpu is not None:
        yield Styled(f"GPU peak  {peak_text(p.footprint.gpu)}", "bold")
        if p.footprint.allocator is not None:
            peaks = p.footprint.allocator
            allocated, reserved = format_size(peaks.peak_allocated), format_size(peaks.peak_reserved)
            low, high = map(format_size, peaks.band)
            between = "" if low == high else f" (between {low} and {high})"
            yield f"          PyTorch's allocator: {allocated} allocated, {reserved} reserved{between}"
    if p.free.host.nbytes < p.footprint.host.nbytes:
        yield f"with every free saving ({', '.join(_free_names(p))}): host peak {format_size(p.free.host.nbytes)}"
    if p.lean is not None and _saves_more(p):
        size = format_size(p.lean.footprint.host.nbytes)
        also = "and " if p.free.host.nbytes < p.footprint.host.nbytes else ""
        yield f"{also}with lean storage ({_price_text(p.lean)}): host peak {_at_most(p.lean)}{size}"


def remark_lines(p: Prediction) -> Iterator[Part]:
    """Yield findings, notes and assumptions."""
    for finding in p.footprint.findings:
        yield finding_text(finding)
    for note in p.footprint.notes:
        yield Styled(f"note: {note}", "dim")
    for each in p.footprint.assumed:
        yield Styled(f"assumed: {each.file}:{each.line}: {each.what}, {each.count:,} times", "dim")


def verdict_text(p: Prediction) -> str:
    """Return whether it fits, and where it does not."""
    short = shortfall(p.footprint, p.budget)
    if p.footprint.refused:
        return f"invalid, whatever the memory (the error below); {need_text(p.footprint, p.budget)}".removesuffix("; ")
    if short:
        return f"does not fit: {short}"
    if p.footprint.unseen:
        return f"unknown whether it fits: {unseen_text(p.footprint.unseen)}"
    if p.footprint.unknown:
        return f"unknown whether it fits: {'; '.join(p.footprint.unknown)}"
    if fits_closely(p.footprint, p.budget):
        high, limit = format_size(p.footprint.host.high), format_size(p.budget.usable(p.budget.ram or 0))
        left = f"up to {high} of {limit} without the environment, which was not built"
        return f"unknown whether it fits: {left}: {p.footprint.not_built}"
    if p.fits is None:
        return "fits the host; no GPU budget is known (give --gpu or --vram)"
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


def _savings_summary(predictions: Sequence[Prediction]) -> Iterator[str]:
    """Yield a line per kind of saving, with the runs that it helps."""
    lines: dict[str, list[str]] = {}
    for p in predictions:
        if p.free.host.nbytes < p.footprint.host.nbytes:
            title = f"with every free saving ({', '.join(_free_names(p))})"
            lines.setdefault(title, []).append(f"{p.footprint.name} {format_size(p.free.host.nbytes)}")
        if p.lean is not None and _saves_more(p):
            title = f"with lean storage ({_price_text(p.lean)}){'' if p.lean.measured else ', at most'}"
            lines.setdefault(title, []).append(f"{p.footprint.name} {format_size(p.lean.footprint.host.nbytes)}")
    yield from (f"{title}: {', '.join(runs)}" for title, runs in lines.items())


def finding_text(finding: Finding, name: str = "") -> Styled:
    """Return a finding with the way out."""
    prefix = f"{name}: " if name else ""
    hint = f" ({finding.hint})" if finding.hint else ""
    return Styled(f"{finding.severity}: {prefix}{finding.message}{hint}", _SEVERITY[finding.severity])


def _everything(p: Prediction) -> int:
    return p.footprint.host.nbytes + (p.footprint.gpu.nbytes if p.footprint.gpu else 0)


def _yes_or_no(p: Prediction) -> Styled:
    if p.footprint.refused:
        return Styled("no: invalid", "red")
    return {True: Styled("yes", "green"), False: Styled("no", "red"), None: Styled("?")}[p.fits]


def _size(nbytes: int) -> str:
    return format_size(nbytes) if nbytes else "–"
