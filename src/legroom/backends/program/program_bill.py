"""From a rehearsal to a footprint, and to the verdict.

The card's items add up to the largest amount that PyTorch's allocator reserved, as in a prediction of a run; what lives
beside the allocator (the context, cuDNN's workspace, an RNN's reserve) has items of its own with their ranges. The host
is what the process tree really took, plus buffers that it has asked for and will fill.

`fits` is never true by a guess: everything that was not seen, or seen only by an assumption, is a reason in `unknown`.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

from legroom.backends.program.leaks import LEAST_SURVIVORS
from legroom.backends.program.suggestions import ways_to_fit
from legroom.hollow.cuda_allocator import ROUND_SEGMENT_BYTES, round_size, segment_size
from legroom.model.footprint import ALWAYS, AllocatorPeaks, Finding, Footprint, Item, Known, Phase, Place
from legroom.model.rehearsal import BatchesSeen, CardSeen, Endless, Filling, Leak, ProgramPrediction, Rehearsal
from legroom.model.verdict import Budget, fits, host_fits
from legroom.predicting.gpu import CONTEXT_BYTES, CONTEXT_ERROR, XLA_SHARE, allocator_items
from legroom.units import MIB, duration_text, format_size

# A CUDA build of torch in place of a CPU build: `base_figures` of the SB3 room has the measurement (2026-11).
CUDA_LIBRARIES, CUDA_LIBRARIES_ERROR = 248_000_000, 60_000_000
HOST_ERROR = 0.05  # of what was measured: allocators, page cache, what a longer run adds
COMPILED_ERROR = 0.25  # of reserved bytes: a compiled graph fuses and reorders, and was run eagerly
# Inductor times the kernels it has not cached beside a buffer as large as the card's L2 cache, 72 MiB on an RTX 4090
# (torch/_inductor/runtime/benchmarking.py; 75,350,016 B more in the first of two recorded runs, 2.14.1, 2026-11-17)
TUNING_BYTES = 72 * MIB
OLDEST_TORCH = (2, 3)
MOST_UNDECIDED = 3  # places that are named
GROWTH_MATTERS = 1 << 20  # bytes per second of host memory beyond known buffers that make its peak unknown

MOST_STEPS, LONGEST_RUN_S = 10_000_000, 7 * 86400  # of a run whose length is not known
LEAST_COPIED, MUCH_COPIED = 8 * MIB, 64 * MIB  # by workers: worth a line of the bill, and a finding
LEAST_GROWN = 64 << 10  # bytes of growth over a run that are worth a line
WORKSPACE = "gpu.cudnn workspace"
_WHY = {
    "weights": "parameters and buffers that the optimizer knows",
    "gradients": "one per trained parameter",
    "optimizer": "the optimizer's state",
    "activations": "made in a forward pass and still in use",
    "batch": "made outside of modules in this iteration: inputs, targets, losses",
    "stored": "made in an earlier iteration and kept: buffers, rollouts, other networks",
    "temporaries": "temporary: gradients in the backward pass",
    "scratch": "of operators and of the optimizer step",
    "workspace": "cuBLAS, one per thread that calls it",
    "arrays": "jax arrays that are live when the function is called",
    "results": "of the function, where they do not take the place of a donated argument",
    "program": "temporaries of the compiled function, as XLA plans them for the GPU",
    "program of the CPU": "temporaries of the compiled function, as XLA plans them for the CPU",
}
XLA_ERROR = 0.05  # of what XLA plans: kernels that it would choose by timing them on the card


def predicted(rehearsal: Rehearsal, budget: Budget) -> ProgramPrediction:
    """Return what the program will need, and whether that fits."""
    footprint = footprint_of(rehearsal, budget)
    verdict = fits(footprint, budget)
    if rehearsal.stopped == "out-of-memory" or rehearsal.failed is not None:
        verdict = False  # it was tried, and a share of the card that the program set itself counts too
    elif verdict is False and rehearsal.retried is not None and host_fits(footprint, budget) is not False:
        verdict = None if footprint.unknown else True  # what was reserved before the retry is given back when needed
    elif verdict is False and _host_is_only_feared(rehearsal, footprint, budget):
        verdict = None
    ways = ways_to_fit(rehearsal, footprint, budget) if verdict is False else ()
    so_far = verdict is True and rehearsal.stopped == "repeats"
    if so_far and (rehearsal.not_reached or any(not batches.enough for batches in rehearsal.batches)):
        verdict = None
    return ProgramPrediction(rehearsal, footprint, budget, verdict, tuple(ways), so_far)


def footprint_of(rehearsal: Rehearsal, budget: Budget | None = None) -> Footprint:
    """Return the bill of a rehearsal; with a budget, its notes say when that is used up."""
    card = rehearsal.card
    card_items = list(_card_items(rehearsal, card)) if card is not None else []
    if budget is not None and budget.vram is not None:
        card_items = _giving_way(card_items, budget.usable(budget.vram))
    allocator = None
    if card is not None and not rehearsal.jax_alone:
        own = [item for item in card_items if item.name != "gpu.context" and item.known is Known.TRACED]
        error = math.isqrt(sum(item.error**2 for item in own))
        allocator = AllocatorPeaks(card.peak_allocated, card.peak_reserved, error)
    return Footprint(
        name=program_name(rehearsal.command),
        items=(*_host_items(rehearsal), *card_items),
        device="cuda" if card is not None else "cpu",
        findings=tuple(_findings(rehearsal)),
        allocator=allocator,
        notes=tuple(_notes(rehearsal, budget)),
        unknown=tuple(_unknown(rehearsal, budget)),
        assumed=rehearsal.assumed,
    )


def program_name(command: tuple[str, ...]) -> str:
    """Return what to call a program: its script or module, else the command itself."""
    for at, word in enumerate(command):
        if word.endswith(".py"):
            return Path(word).name
        if word == "-m" and at + 1 < len(command):
            return command[at + 1]
    return Path(command[0]).name


def _jax_items(rehearsal: Rehearsal, card: CardSeen) -> Iterator[Item]:
    """The card of a JAX program."""
    name = card.at.function if card.at is not None and card.at.function else "no function"
    items, doubt = [], sum(each.nbytes for each in rehearsal.doubts)
    for role, nbytes in card.roles:
        said = _WHY["program of the CPU" if role == "program" and doubt else role]
        why, error = f"{said} ({name})", max(int(XLA_ERROR * nbytes), doubt) if role == "program" else 0
        items.append(Item(f"gpu.{role}", nbytes, Place.GPU, why, (Phase.UPDATE,), known=Known.TRACED, error=error))
    context = Item(
        "gpu.context", CONTEXT_BYTES, Place.GPU, "CUDA context: 300-500 MB by GPU and driver, beside the allocator",
        known=Known.DEFAULT, error=CONTEXT_ERROR,
    )  # fmt: skip
    yield from (*items, context, *allocator_items(items, context))
    yield from _beside_items(rehearsal, (Phase.UPDATE,))


def _card_items(rehearsal: Rehearsal, card: CardSeen) -> Iterator[Item]:
    if rehearsal.jax_alone:
        yield from _jax_items(rehearsal, card)
        return
    updating = rehearsal.updates and (card.interval > 0 or card.phase in ("backward", "optimizer step"))
    phase = Phase.UPDATE if updating else Phase.COLLECT
    for role, nbytes in card.roles:
        phases = ALWAYS if role == "weights" else (phase,)
        yield Item(f"gpu.{role}", nbytes, Place.GPU, _WHY[role], phases, known=Known.TRACED)
    billed = sum(nbytes for _, nbytes in card.roles)
    if billed < card.peak_allocated:  # what a process had before its journal began
        rest = card.peak_allocated - billed
        yield Item("gpu.others", rest, Place.GPU, "not known by line", (phase,), known=Known.TRACED)
    doubt = _doubt(rehearsal, card)
    yield Item(
        "gpu.fragmentation", card.peak_reserved - card.peak_allocated, Place.GPU,
        "reserved by PyTorch's allocator, but not allocated even at the peak", (phase,), known=Known.TRACED,
        error=ROUND_SEGMENT_BYTES + doubt,
    )  # fmt: skip
    failed = rehearsal.failed
    if failed is not None:
        why = f"the request that did not fit, {_at(failed.file, failed.line)}; later requests are unknown"
        yield Item("gpu.failed request", failed.requested, Place.GPU, why, (phase,), known=Known.DEFAULT)
    yield Item(
        "gpu.context", CONTEXT_BYTES, Place.GPU, "CUDA context: 300-500 MB by GPU and driver, outside the allocator",
        count=card.processes, known=Known.DEFAULT, error=CONTEXT_ERROR,
    )  # fmt: skip
    yield from _beside_items(rehearsal, (phase,))


def _beside_items(rehearsal: Rehearsal, phases: tuple[Phase, ...]) -> Iterator[Item]:
    for one in rehearsal.beside:
        yield Item(f"gpu.{one.name}", one.nbytes, Place.GPU, one.why, phases, known=Known.DEFAULT, error=one.error)


def _giving_way(items: list[Item], limit: int) -> list[Item]:
    """Return the items of a card with the workspace of convolutions that it has room for.

    PyTorch asks its allocator for it, and where that fails tries algorithms that need less: the program is slower, and
    fits (`try_all` in ATen's Conv_v7.cpp, `try_plans` in Conv_v8.cpp). So it is no part of what the program needs.
    """
    others = [item for item in items if item.name != WORKSPACE]
    peak = Footprint(name="", items=tuple(others), device="cuda").gpu
    room = max(limit - (peak.high if peak is not None else 0), 0)
    for item in items:
        if item.name == WORKSPACE:
            why, nbytes = item.why, min(item.nbytes, room // 2)
            if item.nbytes + item.error > room:
                why = f"cuDNN would take about {format_size(item.nbytes)}; where there is less, it is slower"
            others.append(replace(item, optional=True, nbytes=nbytes, error=min(item.error, room - nbytes), why=why))
    return others


def _doubt(rehearsal: Rehearsal, card: CardSeen) -> int:
    """Return by how many bytes assumptions may have changed the allocator's peak."""
    guessed = {(each.file, each.line) for each in rehearsal.sizes_assumed}
    doubt = sum(line.nbytes for line in card.lines if (line.file, line.line) in guessed)
    # each is scratch of a moment, and takes whole segments where the cache has no room for it
    doubt += sum(segment_size(round_size(each.nbytes)) for each in rehearsal.doubts)
    return doubt + (int(COMPILED_ERROR * card.peak_reserved) + TUNING_BYTES if rehearsal.compiled else 0)


def _host_items(rehearsal: Rehearsal) -> Iterator[Item]:
    host = rehearsal.host
    measured = max(host.peak - host.workers, 0)
    same = rehearsal.same_runs[0] if len(rehearsal.same_runs) == 1 else None
    yield Item(
        "host.program", measured, Place.HOST, "the program's process while it rehearsed", known=Known.MEASURED,
        error=int(HOST_ERROR * (measured + host.workers)),  # of its workers, too: what grows there grows together
    )  # fmt: skip
    if host.workers:
        children = f"its child processes, {host.processes - 1} in total"  # Python's own helpers are among them
        if same is not None and same.run.env.workers != "dummy":
            children = f"{same.run.env.n_envs} environments in worker processes, {host.processes - 1} child processes"
        yield Item("host.workers", host.workers, Place.WORKER, children, known=Known.MEASURED)
    pages = host.worker_pages
    if pages is not None and pages.later + pages.missed >= LEAST_COPIED:
        more = f" and {format_size(pages.later)} more later on" if pages.later else ""
        yield Item(
            "host.worker pages copied", pages.later + pages.missed, Place.WORKER,
            f"because reference counts change: {format_size(pages.copied)} so far{more}",
            known=Known.MEASURED, phases=(Phase.COLLECT, Phase.UPDATE, Phase.CHECKPOINT), error=pages.error,
        )  # fmt: skip
    if rehearsal.card is not None and rehearsal.torch and not rehearsal.cuda_build:
        yield Item(
            "host.cuda libraries", CUDA_LIBRARIES, Place.HOST,
            "a CUDA build of torch maps more libraries than the build here", known=Known.DEFAULT,
            error=CUDA_LIBRARIES_ERROR,
        )  # fmt: skip
    if host.pinned:
        yield Item(
            "host.pinned memory", host.pinned, Place.HOST,
            "PyTorch's pool rounds pinned requests up to powers of two and keeps them", known=Known.TRACED,
        )  # fmt: skip
    for grows in host.endless:
        later, error = (int(each * (grows.steps_left or 0.0)) for each in (grows.per_step, grows.error))
        if later >= LEAST_GROWN:
            at = f" at {_at(grows.file, grows.line)}" if grows.file else f" of {grows.what}"
            each = f"{format_size(grows.per_step)} in each of {grows.steps_left:,.0f} more optimizer steps"
            yield Item(
                f"host.growth{at}", later, Place.HOST, f"{grows.what}: {each}", known=Known.MEASURED,
                phases=(Phase.COLLECT, Phase.UPDATE, Phase.CHECKPOINT), error=error,
            )  # fmt: skip
    for one in host.filling:
        yield Item(
            f"host.{filling_name(one)}", one.nbytes, Place.HOST, filling_text(one), known=Known.MEASURED,
            phases=(Phase.COLLECT, Phase.UPDATE, Phase.CHECKPOINT), error=one.error,
        )  # fmt: skip


def filling_name(filling: Filling) -> str:
    """Return what to call memory that fills: its line, where that is known."""
    return _at(filling.file, filling.line) if filling.file else "a large array"


def filling_text(filling: Filling) -> str:
    """Return how full a buffer is, and when it will be."""
    if filling.at_once:
        return "torch.zeros writes all of it where it is made"
    now = f"{filling.what}: " if filling.what else ""
    now += f"{format_size(filling.touched)} written so far"
    if filling.seconds is None:
        return f"{now}; not being filled"
    return f"{now}; full {filling.when}"


def _findings(rehearsal: Rehearsal) -> Iterator[Finding]:
    for leak in rehearsal.leaks:
        yield Finding(
            "program", "gpu-leak", "error", leak_text(leak), "detach what is kept (.detach(), .item()), or release it",
            leak.file or None, leak.line or None,
        )  # fmt: skip
    pages = rehearsal.host.worker_pages
    if pages is not None and pages.copied + pages.later >= MUCH_COPIED:
        yield Finding(
            "program", "worker-copies", "warning",
            f"{pages.workers} forked workers copy {format_size(pages.copied + pages.later)} of the program's "
            "memory: reading Python objects changes their reference counts",
            "keep the data in one NumPy array or tensor instead of a list of objects",
        )  # fmt: skip
    refused = rehearsal.refused
    if refused is not None and rehearsal.stopped != "out-of-memory":
        yield Finding(
            "program", "host-memory-refused", "warning",
            f"{_at(refused.file, refused.line)}: {refused.text}; the program caught this and continued training",
            path=refused.file or None, line=refused.line or None,
        )  # fmt: skip
    caught = [oom for oom in rehearsal.out_of_memory if oom.caught]
    if caught:
        first = caught[0]
        times = f"{len(caught)} time{'s' if len(caught) > 1 else ''}"
        then = "retried with less and continued" if rehearsal.retried is not None else "caught it"
        yield Finding(
            "program", "out-of-memory-caught", "warning",
            f"{_at(first.file, first.line)}: ran out of GPU memory {times}; the program {then}",
            path=first.file or None, line=first.line or None,
        )  # fmt: skip


def leak_text(leak: Leak) -> str:
    """Return what grows, by how much, and where it is held."""
    held = f"keeps {format_size(leak.nbytes)} of GPU memory from each of {leak.steps} steps"
    text = f"leak: {_at(leak.file, leak.line)} {held}"
    return text if (leak.file, leak.line) == leak.made else f"{text} (made in {_at(*leak.made)})"


def _kernel_kills(rehearsal: Rehearsal, budget: Budget) -> str:
    """Return when and where the host's memory would be used up by buffers that fill; empty where it would not."""
    host = rehearsal.host
    pending = sorted((one for one in host.filling if one.per_s and not one.at_once), key=lambda one: one.seconds or 0.0)
    if budget.ram is None or not pending:
        return ""
    at_once = sum(one.nbytes - one.touched for one in host.filling if one.at_once)
    rest, at_s = budget.usable(budget.ram) - host.last - at_once, 0.0
    while pending and rest > 0:  # one buffer after the other is full
        rate, until = sum(one.per_s for one in pending), (pending[0].seconds or 0.0) - at_s
        if rate * until > rest:
            break
        rest, at_s = rest - int(rate * until), at_s + until
        pending.pop(0)
    if not pending:
        return ""
    fastest = max(pending, key=lambda one: one.per_s)
    seconds = at_s + max(rest, 0) / sum(one.per_s for one in pending)
    per_step = fastest.per_step
    steps = f" after about {seconds * fastest.per_s / per_step:,.0f} optimizer steps" if per_step else ""
    return (
        f"host memory runs out{steps}, in about {duration_text(seconds)}, while {_at(fastest.file, fastest.line)} fills"
    )


def _notes(rehearsal: Rehearsal, budget: Budget | None) -> Iterator[str]:
    yield from rehearsal.notes
    for place in rehearsal.compiled:
        wider = f"{COMPILED_ERROR:.0%} and {format_size(TUNING_BYTES)}, which a first run takes to time kernels"
        yield f"torch.compile was run eagerly ({place}): the band is wider by {wider}"
    for doubt in rehearsal.doubts:
        at = f" ({_at(doubt.file, doubt.line)})" if doubt.file else ""
        yield f"uncertain: {doubt.what}{at}: the band is wider by {format_size(doubt.nbytes)}"
    if rehearsal.card is not None:
        if rehearsal.card.processes > 1:
            yield f"{rehearsal.card.processes} processes share the GPU; their peaks are added"
        for number, nbytes in rehearsal.card.others:
            yield f"cuda:{number} reserves up to {format_size(nbytes)}; the figures are of cuda:{rehearsal.card.device}"
    if rehearsal.jax_alone and rehearsal.card is not None:
        yield "large functions were compiled and not executed: what depends on their values was computed with zeros"
        if rehearsal.host.growing_per_s > GROWTH_MATTERS:
            grew = f"host memory grew by {format_size(rehearsal.host.growing_per_s)} per second"
            yield f"{grew}: tracing functions takes some, so a leak cannot be ruled out"
        yield (
            f"nvidia-smi will show about {XLA_SHARE:.0%} of the GPU, whatever the program needs: XLA reserves that "
            "when it starts (XLA_PYTHON_CLIENT_PREALLOCATE=false turns it off)"
        )
    for one in rehearsal.host.endless:
        if one.steps_left is None and budget is not None and _takes_ages(one, rehearsal, budget):
            yield f"{_endless_text(one)}; that takes more than {MOST_STEPS:,} steps or a week to use up what is free"
    for batches in rehearsal.batches:
        if not batches.enough and batches.alike:
            yield f"{_batches_text(batches)}: all of one shape"
    if rehearsal.skipped_steps:
        yield f"{rehearsal.skipped_steps} optimizer steps were skipped by the GradScaler"
    if budget is not None and (dies := _kernel_kills(rehearsal, budget)):
        yield dies
    if rehearsal.stopped == "repeats":
        later = "what comes after the last epoch" if rehearsal.epochs else "what comes later, such as a checkpoint"
        evaluation = f"the evaluation at {_at(*rehearsal.evaluation)}, and " if rehearsal.evaluation else ""
        yield f"not seen: {evaluation}{later}"


def _unknown(rehearsal: Rehearsal, budget: Budget | None) -> Iterator[str]:
    """Yield why it is not known whether the program fits."""
    for leak in rehearsal.leaks:
        if rehearsal.stopped != "finished":
            often = "per step" if leak.steps >= LEAST_SURVIVORS else "whenever that line runs"
            yield f"GPU memory grows by {format_size(leak.nbytes)} {often} ({_at(leak.file, leak.line)})"
    if rehearsal.collected:
        size = format_size(rehearsal.collected)
        yield (
            f"tensors of {size} and more are in reference cycles, which Python frees only when its "
            "collector runs: there may be many more of them (gc.collect() in the loop frees them)"
        )
    numbers = [int(part) for part in rehearsal.torch.split("+")[0].split(".")[:2] if part.isdecimal()]
    if len(numbers) == 2 and tuple(numbers) < OLDEST_TORCH:
        yield f"torch {rehearsal.torch} is too old to be rehearsed; 2.3 or newer is needed"
    yield from rehearsal.unseen
    ended = rehearsal.stopped in ("finished", "repeats", "updates")
    no_question = budget is not None and budget.host_only
    yield from _unseen_end(rehearsal, no_question=no_question)
    if ended and rehearsal.torch and rehearsal.had_card and rehearsal.card is None and not no_question:
        yield "the program put nothing on the GPU: no GPU verdict (does it ask for device='cuda'?)"
    for each in rehearsal.sizes_assumed:
        yield f"{_at(each.file, each.line)}: a size was assumed ({each.what}); --values real would compute it"
    for place in rehearsal.undecided[:MOST_UNDECIDED]:
        at = _at(place.file, place.line)
        yield f"{at}: an assumed value decides whether this runs: {place.text}; --values real would compute it"
    for what in rehearsal.unmodelled:
        yield f"not modelled: {what}"
    for batches in rehearsal.batches:
        if not batches.enough and not batches.alike:
            yield f"{_batches_text(batches)}, and their shapes differ: larger ones may come (more time: --seconds)"
    for one in rehearsal.host.endless:
        if one.steps_left is None and not _takes_ages(one, rehearsal, budget):
            yield f"{_endless_text(one)}; the length of the run is not known"
    if rehearsal.host.growing_per_s > GROWTH_MATTERS and not rehearsal.jax_alone:
        grows = format_size(rehearsal.host.growing_per_s)
        beyond = " beyond its buffers" if rehearsal.host.filling or rehearsal.host.endless else ""
        yield f"host memory grows by {grows} per second{beyond} and has not levelled off"


def _endless_text(one: Endless) -> str:
    at = f"{_at(one.file, one.line)}, " if one.file else ""
    return f"host memory grows by {format_size(one.per_step)} per optimizer step ({at}{one.what})"


def _takes_ages(one: Endless, rehearsal: Rehearsal, budget: Budget | None) -> bool:
    """Return whether what grows would take more steps than runs have, or a week, to use up the memory that is free."""
    if budget is None or budget.ram is None:
        return True
    free = max(budget.usable(budget.ram) - rehearsal.host.last, 0)
    return one.steps_to_fill(free) > MOST_STEPS or one.seconds_to_fill(free) > LONGEST_RUN_S


def _batches_text(batches: BatchesSeen) -> str:
    of = f"{batches.total:,} ({batches.seen / batches.total:.1%})" if batches.total else "an unknown number (a stream)"
    return f"batches looked at, {_at(batches.file, batches.line)}: {batches.seen:,} of {of}"


def _unseen_end(rehearsal: Rehearsal, *, no_question: bool) -> Iterator[str]:
    """Yield what its end leaves open; one that ran to its end took what it takes, if GPU memory is not asked about."""
    after = f"after {rehearsal.updates:,} {'calls of large functions' if rehearsal.jax_alone else 'optimizer steps'}"
    if not rehearsal.python:
        yield "not a Python program: only its host memory was watched"
        return
    if rehearsal.stopped == "failed":
        at = f" at {_at(*rehearsal.failed_at)}" if rehearsal.failed_at else ""
        seen = "; this is what was seen up to there" if rehearsal.updates or rehearsal.card is not None else ""
        why = (rehearsal.failure.strip().splitlines() or ["no reason given"])[0][:200]
        yield f"the program failed{at} ({why}){seen}"
    elif rehearsal.stopped == "interrupted":
        yield f"interrupted {after}"
    elif rehearsal.stopped == "real-limit":
        yield "stopped, because it took more real host memory than --real-limit allows"
    elif rehearsal.stopped in ("seconds", "updates") and rehearsal.updates:
        yield f"stopped {after}, before its memory repeated (more time: --seconds)"
    if rehearsal.jax_alone:
        if rehearsal.had_card and rehearsal.card is None:
            within = (
                f" within {rehearsal.seconds:.0f} s (more time: --seconds)" if rehearsal.stopped == "seconds" else ""
            )
            insists = "; jax sees only CPU devices here, so a program that requires a GPU exits"
            ended = insists if rehearsal.stopped == "failed" else ""
            yield f"the program used jax but called no large function{within}: no GPU verdict{ended}"
        elif not rehearsal.updates and rehearsal.stopped == "seconds":
            yield (
                f"the program called none of its compiled functions within {rehearsal.seconds:.0f} s: only single "
                "operations were seen (more time: --seconds)"
            )
    elif not rehearsal.torch:
        if rehearsal.stopped == "finished" and not no_question:
            yield "the program ended before it used torch"
        elif rehearsal.stopped == "seconds":
            yield f"the program did not use torch within {rehearsal.seconds:.0f} s"
    elif not rehearsal.updates:
        if rehearsal.stopped == "seconds":
            more = 180 * math.ceil(rehearsal.seconds / 60)
            yield (
                f"no optimizer step within {rehearsal.seconds:.0f} s: allow more time (--seconds {more}) or shorten "
                "the warm-up (such as --learning-starts)"
            )
        elif rehearsal.stopped == "finished" and rehearsal.card is None and not no_question:
            yield "the program ended without an optimizer step"


def _host_is_only_feared(rehearsal: Rehearsal, footprint: Footprint, budget: Budget) -> bool:
    """Return whether only buffers that were not seen filling make it too large for the host."""
    idle = sum(filling.nbytes - filling.touched for filling in rehearsal.host.filling if filling.seconds is None)
    if not idle or budget.ram is None or rehearsal.stopped == "out-of-memory":
        return False
    gpu = footprint.gpu
    if gpu is not None and budget.vram is not None and gpu.high > budget.usable(budget.vram):
        return False
    return footprint.host.high - idle <= budget.usable(budget.ram)


def _at(file: str, line: int) -> str:
    return f"{Path(file).name}:{line}" if file else "an unknown line"
