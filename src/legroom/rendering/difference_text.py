"""What a change does to memory, for people and as JSON."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from legroom.comparing.differences import Cause, Difference
from legroom.model.data import plain
from legroom.model.footprint import Footprint, Peak
from legroom.model.verdict import Budget
from legroom.rendering.console import document
from legroom.rendering.item_text import peak_data
from legroom.rendering.layout import Part, Styled
from legroom.rendering.prediction_text import shortfall
from legroom.units import format_size

MOST_CAUSES = 4


def difference_text(differences: Sequence[Difference], budget: Budget) -> Iterator[Part]:
    """Yield a line per run, the reason after it, and where it is over the budget."""
    if not differences:
        yield "no change affects memory"
    for each in differences:
        style = "bold red" if each.fits is False else ""
        yield Styled(f"{each.name}: {sizes_text(each)}{because(each.causes)}", style)
        if each.stand_in:
            yield Styled(f"  the environment's spaces are unknown; sizes are for {each.stand_in}", "dim")
        if each.fits is False and each.after is not None:
            yield Styled(f"  over the budget: {'; '.join(shortfall(each.after, budget))}", "bold red")


def sizes_text(each: Difference) -> str:
    """Return `before 4.2 GiB → after 9.8 GiB`, and the same for the GPU where it has a part."""
    if each.before is None and each.after is None:
        return "memory not known"
    host = _change("", *_peaks(each, lambda footprint: footprint.host))
    if all(footprint is None or footprint.gpu is None for footprint in (each.before, each.after)):
        return host
    return f"{host}, {_change('GPU ', *_peaks(each, lambda footprint: footprint.gpu))}"


def _peaks(each: Difference, of: Any) -> tuple[Peak | None, Peak | None]:
    before, after = (None if footprint is None else of(footprint) for footprint in (each.before, each.after))
    return before, after


def _change(title: str, before: Peak | None, after: Peak | None) -> str:
    if before is None or after is None:
        known = before or after
        assert known is not None
        return f"{title}{'new, ' if before is None else 'removed, '}{format_size(known.nbytes)}"
    return f"{title}before {format_size(before.nbytes)} → after {format_size(after.nbytes)}"


def because(causes: Sequence[Cause]) -> str:
    """Return the reasons, the largest first."""
    told = [f"{_short(cause.key)} {_value(cause.before)} → {_value(cause.after)}" for cause in causes[:MOST_CAUSES]]
    more = f" and {len(causes) - MOST_CAUSES} more" if len(causes) > MOST_CAUSES else ""
    return f", because {', '.join(told)}{more}" if told else ""


def _short(key: str) -> str:
    return key.removeprefix("hyperparams.")


def _value(value: Any) -> str:
    text = "none" if value is None else f"{value:,}" if isinstance(value, int) else str(plain(value))
    return text if len(text) <= 40 else f"{text[:37]}..."


def difference_json(differences: Sequence[Difference], budget: Budget) -> str:
    """Return the document."""
    return document({
        "budget": {"ram": budget.ram, "vram": budget.vram, "reserve": budget.reserve},
        "runs": [
            {
                "name": each.name, "fits": each.fits, "before": _peaks_data(each.before),
                "after": _peaks_data(each.after), "stand_in": each.stand_in or None,
                "because": [
                    {"key": c.key, "from": plain(c.before), "to": plain(c.after), "effect": c.effect}
                    for c in each.causes
                ],
                "text": f"{sizes_text(each)}{because(each.causes)}",
            }
            for each in differences
        ],
    })  # fmt: skip


def _peaks_data(footprint: Footprint | None) -> dict[str, Any] | None:
    if footprint is None:
        return None
    gpu = footprint.gpu
    return {"host": peak_data(footprint.host), "gpu": None if gpu is None else peak_data(gpu)}
