"""The tier table: one row per size of card; and the named runs of a workload beside a budget."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from json import dumps
from typing import Any

from legroom.model.plan import Plan
from legroom.rendering.fitting import PRICE_STYLES, budget_text, peaks_data, plan_data, plan_text
from legroom.rendering.layout import Part, Styled, Table
from legroom.units import GIB, format_size


def tiers_json(tiers: Sequence[Any]) -> str:
    """Return the rows as JSON, each with its whole plan."""
    return dumps({"legroom": 1, "tiers": [_row_data(tier) for tier in tiers]}, indent=2)


def _row_data(tier: Any) -> dict[str, Any]:
    return {
        "vram": tier.vram,
        "fits": tier.plan.fits,
        "num_envs": tier.n_envs,
        "batch": tier.batch,
        "minibatches": tier.minibatches,
        "micro_batch": tier.micro_batch,
        **{key: value for key, value in plan_data(tier.plan).items() if key in ("after", "knobs", "run")},
    }


def tiers_text(name: str, tiers: Sequence[Any]) -> Iterator[Part]:
    """Yield the table by GPU memory."""
    yield Styled(f"{name} by GPU memory", "bold")
    yield tiers_table(tiers)
    hosts = [tier.plan.after.host.high for tier in tiers]
    yield f"host memory: at most {format_size(max(hosts))}"


def tiers_table(tiers: Sequence[Any]) -> Table:
    """Return a row per size of card."""
    table = Table(
        ["GPU", "num_envs", "batch", "mini-batches", "micro-batch", "GPU use", "at most", "price"], "rrrrrrrl"
    )
    for tier in tiers:
        gpu = tier.plan.after.gpu
        if not tier.plan.fits:
            table.add(f"{tier.vram / GIB:g} GiB", style="dim")
            table.rows[-1][-1] = Styled(f"needs {format_size(gpu.high)}" if gpu else "does not fit", "bold red")
            continue
        price = max((turn.price for turn in tier.plan.turns), key=list(PRICE_STYLES).index, default="as it is")
        table.add(
            f"{tier.vram / GIB:g} GiB", f"{tier.n_envs:,}", f"{tier.batch:,}",
            f"{tier.minibatches:,}" if tier.minibatches else "-", f"{tier.micro_batch:,}" if tier.micro_batch else "-",
            format_size(gpu.nbytes) if gpu else "-", format_size(gpu.high) if gpu else "-",
            Styled(price, PRICE_STYLES.get(price, "")),
        )  # fmt: skip
    return table


def recommendation_text(workload: str, named: Sequence[Any], chosen: Any, plan: Plan) -> Iterator[Part]:
    """Yield the named runs beside the budget, the one to take, and what the knobs would give instead."""
    gpu = plan.after.gpu is not None
    yield Styled(f"{workload} within {budget_text(plan.budget, gpu=gpu)}", "bold")
    yield named_table(named, gpu=gpu)
    yield ""
    yield recommended_line(chosen)
    yield ""
    if plan.turns or chosen is None:
        yield "with the knobs instead:"
        yield from plan_text(plan)


def named_table(named: Sequence[Any], *, gpu: bool) -> Table:
    """Return the named runs of a workload, as they are and with what costs nothing."""
    header = ["run", "host at most", *(["GPU at most"] if gpu else []), "fits", "with free savings", "recommended for"]
    table = Table(header, "lr" + "r" * gpu + "lrw")
    for each in named:
        cells = [each.run.name, format_size(each.footprint.host.high)]
        if gpu:
            cells.append(format_size(each.footprint.gpu.high))
        fits = Styled("yes", "green") if each.fits else Styled("no", "red")
        freely = format_size(each.freely.host.high) + ("" if each.fits_freely else " (no)")
        table.add(*cells, fits, freely, each.run.recommended_for)
    return table


def recommended_line(chosen: Any) -> Styled:
    """Return which of them to take."""
    if chosen is None:
        return Styled("none of them fits as it is", "bold red")
    how = "as it is" if chosen.fits else "with what costs nothing, which train does by itself"
    return Styled(f"recommended: legroom train {chosen.run.name} ({how})", "green")


def recommendation_json(named: Sequence[Any], chosen: Any, plan: Plan, shown: Plan) -> str:
    """Return the plan of the recommended run as the contract has it, and beside it what else there is."""
    rows = [
        {"name": each.run.name, "fits": each.fits, "fits_with_free": each.fits_freely, **peaks_data(each.footprint)}
        for each in named
    ]
    more = {
        "named": rows,
        "recommended": None if chosen is None else chosen.run.name,
        "instead": {key: value for key, value in plan_data(plan).items() if key != "legroom"},
    }
    return dumps(plan_data(shown) | more, indent=2)
