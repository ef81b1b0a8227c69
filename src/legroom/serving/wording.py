"""The verdict on a run in words: what is to spare or missing, and on what."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from legroom.model.footprint import Footprint, Peak
from legroom.model.plan import Change
from legroom.model.prediction import Prediction
from legroom.model.verdict import Budget
from legroom.units import format_size

SIZES = ("memory.max_bytes",)  # in bytes
LONGEST_VALUE = 28
WORTH_SAYING = 0.01  # of the peak: a smaller saving is none that anybody looks for
_SPOKEN_WITH_A_VOWEL = frozenset("AEFHILMNORSX")  # letters by name: an RTX, an L4, an H100


def verdict(prediction: Prediction, card: str | None) -> dict[str, Any]:
    """Return whether it fits, the sentence that says so, and what is left of each limit in bytes."""
    budget, footprint = prediction.budget, prediction.footprint
    host = _left(footprint.host, budget.ram, budget)
    gpu = _left(footprint.gpu, budget.vram, budget) if footprint.gpu is not None else None
    on_card = (
        f"on {with_article(card)}" if card and budget.vram_origin != "given" else _inside(budget.vram, "a GPU of ")
    )
    on_host = "on this machine" if budget.ram_origin != "given" else _inside(budget.ram)
    return {
        "fits": prediction.fits,
        "words": _unknown(prediction) or _sentence(prediction.fits, (gpu, on_card, ""), (host, on_host, " of RAM")),
        "host": host,
        "gpu": gpu,
    }


def savings(prediction: Prediction) -> list[dict[str, Any]]:
    """Return what could be had without changing what is learned: each with its price and the host's peak with it."""
    found, now = [], prediction.footprint.host.nbytes
    free, lean = prediction.free.host.nbytes, prediction.lean
    if free < (1 - WORTH_SAYING) * now:
        found.append(_saving("free", "with every free saving (light workers, and lean storage where free)", free, now))
    if lean is not None and lean.price != "free" and lean.footprint.host.nbytes < min(free, now):
        what = "with lean storage as well (same results; its speed is not measured here)"
        found.append(_saving("slower", what, lean.footprint.host.nbytes, now))
    return found


def _saving(price: str, what: str, nbytes: int, now: int) -> dict[str, Any]:
    return {"price": price, "what": what, "text": format_size(nbytes), "share": f"{1 - nbytes / now:.0%} less"}


def peaks(footprint: Footprint) -> str:
    """Return the peaks of host and GPU on a line."""
    gpu = "" if footprint.gpu is None else f", GPU {format_size(footprint.gpu.nbytes)}"
    return f"host {format_size(footprint.host.nbytes)}{gpu}"


def saved(nbytes: int) -> str:
    """Return what a knob bought."""
    return f"saves {format_size(nbytes)}" if nbytes >= 0 else f"uses {format_size(-nbytes)}"


def changes(found: Sequence[Change]) -> list[list[str]]:
    """Return key, before and after of every change, but for spaces, which follow from the others."""
    shown = [change for change in found if change.key != "env.spaces"] or list(found[:1])
    return [[change.key, _value(change.key, change.before), _value(change.key, change.after)] for change in shown]


def _value(key: str, value: Any) -> str:
    if value is None:
        return "–"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if key in SIZES:
        return format_size(value)
    if isinstance(value, int):
        return f"{value:,}"
    text = "×".join(map(str, value)) if isinstance(value, tuple | list) else str(value)
    return text if len(text) <= LONGEST_VALUE else f"{text[: LONGEST_VALUE - 1]}…"


def with_article(card: str) -> str:
    """Return a card's name as one says it: an RTX 4070, a Tesla T4."""
    name = card.removeprefix("NVIDIA ").removeprefix("GeForce ")
    spelled = name.split()[0].isupper() or any(letter.isdigit() for letter in name.split()[0])
    vowel = name[0] in _SPOKEN_WITH_A_VOWEL if spelled and not name.startswith("TITAN") else name[0] in "AEIOU"
    return f"{'an' if vowel else 'a'} {name}"


def _unknown(prediction: Prediction) -> str:
    """Return why it is unknown, where what is known would fit."""
    reasons = prediction.footprint.unknown
    return f"Unknown whether it fits: {'; '.join(reasons)}." if reasons and prediction.fits is None else ""


Told = tuple[dict[str, Any] | None, str, str]


def _sentence(fits: bool | None, *places: Told) -> str:
    known = [(left, where, what) for left, where, what in places if left is not None and left["spare"] is not None]
    if fits is False:
        short = [_missing(left, where, what) for left, where, what in known if left["spare"] < 0]
        return f"Does not fit: {'; '.join(short)}."
    spare = [f"{format_size(left['spare'])}{what} to spare {where}" for left, where, what in known]
    text = f"Fits with {', and '.join(spare)}." if spare else "No memory limit is known."
    return text if fits else f"{text} Choose a GPU to check GPU memory."


def _missing(left: dict[str, Any], where: str, what: str) -> str:
    needs, more = format_size(left["high"]), format_size(-left["spare"])
    if where.startswith("on "):
        has = "this machine has available" if where == "on this machine" else f"{where.removeprefix('on ')} has"
        return f"it may need {needs}{what or ' of GPU memory'}, {more} more than {has}"
    return f"it may need {needs}{what or ' of GPU memory'}, {more} more than given"


def _left(peak: Peak | None, limit: int | None, budget: Budget) -> dict[str, Any]:
    assert peak is not None
    usable = None if limit is None else budget.usable(limit)
    spare = None if usable is None else usable - peak.high
    return {"limit": limit, "usable": usable, "high": peak.high, "spare": spare}


def _inside(limit: int | None, what: str = "") -> str:
    return "" if limit is None else f"in {what}{format_size(limit)}"
