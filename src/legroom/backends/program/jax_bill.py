"""What a JAX program needs on a card: arrays that are live when a compiled function is called, and XLA's plan of it.

The guest (`hollow/jax_programs.py`) has written down every large function, lowered for a card, and what was live at its
calls; here XLA is asked about each, once per program, card and versions. The peak is the largest sum of live arrays,
results that take no argument's place, and temporaries; all of it is billed to the line of the call.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from legroom.backends.program.steady_state import LEAST_REPEATS
from legroom.errors import BadInput, MissingExtra
from legroom.machine.gpu_table import KnownGpu, find_gpu
from legroom.model.machine import Gpu
from legroom.model.rehearsal import Beside, CardSeen, Doubt, OutOfMemory, Rehearsal, SourceLine
from legroom.predicting.gpu import XLA_SHARE
from legroom.units import format_size
from legroom.xla.programs import XlaProgramPlan, plan_program
from legroom.xla.target import known_card

Messages = Mapping[str, Sequence[dict[str, Any]]]
Place = tuple[str, int]
Programs = dict[tuple[int, int], XlaProgramPlan]  # by process and number
NOTHING = XlaProgramPlan(0, 0, 0, 0)
MOST_FUNCTIONS = 5  # that are listed
_OUT_OF_MEMORY = re.compile(r"RESOURCE_EXHAUSTED|out of memory|MemoryError|cannot allocate", re.IGNORECASE)
# Of the live arrays. MuJoCo Warp's own arrays in a step took 0.07 (CartpoleBalance) and 0.7 to 0.99 times the bytes of
# the environments' state (HumanoidWalk, 256 and 64 environments; mujoco-mjx 3.17, warp 1.19, on a CPU, 2026-11-18)
FOREIGN_SHARE = 1.0
CPU_PLAN_ERROR = 0.5  # of its temporaries: the compiler for cards plans 10 to 42 % less for our robot
ANY_CARD = "RTX 4090"  # whose compiler is asked where only the memory of a card is given


@dataclass(frozen=True)
class _Moment:
    """What is on the card while a function runs, or between functions; `foreign`: it calls what is no part of jax."""

    live: int
    plan: XlaProgramPlan
    name: str
    file: str
    line: int
    foreign: bool = False

    @property
    def nbytes(self) -> int:
        return self.live + self.plan.results + self.plan.temporaries


def with_jax(
    found: Rehearsal, messages: Messages, gpu: Gpu | None, limit: int | None, progress: Callable[[str], None]
) -> Rehearsal:
    """Return the rehearsal with what its JAX functions need on the card; as it is where it used no jax.

    Args:
        limit: bytes of the card that its allocator may take; None for no limit but XLA's own.
    """
    told = messages.get("jax", ())
    if not told:
        return found
    alone = found.card is None and not messages.get("roles")
    found = _without_its_end(replace(found, jax=str(told[0].get("version") or "?"), jax_alone=alone))
    if gpu is None or found.card is not None:
        note = "jax and torch are both used: only what torch has on the GPU is counted"
        return found if gpu is None else replace(found, notes=(*found.notes, note))
    card = known_card(gpu) or find_gpu(ANY_CARD)
    plans, unknown = _plans(messages, card, progress)
    moments = list(_moments(messages, plans))
    if not moments:
        return replace(found, unmodelled=(*found.unmodelled, *unknown))
    most = max(moments, key=lambda moment: moment.nbytes)
    notes = (*found.notes, *_by_function(moments))
    seen = replace(
        found, card=_card_seen(most), unmodelled=(*found.unmodelled, *unknown), notes=notes,
        beside=tuple(_beside_xla(most)), doubts=(*found.doubts, *_doubts(most, card)),
    )  # fmt: skip
    limit = min(gpu.total if limit is None else limit, int(XLA_SHARE * gpu.total))
    failed = next((moment for moment in moments if moment.nbytes > limit), None)
    if failed is None:
        return seen
    asked = failed.plan.results + failed.plan.temporaries
    text = f"RESOURCE_EXHAUSTED: Out of memory while trying to allocate {asked:,} bytes for {failed.name}"
    oom = OutOfMemory(failed.file, failed.line, text, asked, max(limit - failed.live, 0), caught=False)
    return replace(seen, stopped="out-of-memory", out_of_memory=(oom,), failed_at=(failed.file, failed.line))


def _without_its_end(found: Rehearsal) -> Rehearsal:
    """Return a program that failed after its training had repeated as one that was stopped then, with a note.

    Values that were not computed fail where a program draws or saves what it learned, and what it needed until there is
    as well known as that of a program that was stopped a moment before.
    """
    if found.stopped != "failed" or found.repeats < LEAST_REPEATS or _OUT_OF_MEMORY.search(found.failure):
        return found
    at = f" at {Path(found.failed_at[0]).name}:{found.failed_at[1]}" if found.failed_at else ""
    why = (found.failure.strip().splitlines() or [f"exit code {found.exit_code}"])[0][:200]
    note = f"the program ended with {why}{at}, after {found.updates:,} large calls; later memory is not counted"
    return replace(found, stopped="repeats", notes=(*found.notes, note))


def _plans(messages: Messages, card: KnownGpu, progress: Callable[[str], None]) -> tuple[Programs, list[str]]:
    """Return XLA's plans, and why there is none of other programs."""
    plans: Programs = {}
    unknown: dict[str, list[str]] = {}
    programs = messages.get("xla program", ())
    for count, program in enumerate(programs, 1):
        name, at = str(program["name"]), f"{Path(str(program['file'])).name}:{program['line']}"
        progress(f"XLA plans the memory of {name} for a {card.name} ({count} of {len(programs)})")
        try:
            plans[program["pid"], program["number"]] = plan_program(Path(program["path"]), card)
        except (BadInput, MissingExtra, OSError) as wrong:
            unknown.setdefault(str(wrong), []).append(f"{name} ({at})")
    texts = [
        f"{each[0]}{f' and {len(each) - 1} more functions' if len(each) > 1 else ''}: {why}"
        for why, each in unknown.items()
    ]
    return plans, texts


def _moments(messages: Messages, plans: Programs) -> list[_Moment]:
    """Return the moments in their order: calls of large functions, and what is live after small ones."""
    about = {(each["pid"], each["number"]): each for each in messages.get("xla program", ())}
    found: list[tuple[float, _Moment]] = []
    for call in messages.get("xla call", ()):
        key = call["pid"], call["number"]
        plan, program = plans.get(key, NOTHING), about[key]
        live = int(call["live"]) + int(program.get("consts") or 0) + plan.constants
        moment = _Moment(live, plan, str(program["name"]), *_at(call), bool(program.get("foreign")))
        found.append((float(call["t"]), moment))
    for each in messages.get("xla live", ()):
        found.append((float(each["t"]), _Moment(int(each["live"]), NOTHING, "", *_at(each))))
    return [moment for _, moment in sorted(found, key=lambda pair: pair[0])]


def _at(message: Mapping[str, Any]) -> Place:
    return str(message["file"]), int(message["line"])


def _by_function(moments: Sequence[_Moment]) -> list[str]:
    """Return what each compiled function needs at its fullest call, where there are several."""
    fullest: dict[str, _Moment] = {}
    for moment in moments:
        if moment.name and (moment.name not in fullest or fullest[moment.name].nbytes < moment.nbytes):
            fullest[moment.name] = moment
    largest = sorted(fullest.values(), key=lambda moment: -moment.nbytes)
    if len(largest) < 2:
        return []
    shown = [f"{each.name} {format_size(each.nbytes)} ({Path(each.file).name}:{each.line})" for each in largest]
    more = f", and {len(shown) - MOST_FUNCTIONS} smaller" if len(shown) > MOST_FUNCTIONS else ""
    return [f"compiled functions, with all arrays that are live: {', '.join(shown[:MOST_FUNCTIONS])}{more}"]


def _doubts(moment: _Moment, card: KnownGpu) -> Iterator[Doubt]:
    """Yield by how much the CPU's plan may be wrong, where XLA cannot compile the function for the card."""
    if moment.plan.why_cpu:
        what = f"the CPU's plan of {moment.name}: XLA cannot compile it for a {card.name}: {moment.plan.why_cpu}"
        yield Doubt(what, int(CPU_PLAN_ERROR * moment.plan.temporaries), moment.file, moment.line)


def _beside_xla(moment: _Moment) -> Iterator[Beside]:
    """Yield what code outside of XLA may allocate by itself: 0 to the size of the live arrays."""
    if moment.foreign:
        half = int(moment.live * FOREIGN_SHARE / 2)
        why = "custom calls (Warp) allocate memory that XLA does not plan: 0 to the size of the live arrays"
        yield Beside("custom calls", half, half, why)


def _card_seen(most: _Moment) -> CardSeen:
    parts = {"arrays": most.live, "results": most.plan.results, "program": most.plan.temporaries}
    roles = tuple((role, nbytes) for role, nbytes in parts.items() if nbytes)
    return CardSeen(
        device=0,
        processes=1,
        peak_allocated=most.nbytes,
        peak_reserved=most.nbytes,
        roles=roles,
        lines=tuple(SourceLine(most.file, most.line, nbytes, most.name, most.name, role) for role, nbytes in roles),
        at=SourceLine(most.file, most.line, most.nbytes, most.name, most.name),
        phase="",
        interval=0,
    )
