"""A profile as one page: the verdict, memory over steps, what observations and copies side by side cost.

How the page looks is in `rendering.page`, how its drawings are made in `rendering.figures`. Growth is drawn from where
the run began: against the tens of megabytes that any Python process has, a leak of a hundred kilobytes would be a flat
line.
"""

from __future__ import annotations

from collections.abc import Iterator
from html import escape

from legroom import __version__
from legroom.model.profile import Comparison, Profile
from legroom.rendering.figures.frame import HEIGHT, Frame, short_size, text_at
from legroom.rendering.figures.tables import text_lines, text_table
from legroom.rendering.page import facts, footer, legend, verdict, whole_page
from legroom.rendering.profile_text import (
    comparison_parts,
    headline,
    leak_text,
    line_table,
    observation_parts,
    pace_text,
    parallel_parts,
    rate_text,
    rollout_title,
    scaling_text,
)
from legroom.units import format_size

LEAST_SHOWN = 16 << 10  # bytes of height at least, or noise would fill the drawing
BAR = 0.6  # of its place
DROPPED_SHARE = 0.2  # of the steps, in which a verdict is not interested
PYTHON, MALLOC, TREND = "var(--trainer)", "var(--others)", "var(--limit)"
ALONE, SHARED = "var(--trainer)", "var(--workers)"


def profile_page(profile: Profile, comparison: Comparison | None = None) -> str:
    """Return the whole page."""
    return whole_page(f"Profile of {profile.env}", _body(profile, comparison))


def _body(profile: Profile, comparison: Comparison | None) -> Iterator[str]:
    leak = profile.leak
    judged, _, rest = leak_text(leak).partition(": ")
    yield f"<h1>{escape(headline(profile))}</h1>"
    yield verdict(judged, leak.verdict, rest)
    yield facts(_figures(profile))
    if comparison is not None:
        yield text_lines(comparison_parts(comparison))
    if len(profile.curve.steps) >= 2:
        yield "<h2>Memory over steps, since the first</h2>"
        yield from _growth_chart(profile)
    if leak.lines:
        yield "<h2>Lines that leak</h2>"
        yield text_table(line_table(leak))
        yield f"<p>Found by {escape(leak.found_by)}, in a separate pass.</p>"
    if profile.observation is not None:
        yield "<h2>Observations</h2>"
        yield text_lines(observation_parts(profile.observation))
        yield f"<p>Checked {profile.observation.checked:,} observations.</p>"
    if profile.parallel or profile.scaling.why:
        yield "<h2>Copies side by side, each in its own process</h2>"
        if profile.parallel:
            yield from _parallel_chart(profile)
        yield text_lines(parallel_parts(profile))
    yield footer(
        "Memory in use is what Python's and C's allocators hold. Processes are legroom's light "
        f"workers; memory that several share counts once. Written by legroom profile {__version__}."
    )


def _figures(profile: Profile) -> Iterator[tuple[str, str]]:
    yield "pace", f"{pace_text(profile.steps_per_s)} steps per second"
    if profile.observation is not None:
        cost = profile.observation
        stack = f" ({cost.stack} frames)" if cost.stack > 1 else ""
        size = format_size(cost.rollout_nbytes)
        yield "observation", f"{format_size(cost.stacked_nbytes)}{stack}; {rollout_title(cost)}: {size}"
    if profile.parallel:
        yield "side by side", scaling_text(profile)
    yield "profiling itself", f"{profile.own_cpu_share:.1%} of the environment's processor time"


def _growth_chart(profile: Profile) -> Iterator[str]:
    curve, leak = profile.curve, profile.leak
    series = {"Python objects": (PYTHON, curve.python), "arrays and C memory": (MALLOC, curve.malloc)}
    grown = {name: (colour, [value - values[0] for value in values]) for name, (colour, values) in series.items()}
    together = [sum(pair) for pair in zip(*(values for _, values in grown.values()), strict=True)]
    trend: list[float] = []
    places = [curve.steps[0] + DROPPED_SHARE * (curve.steps[-1] - curve.steps[0]), curve.steps[-1]]
    if leak.verdict != "ok":
        trend = [together[-1] - leak.bytes_per_step * (places[1] - places[0]), together[-1]]
    everything = [*together, *trend, *(value for _, values in grown.values() for value in values)]
    top, bottom = max(*everything, 0), min(*everything, 0)
    spare = max(LEAST_SHOWN - (top - bottom), 0) / 2
    frame = Frame(
        curve.steps[0], curve.steps[-1], top + spare, bottom=bottom - spare if bottom - spare < -1024 else 0,
        label=_step_text, size_label=_signed_size, least_step=4096,
    )  # fmt: skip
    inside = [
        f'<path class="curve" stroke="{colour}" d="{frame.line(curve.steps, values)}"/>'
        for colour, values in grown.values()
    ]
    names = {name: colour for name, (colour, _) in grown.items()}
    if trend:
        inside.append(f'<path class="cap" d="{frame.line(places, trend)}"/>')
        names[f"both together, {rate_text(leak.bytes_per_step)} per step"] = TREND
    yield legend(names)
    yield frame.chart("growth", f"Memory of {profile.env} over {profile.steps:,} steps", leak_text(leak), inside)


def _step_text(step: float) -> str:
    """Return a step on the axis; samples fall a few steps beside round numbers."""
    digits = 10 ** max(len(str(round(step))) - 3, 0)
    return f"{round(step / digits) * digits:,}"


def _signed_size(nbytes: float) -> str:
    return f"+{short_size(nbytes)}" if nbytes > 0 else short_size(nbytes).replace("-", "−")


def _parallel_chart(profile: Profile) -> Iterator[str]:
    rows = profile.parallel
    frame = Frame(
        -0.5, len(rows) - 0.5, 1.08 * max(row.pss for row in rows),
        label=lambda place: f"{rows[round(place)].envs:,} env{'s' if rows[round(place)].envs > 1 else ''}",
    )  # fmt: skip
    inside, labels = [], ""
    for place, row in enumerate(rows):
        ends = [place - BAR / 2, place + BAR / 2]
        for colour, low, high in ((SHARED, 0, row.shared), (ALONE, row.shared, row.pss)):
            area = frame.area(ends, [low, low], [high, high])
            inside.append(f'<path fill="{colour}" stroke="none" d="{area}"/>')
        left, top = (place + 0.5) / len(rows), frame.y(row.pss) / HEIGHT
        labels += text_at(left, top, short_size(row.pss), dy=-6, kind="over")
    yield legend({"shared among them": SHARED, "each one's own": ALONE})
    yield frame.chart(
        "parallel", f"Memory of copies of {profile.env} side by side", scaling_text(profile), inside, labels,
        places=range(len(rows)),
    )  # fmt: skip
