"""A plan as one page: knob by knob, what each costs and buys; tiers of cards; a workload's runs beside a budget."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from html import escape

from legroom import __version__
from legroom.fitting.tiers import Recommendation, Tier
from legroom.model.footprint import Footprint
from legroom.model.plan import Plan
from legroom.rendering.figures.bars import Bar, Limit, bar_of, stacked_bars
from legroom.rendering.figures.tables import item_table, text_lines, text_table
from legroom.rendering.layout import Part, Styled
from legroom.rendering.page import facts, footer, fragment, verdict, whole_page
from legroom.rendering.pages.prediction_page import bars_by_place
from legroom.rendering.plan_text import budget_text, peaks_text, result_lines, turn_table, verdict_text
from legroom.rendering.tier_table import (
    host_tiers_table,
    named_table,
    reason_lines,
    recommended_line,
    tiers_table,
)
from legroom.units import GIB, format_size

_FOOTER = (
    f"Every figure is predicted, the whole band inside the budget where it fits. Written by legroom fit {__version__}."
)


def plan_page(plan: Plan) -> str:
    """Return the whole page of one plan."""
    return whole_page(f"{plan.asked.name}, made to fit", [*_plan(plan), *_bills(plan), footer(_FOOTER)])


def plan_fragment(plan: Plan) -> str:
    """Return what a notebook shows of a plan."""
    return fragment([*_plan(plan), *_bills(plan)])


def tiers_page(name: str, tiers: Sequence[Tier]) -> str:
    """Return the whole page of a run by sizes of card."""

    def body() -> Iterator[str]:
        yield f"<h1>{escape(name)} by GPU memory</h1>"
        yield text_table(tiers_table(tiers))
        yield f"<p>host memory: at most {format_size(max(tier.plan.after.host.high for tier in tiers))}</p>"
        yield "<h2>GPU memory at its peak, by size of GPU</h2>"
        bars: list[Bar] = []
        for tier in tiers:
            bar = bar_of(tier.plan.after, "gpu", name=f"{tier.vram / GIB:g} GiB")
            bars += [bar] if bar is not None else []
        sizes = [Limit(tier.vram, "a card") for tier in tiers]
        yield stacked_bars(bars, sizes, title="GPU memory at its peak, by size of GPU")
        for tier in tiers:
            yield f"<h2>{tier.vram / GIB:g} GiB</h2>"
            yield from _plan(tier.plan, title=False, bars=False)
        yield footer(_FOOTER)

    return whole_page(f"{name} by GPU memory", body())


def recommendation_page(workload: str, found: Recommendation) -> str:
    """Return the whole page of a workload's named runs beside a budget."""

    def body() -> Iterator[str]:
        plan, gpu = found.plan, found.plan.after.gpu is not None
        yield f"<h1>{escape(workload)} within {escape(budget_text(plan.budget, gpu=gpu))}</h1>"
        yield text_lines([recommended_line(found), *reason_lines(found)])
        yield text_table(named_table(found.named, gpu=gpu))
        runs = [(f"{each.run.name}, with free savings", each.freely) for each in found.named]
        yield from bars_by_place(runs, plan.budget)
        for each in (found.shown,) if found.chosen in (None, plan.asked) else (found.shown, plan):
            if each.turns or not each.fits:
                yield f"<h2>{escape(each.asked.name)} with changed settings</h2>"
                yield from _plan(each, title=False)
        yield footer(_FOOTER)

    return whole_page(f"{workload}: what fits", body())


def host_tiers_page(name: str, plans: Sequence[Plan]) -> str:
    """Return the whole page of what fits each size of host memory."""

    def body() -> Iterator[str]:
        yield f"<h1>{escape(name)} by host memory</h1>"
        yield text_table(host_tiers_table(plans))
        yield footer(_FOOTER)

    return whole_page(f"{name}: what fits", body())


def _plan(plan: Plan, *, title: bool = True, bars: bool = True) -> Iterator[str]:
    if title:
        yield f"<h1>{escape(plan.asked.name)}: {escape(plan.asked.algo)} on {escape(plan.after.device)}</h1>"
    then, *told = result_lines(plan)
    short = "fits" if plan.fits else "does not fit"
    yield verdict(short, "ok" if plan.fits else "leak", verdict_text(plan).removeprefix(short).strip())
    yield facts([("as it is", peaks_text(plan.before)), ("then", _words(then).partition(":")[2].strip())])
    yield text_lines(told)
    if plan.turns:
        yield "<h3>Knob by knob</h3>"
        yield text_table(turn_table(plan))
        says = "".join(
            f'<li><code class="{turn.price}">{escape(turn.name)}</code>: {escape(turn.say)}</li>' for turn in plan.turns
        )
        yield f'<ul class="findings">{says}</ul>'
    if bars:
        yield from bars_by_place(list(_steps(plan)), plan.budget)


def _words(part: Part) -> str:
    return part.text if isinstance(part, Styled) else str(part)


def _steps(plan: Plan) -> Iterator[tuple[str, Footprint]]:
    """Yield the run as it is, and after each of the knobs."""
    yield "as it is", plan.before
    for turn in plan.turns:
        yield f"{turn.name} ({turn.price})", turn.after


def _bills(plan: Plan) -> Iterator[str]:
    yield f"<details><summary>After fitting, item by item</summary>{item_table(plan.after)}</details>"
    if plan.turns:
        yield f"<details><summary>As it is, item by item</summary>{item_table(plan.before)}</details>"
