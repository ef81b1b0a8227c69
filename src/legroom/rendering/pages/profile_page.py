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
from legroom.rendering.figures.tables import table
from legroom.rendering.page import facts, footer, legend, verdict, whole_page
from legroom.rendering.profile_text import (
    CHANGE_NAMES,
    change_text,
    change_value,
    comparison_summary,
    headline,
    kind_text,
    leak_text,
    observation_findings,
    pace_text,
    rate_text,
    rollout_title,
    scaling_text,
    short_path,
    would_do_text,
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
        yield from _comparison(comparison)
    if len(profile.curve.steps) >= 2:
        yield "<h2>Memory over steps, since the first</h2>"
        yield from _growth_chart(profile)
    if leak.lines:
        rows = [
            [f"<code>{escape(short_path(line.file))}:{line.line}</code>", escape(line.function),
             rate_text(line.bytes_per_step)]
            for line in leak.lines
        ]  # fmt: skip
        yield "<h2>Lines that leave memory behind</h2>"
        yield table(["line", "in", "per step"], "lln", rows)
        yield f"<p>Found by {escape(leak.found_by)}, in a pass of its own.</p>"
    if profile.observation is not None:
        yield from _observation(profile)
    if profile.parallel or profile.scaling.why:
        yield "<h2>Side by side, each in a process of its own</h2>"
        yield from _parallel(profile)
    yield footer(
        "Memory in use is what Python's and C's allocators have handed out. Processes are light workers of "
        f"legroom's; memory that several share counts once. Written by legroom profile {__version__}."
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


def _observation(profile: Profile) -> Iterator[str]:
    cost = profile.observation
    if cost is None:
        return
    outer = cost.stacked_nbytes // max(cost.nbytes, 1)
    stacked = [f"{outer} stacked"] if outer > 1 else []

    def row(name: str, kind: str, nbytes: int, would_do: str) -> list[str]:
        more = [format_size(outer * nbytes)] if stacked else []
        total = format_size(outer * nbytes * cost.rollout_steps)
        return [escape(name), escape(kind), format_size(nbytes), *more, total, escape(would_do)]

    rows = [row(key.key, kind_text(key), key.nbytes, would_do_text(key)) for key in cost.keys]
    if len(cost.keys) > 1:
        rows.append(row("together", "", cost.nbytes, ""))
    yield "<h2>Observations</h2>"
    header = ["key", "type", "size", *stacked, rollout_title(cost), "would do"]
    yield table(header, "lln" + "n" * len(stacked) + "nl", rows, last_is_sum=len(cost.keys) > 1)
    findings = "".join(
        f'<li><strong class="{severity}">{severity}</strong> {escape(text)}</li>'
        for severity, text in observation_findings(cost)
    )
    yield f'<ul class="findings">{findings}</ul>' if findings else ""
    yield f"<p>Looked at {cost.checked:,} observations.</p>"


def _parallel(profile: Profile) -> Iterator[str]:
    rows = profile.parallel
    if rows:
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
        cells = [[f"{row.envs:,}", *map(format_size, (row.pss, row.shared, row.uss_per_env))] for row in rows]
        yield table(["environments", "memory (PSS)", "of it shared", "alone, each (USS)"], "nnnn", cells)
        yield f"<p>{escape(scaling_text(profile))}.</p>"
    if profile.scaling.why:
        yield f'<p class="warning">{escape(profile.scaling.why)}</p>'


def _comparison(comparison: Comparison) -> Iterator[str]:
    yield f"<h2>Against {escape(comparison.baseline)}</h2>"
    rows = [
        [CHANGE_NAMES[change.what], change_value(change, change.before), change_value(change, change.now),
         f'<span class="{change.verdict}">{escape(change_text(change))}</span>']
        for change in comparison.changes
    ]  # fmt: skip
    yield table(["", "before", "now", ""], "lnnl", rows)
    yield f"<p>{escape(comparison_summary(comparison).text)}</p>"
    for note in comparison.notes:
        yield f'<p class="warning">{escape(note)}</p>'
