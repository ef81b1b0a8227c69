"""The tier table: one row per size of GPU; and the named runs of a workload beside a budget."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Sequence
from typing import Any

from legroom.fitting.changes import differences
from legroom.fitting.tiers import Named, Recommendation, Tier
from legroom.model.plan import Change, Plan
from legroom.model.run import Run
from legroom.model.spaces import plain
from legroom.rendering.console import document
from legroom.rendering.document import Bars, Document, Limit, Note, Part, Section, Table, verdict
from legroom.rendering.item_text import bar_of, peak_bars
from legroom.rendering.plan_text import (
    PLAN_FOOTER,
    PRICE_STYLES,
    budget_text,
    peaks_with_disk,
    plan_data,
    plan_parts,
    plan_section,
    verdict_line,
)
from legroom.units import GIB, format_size


def tiers_json(tiers: Sequence[Tier], notes: Sequence[str] = ()) -> str:
    """Return the rows as JSON, each with its whole plan, and what was noted when the run was read."""
    return document({"tiers": [_row_data(tier) for tier in tiers], "notes": list(notes)})


def _row_data(tier: Tier) -> dict[str, Any]:
    most, plan = tier.most, plan_data(tier.plan)
    bounds = {} if most is None else {
        "env_steps_per_update": most.steps_per_update, "most_env_steps_per_update": most.cap, "bound_by": most.bound,
        "num_envs_by_memory_alone": most.by_memory,
    }  # fmt: skip
    return {
        "vram": tier.vram, **({"card": tier.card} if tier.card else {}), "fits": tier.plan.fits,
        "num_envs": tier.n_envs, "batch": tier.batch, "minibatches": tier.minibatches, "micro_batch": tier.micro_batch,
        **bounds, **{key: plan[key] for key in ("after", "knobs", "run")},
    }  # fmt: skip


def tiers_document(name: str, tiers: Sequence[Tier]) -> Document:
    """What fits, the table by GPU memory, and what bounds the environments."""
    host = max(tier.plan.after.host.high for tier in tiers)
    bars = [bar for tier in tiers if (bar := bar_of(tier.plan.after, "gpu", name=_size(tier.vram))) is not None]
    title = "GPU memory at its peak, by size of GPU"
    parts = [
        _tier_table(tiers),
        *_about_bounds(tiers),
        f"host memory: at most {format_size(host)}",
        Section(title, [Bars(title, bars, [Limit(tier.vram, "a GPU") for tier in tiers])]),
        *(Section(_size(t.vram), [verdict_line(t.plan), *plan_parts(t.plan)], folded=True) for t in tiers),
    ]
    return Document(f"{name} by GPU memory", _tiers_verdict(tiers), parts, PLAN_FOOTER)


def _tiers_verdict(tiers: Sequence[Tier]) -> Note:
    fitting = [tier for tier in tiers if tier.plan.fits]
    if not fitting:
        return verdict("fits no size of GPU given", "bold red")
    smallest, as_it_is = fitting[0], next((tier for tier in fitting if not tier.plan.turns), None)
    changed = "" if not smallest.plan.turns else ", changed"
    more = f"; as it is from {_size(as_it_is.vram)}" if as_it_is not in (None, smallest) and as_it_is else ""
    return verdict(f"fits from {_size(smallest.vram)} of GPU memory{changed}{more}", "green")


PLAIN = ("GPU", "num_envs", "batch", "mini-batches", "micro-batch", "GPU use", "at most", "price")
BOUNDED = ("GPU", "num_envs", "batch × minib.", "steps/update", "at most", "bound by", "by memory")


def _tier_table(tiers: Sequence[Tier]) -> Table:
    bounded = any(tier.most for tier in tiers)
    header, told = (BOUNDED, "bound by") if bounded else (PLAIN, "price")
    table = Table(header, "".join("l" if title == told else "r" for title in header))
    for tier in tiers:
        gpu, price, most = tier.plan.after.gpu, _dearest(tier.plan), tier.most
        if not tier.plan.fits or (bounded and most is None):
            need = Note(f"needs {format_size(gpu.high)}" if gpu else "does not fit", "bold red")
            cells: dict[str, str | Note] = {"GPU": Note(_card(tier), "dim"), told: need}
        else:
            cells = {
                "GPU": _card(tier), "num_envs": f"{tier.n_envs:,}", "batch": f"{tier.batch:,}",
                "mini-batches": f"{tier.minibatches:,}" if tier.minibatches else "-",
                "micro-batch": f"{tier.micro_batch:,}" if tier.micro_batch else "-",
                "GPU use": format_size(gpu.nbytes) if gpu else "-", "at most": format_size(gpu.high) if gpu else "-",
                "price": Note(price, PRICE_STYLES.get(price, "")),
            }  # fmt: skip
            if most is not None:
                bound = "steps/update" if most.bound == "env steps per update" else most.bound
                cells |= {
                    "batch × minib.": f"{tier.batch:,} × {tier.minibatches:,}", "bound by": bound,
                    "steps/update": f"{most.steps_per_update:,}", "by memory": f"{most.by_memory:,}",
                }  # fmt: skip
        table.add(*(cells.get(title, "") for title in header))
    return table


def _card(tier: Tier) -> str:
    return tier.card.removeprefix("GeForce ") or _size(tier.vram)


def _size(vram: int) -> str:
    return f"{round(vram / GIB, 1):g} GiB"


def _about_bounds(tiers: Sequence[Tier]) -> Iterator[Part]:
    found = [tier.most for tier in tiers if tier.most is not None]
    if not found:
        return
    yield "by memory: the environments that would fit if an update could learn from any number of steps"
    if any(most.bound == "env steps per update" for most in found):
        cap = max(most.cap for most in found)
        yield (
            f"steps/update: an update learns from at most {cap:,} env steps (--max-steps-per-update), since "
            "batch_size × num_minibatches grows with num_envs, and few giant updates learn little"
        )


def host_tiers_json(plans: Sequence[Plan], notes: Sequence[str] = ()) -> str:
    """Return a row per size of host memory as JSON, each with its whole plan."""
    rows = [{"ram": plan.budget.ram, "name": plan.asked.name, **plan_data(plan)} for plan in plans]
    return document({"tiers": rows, "notes": list(notes)})


def host_tiers_document(name: str, plans: Sequence[Plan]) -> Document:
    """From which size of host memory on it fits, and a row per size: the run, what is turned, its price."""
    first = next((plan for plan in plans if plan.fits), None)
    head = verdict("fits no size of RAM given", "bold red")
    if first is not None:
        head = verdict(f"fits from {format_size(first.budget.ram or 0)} of RAM", "green")
    table = Table(["RAM", "run", "host at most", "price", "with"], "rlrlw")
    for plan in plans:
        price = _dearest(plan) if plan.fits else "does not fit"
        style = PRICE_STYLES.get(price, "" if plan.fits else "bold red")
        cells = (plan.asked.name, format_size(plan.after.host.high), Note(price, style))
        table.add(format_size(plan.budget.ram or 0), *cells, ", ".join(turn.name for turn in plan.turns) or "-")
    return Document(f"{name} by host memory", head, [table], PLAN_FOOTER)


def _dearest(plan: Plan) -> str:
    return max((turn.price for turn in plan.turns), key=list(PRICE_STYLES).index, default="as it is")


def train_command(name: str, plan: Plan, again: Sequence[str]) -> str:
    """Return the command that trains the plan; `again` are the options that gave the run and the budget."""
    return shlex.join(["legroom", "train", name, *(["--fit"] if plan.turns else []), *again])


def recommendation_document(workload: str, found: Recommendation, again: Sequence[str]) -> Document:
    """The named run to train and why, all of them beside the budget, and the way to train the default one."""
    budget, gpu = found.plan.budget, found.plan.after.gpu is not None
    parts: list[Part] = [*reason_lines(found), Section("The named runs", [_named_table(found.named, gpu=gpu)])]
    if found.chosen is not None and found.shown.turns:
        parts.append(plan_section(found.shown))
    if found.chosen != found.plan.asked:
        full = found.plan.asked.name
        command = f"to train {full} in the same memory: {train_command(full, found.plan, again)}"
        parts.append(Section(full, [command] if found.plan.fits else []))
        parts.append(plan_section(found.plan))
    parts += peak_bars([(f"{each.run.name}, with free savings", each.freely) for each in found.named], budget)
    title = f"{workload} within {budget_text(budget, gpu=gpu)}"
    return Document(title, _recommended(found, again), parts, PLAN_FOOTER)


def reason_lines(found: Recommendation) -> Iterator[str]:
    """Yield why that run, and which of its settings change results."""
    chosen, full, passed = found.chosen, found.plan.asked, ", ".join(found.passed)
    if chosen is None:
        yield f"no run fits with the same results: {passed}"
    elif chosen == full:
        yield f"why: {chosen.name} is the default, and it fits with the same results"
    else:
        yield f"why: the first that fits with the same results; {passed} would need changed results"
        yield f"what it costs beside {full.name}: {'; '.join(learning_changes(full, chosen))}"


def learning_changes(full: Run, chosen: Run) -> list[str]:
    """Return the settings that decide what is learned, in which the runs differ."""
    parts = ("hyperparams", "policy", "env.grid", "env.kwargs", "env.n_envs", "env.frame_stack")
    changes = [each for each in differences(full, chosen) if each.key.startswith(parts)]
    if full.total_timesteps != chosen.total_timesteps:
        changes.append(Change("total_timesteps", full.total_timesteps, chosen.total_timesteps))
    return [f"{each.key.removeprefix('hyperparams.')} {plain(each.before)} -> {plain(each.after)}" for each in changes]


def _named_table(named: Sequence[Named], *, gpu: bool) -> Table:
    """Return the named runs of a workload, as they are and with what costs nothing."""
    header = ["run", "host at most", *(["GPU at most"] if gpu else []), "fits", "with free savings", "recommended for"]
    table = Table(header, "lr" + "r" * gpu + "lrw")
    for each in named:
        cells = [each.run.name, format_size(each.footprint.host.high)]
        if gpu:
            cells.append(format_size(each.footprint.gpu.high) if each.footprint.gpu is not None else "-")
        fits = Note("yes", "green") if each.fits else Note("no", "red")
        freely = format_size(each.freely.host.high) + ("" if each.fits_freely else " (no)")
        table.add(*cells, fits, freely, each.run.recommended_for)
    return table


def _recommended(found: Recommendation, again: Sequence[str]) -> Note:
    """Which of them to train."""
    if found.chosen is None:
        return verdict("none of them fits with the same results", "bold red")
    how = {"as it is": "as it is", "free": "with free savings"}.get(_dearest(found.shown), "same results, slower")
    return verdict(f"recommended: {train_command(found.chosen.name, found.shown, again)} ({how})", "green")


def recommendation_json(found: Recommendation, again: Sequence[str] = ()) -> str:
    """Return the plan of the recommended run as the contract has it, and beside it what else there is."""
    rows = [
        {
            "name": each.run.name,
            "fits": each.fits,
            "fits_with_free": each.fits_freely,
            **peaks_with_disk(each.footprint),
        }
        for each in found.named
    ]
    chosen = found.chosen
    more = {
        "named": rows,
        "recommended": None if chosen is None else chosen.name,
        "command": None if chosen is None else train_command(chosen.name, found.shown, again),
        "why": list(reason_lines(found)),
        "instead": plan_data(found.plan),
    }
    return document(plan_data(found.shown) | more)
