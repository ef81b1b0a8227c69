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

MOST_CAUSES, MOST_UNKNOWN = 4, 8  # where nothing says which of them matters, more are named


def difference_text(differences: Sequence[Difference], budget: Budget, *, read: bool = True) -> Iterator[Part]:
    """Yield a line per run, the reason after it, and where it is over the budget.

    Args:
        read: whether a run could be read in both versions.
    """
    if not differences:
        yield "no change affects memory" if read else "memory not known: no run can be read; no named size changed"
    for each in differences:
        style = "bold red" if each.fits is False else ""
        yield Styled(f"{each.name}: {change_text(each)}", style)
        if each.stand_in:
            yield Styled(f"  the environment's spaces are unknown; sizes are for {each.stand_in}", "dim")
        if each.fits is False and each.after is not None:
            yield Styled(f"  over the budget: {'; '.join(shortfall(each.after, budget))}", "bold red")


def change_text(each: Difference) -> str:
    """Return `before 4.2 GiB → after 9.8 GiB, because batch_size 64 → 256; little or no effect: n_steps 128 → 256`."""
    if each.before is None and each.after is None:
        return f"memory not known; changed: {_listed(each.causes, MOST_UNKNOWN)}"
    because = f", because {_listed(each.causes, MOST_CAUSES)}" if each.causes else ""
    minor = f"; little or no effect: {_listed(each.minor, MOST_CAUSES)}" if each.minor else ""
    return f"{sizes_text(each)}{because}{minor}"


def sizes_text(each: Difference) -> str:
    """Return `before 4.2 GiB → after 9.8 GiB`, and the same for the GPU where it has a part."""
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


def _listed(causes: Sequence[Cause], most: int) -> str:
    told = [f"{_short(cause.key)} {_value(cause.before)} → {_value(cause.after)}" for cause in causes[:most]]
    more = f" and {len(causes) - most} more" if len(causes) > most else ""
    return f"{', '.join(told)}{more}"


def _short(key: str) -> str:
    return key.removeprefix("hyperparams.")


def _value(value: Any) -> str:
    text = "none" if value is None else f"{value:,}" if isinstance(value, int) else str(plain(value))
    return text if len(text) <= 40 else f"{text[:37]}..."


def difference_json(differences: Sequence[Difference], budget: Budget, *, read: bool = True) -> str:
    """Return the document; `memory_known` is false where no run could be read in both versions."""
    return document({
        "memory_known": read,
        "budget": {"ram": budget.ram, "vram": budget.vram, "reserve": budget.reserve},
        "runs": [
            {
                "name": each.name, "fits": each.fits, "before": _peaks_data(each.before),
                "after": _peaks_data(each.after), "stand_in": each.stand_in or None,
                "because": _causes_data(each.causes), "minor": _causes_data(each.minor), "text": change_text(each),
            }
            for each in differences
        ],
    })  # fmt: skip


def _causes_data(causes: Sequence[Cause]) -> list[dict[str, Any]]:
    return [{"key": c.key, "from": plain(c.before), "to": plain(c.after), "effect": c.effect} for c in causes]


def _peaks_data(footprint: Footprint | None) -> dict[str, Any] | None:
    if footprint is None:
        return None
    gpu = footprint.gpu
    return {"host": peak_data(footprint.host), "gpu": None if gpu is None else peak_data(gpu)}
