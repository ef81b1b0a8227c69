"""Finds the cheapest savings that make a program fit, by rehearsing it with them attached.

Free ones are tried together: they cost nothing, and which of them matters is seen by what the program says of them.
Then those that are slower and save what is short, one after the other; one that takes a number starts large, since
smaller pieces are slower. Every step is rehearsed, so that what is recommended has been seen to fit.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import PurePath

from legroom.backends.base import all_attachments
from legroom.backends.program.attach_api import attaching, by_default
from legroom.model.plan import Attachment, Price
from legroom.model.program_plan import Attached, ProgramPlan, Savings
from legroom.model.rehearsal import ProgramPrediction, Rehearsal
from legroom.model.verdict import gpu_fits, host_fits

LARGEST_PIECE = 1024  # samples of a first micro-batch, where the program's own batch is not known
PIECES = 5  # sizes that are tried, each a quarter of the one before
_ORDER: tuple[Price, ...] = ("free", "slower", "changes-learning")

Rehearsed = Callable[[Savings], Attached]
Predict = Callable[[Sequence[str], Mapping[str, str]], ProgramPrediction]


def find_savings(rehearsed: Rehearsed, *, allowed: Price = "slower") -> ProgramPlan:
    """Return what was tried up to the first that fits, or up to the last that is allowed."""
    tried = [rehearsed({})]
    for savings in _steps(allowed, lambda: tried[-1]):
        if not _may_help(tried[-1]):
            break
        tried.append(rehearsed(savings))
    return ProgramPlan(tuple(tried))


def with_savings(command: Sequence[str], savings: Savings, predict: Predict, *, has_gpu: bool) -> Attached:
    """Rehearse a program with these savings attached."""
    with attaching(command, savings, os.environ, has_gpu=has_gpu) as attached:
        prediction = predict(command, attached.environment)
        return Attached(savings, price_of(savings), prediction, attached.notes(), frozenset(by_default()))


def cure_of(rehearsal: Rehearsal) -> Savings | None:
    """Return the savings that replace the array which was refused to the program; None where no saving does."""
    refused = rehearsal.refused
    if refused is None or not refused.inside or rehearsal.stopped != "out-of-memory":
        return None
    module = ".".join(PurePath(refused.inside).with_suffix("").parts)
    mine = (one for one in all_attachments() if one.saves == "host" and not one.takes)
    one = next((one for one in mine if any(module.endswith(f".{name}") for name in one.hooks)), None)
    return None if one is None else {**by_default(), one.name: None}


def _may_help(last: Attached) -> bool:
    """Return whether a next step is worth it: what fails by itself, or was interrupted, does not get better."""
    seen = last.prediction
    return not (seen.fits or seen.so_far) and last.prediction.rehearsal.stopped not in ("failed", "interrupted")


def price_of(savings: Savings) -> Price:
    """Return the price of the dearest of the savings."""
    known = {one.name: one.price for one in all_attachments()}
    return max((known[name] for name in savings), key=_ORDER.index, default="free")


def _steps(allowed: Price, last: Callable[[], Attached]) -> Iterator[Savings]:
    savings = dict(by_default())
    if savings:
        yield dict(savings)
    dearer = [one for one in all_attachments() if one.price != "free"]
    for one in sorted(dearer, key=lambda one: (_ORDER.index(one.price), bool(one.takes))):
        if _ORDER.index(one.price) > _ORDER.index(allowed) or one.saves not in _short(last()):
            continue
        for number in _numbers(one, last()):
            savings[one.name] = number
            yield dict(savings)
            if one.hooks and not any(word.partition("=")[0] == one.name for word in last().effective):
                break  # it found nothing to attach to, whatever its number


def _short(last: Attached) -> set[str]:
    """Return which memory is short, or not known to be enough."""
    footprint, budget = last.prediction.footprint, last.prediction.budget
    seen = last.prediction.rehearsal
    if seen.stopped == "out-of-memory" and (seen.had_card or seen.failed is not None):
        return {"device" if seen.failed is not None else "host"}  # the other one was seen up to there alone
    enough = {"host": host_fits(footprint, budget)}
    on_gpu = footprint.gpu is not None
    enough["device"] = enough["host"] if not on_gpu else budget.host_only or gpu_fits(footprint, budget)
    if seen.stopped == "out-of-memory":
        return {*enough}
    return {place for place, fits in enough.items() if not fits}


def _numbers(one: Attachment, last: Attached) -> Iterator[int | None]:
    if not one.takes:
        yield None
        return
    size = LARGEST_PIECE
    for same in last.prediction.rehearsal.same_runs:
        batch = same.run.hyperparams.get("batch_size")
        if isinstance(batch, int):
            size = min(size, max(batch // 2, 1))
    for _ in range(PIECES):
        yield size
        if size == 1:
            return
        size = max(size // 4, 1)
