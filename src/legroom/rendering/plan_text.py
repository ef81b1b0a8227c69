"""A plan as a document and as JSON: what was turned, what it bought, and what came out."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from legroom import __version__
from legroom.model.footprint import Footprint, Peak, Phase, Place
from legroom.model.plan import Change, Plan, Turn
from legroom.model.spaces import plain
from legroom.model.verdict import Budget
from legroom.rendering.console import document
from legroom.rendering.document import Document, Note, Part, Section, Table, verdict
from legroom.rendering.item_text import all_items, peak_bars, peaks_data
from legroom.units import format_size

PLAN_FOOTER = (
    f"Every figure is predicted, the whole band inside the budget where it fits. Written by legroom fit {__version__}."
)
PRICE_STYLES = {"free": "green", "slower": "yellow", "changes-learning": "red"}


def plan_json(plan: Plan, notes: Sequence[str] = (), **more: Any) -> str:
    """Return the plan as JSON, with notes before its own and keys beside its own."""
    data = plan_data(plan)
    return document(data | {"notes": [*notes, *data["notes"]]} | more)


def plan_data(plan: Plan) -> dict[str, Any]:
    """Return the plan as plain data, as the contract has it."""
    return {
        "fits": plan.fits,
        "budget": {"ram": plan.budget.ram, "vram": plan.budget.vram, "reserve": plan.budget.reserve},
        "before": peaks_with_disk(plan.before),
        "after": peaks_with_disk(plan.after),
        "knobs": [_turn_data(turn) for turn in plan.turns],
        "run": plan.run.model_dump(exclude_defaults=True),
        "needed": dict(plan.needed) or None,
        "notes": [*plan.notes, *plan.after.notes],
    }


def peaks_with_disk(footprint: Footprint) -> dict[str, Any]:
    """Return the peaks with their bands, also of what is stored on disk."""
    return peaks_data(footprint) | {"disk": max(footprint.band(phase, (Place.DISK,)).nbytes for phase in Phase)}


def _turn_data(turn: Turn) -> dict[str, Any]:
    first, *others = turn.changes
    return {
        "name": turn.name,
        "from": plain(first.before),
        "to": plain(first.after),
        "price": turn.price,
        "saved": turn.saved,
        "say": turn.say,
        "with": {each.key: {"from": plain(each.before), "to": plain(each.after)} for each in others},
    }


def plan_document(plan: Plan) -> Document:
    """Whether it fits, from what, knob by knob, to what."""
    bills = [all_items(plan.after, "After fitting, item by item")]
    bills += [all_items(plan.before, "As it is, item by item")] if plan.turns else []
    parts = [*plan_parts(plan), *peak_bars(_steps(plan), plan.budget), *bills]
    return Document(_title(plan), verdict_line(plan), parts, PLAN_FOOTER)


def plan_section(plan: Plan) -> Section:
    """A plan below the heading of another document."""
    parts = [verdict_line(plan), Note(_title(plan), "bold"), *plan_parts(plan)]
    return Section(f"{plan.asked.name} with changed settings", parts)


def _title(plan: Plan) -> str:
    return f"{plan.asked.name}: {plan.asked.algo} on {plan.after.device}"


def plan_parts(plan: Plan) -> Iterator[Part]:
    """What it needs as it is, what each knob does, and what it needs then."""
    yield f"as it is: {peaks_text(plan.before)}"
    if plan.turns:
        yield Section("Knob by knob", [turn_table(plan)])
        yield Section("What the knobs do", [f"  {turn.name}: {turn.say}" for turn in plan.turns])
    yield Section("Then", list(result_lines(plan)))


def _steps(plan: Plan) -> Iterator[tuple[str, Footprint]]:
    yield "as it is", plan.before
    for turn in plan.turns:
        yield f"{turn.name} ({turn.price})", turn.after


def turn_table(plan: Plan) -> Table:
    """Return the knobs as they were turned, one after the other."""
    gpu = plan.after.gpu is not None
    header = ["knob", "from", "to", "price", "saved", "host peak", *(["GPU peak"] if gpu else [])]
    table = Table(header, "llllrr" + "r" * gpu, spare=("saved", "from"))
    for turn in plan.turns:
        for number, change in enumerate(_shown(turn.changes)):
            cells = [change.key, _short(change.key, change.before), _short(change.key, change.after)]
            if number:
                table.add(*cells, style="dim")
                continue
            after = [format_size(turn.after.host.nbytes)]
            if turn.after.gpu is not None:
                after.append(format_size(turn.after.gpu.nbytes))
            table.add(*cells, Note(turn.price, PRICE_STYLES[turn.price]), _saved(turn.saved), *after)
    return table


def _shown(changes: Sequence[Change]) -> list[Change]:
    shown = [change for change in changes if change.key != "env.spaces"]
    return shown or list(changes[:1])


def _short(key: str, value: Any) -> str:
    if value is None:
        return "-"
    if key == "memory.max_bytes":
        return format_size(value)
    if isinstance(value, bool):
        return str(value).lower()
    text = (
        f"{value:,}"
        if isinstance(value, int)
        else "×".join(map(str, value))
        if isinstance(value, tuple)
        else str(value)
    )
    return text if len(text) <= 24 else text[:23] + "…"


def _saved(nbytes: int) -> str:
    return format_size(nbytes) if nbytes >= 0 else f"uses {format_size(-nbytes)}"


def result_lines(plan: Plan) -> Iterator[Part]:
    yield f"then:     {peaks_text(plan.after)}"
    disk = max(plan.after.band(phase, (Place.DISK,)).high for phase in Phase)
    if disk:
        yield f"on disk:  up to {format_size(disk)} of stored observations"
    for note in (*plan.notes, *plan.after.notes):
        if note:
            yield Note(f"note: {note}", "dim")


def verdict_line(plan: Plan) -> Note:
    return verdict(verdict_text(plan), "green" if plan.fits else "bold red")


def verdict_text(plan: Plan) -> str:
    if plan.fits:
        dearest = max((turn.price for turn in plan.turns), key=list(PRICE_STYLES).index, default=None)
        means = {
            None: "no changes needed",
            "free": "same results, bit for bit, and no slower",
            "slower": "same results, slower",
            "changes-learning": "changes results (knobs marked changes-learning)",
        }[dearest]
        return f"fits {_budget(plan)}: {means}"
    needs = " and ".join(f"{format_size(nbytes)} of {_PLACES[place]}" for place, nbytes in plan.needed.items())
    return f"does not fit {_budget(plan)}: needs {needs} with every saving applied"


_PLACES = {"host": "RAM", "gpu": "GPU memory"}


def _budget(plan: Plan) -> str:
    return budget_text(plan.budget, gpu=plan.after.gpu is not None)


def budget_text(budget: Budget, *, gpu: bool) -> str:
    parts = [f"{format_size(budget.ram)} of RAM"] if budget.ram is not None else []
    if gpu and budget.vram is not None:
        parts.append(f"{format_size(budget.vram)} of GPU memory")
    kept = f", {budget.reserve:.0%} of them kept free" if budget.reserve else ""
    return " and ".join(parts) + kept


def peaks_text(footprint: Footprint) -> str:
    text = f"host {_peak(footprint.host)}"
    return text if footprint.gpu is None else f"{text}; GPU {_peak(footprint.gpu)}"


def _peak(peak: Peak) -> str:
    return f"{format_size(peak.nbytes)} (between {format_size(peak.low)} and {format_size(peak.high)})"
