"""A profile as a document, which is one screen of text, and as JSON.

Growth is drawn from where the run began: against the tens of megabytes that any Python process has, a leak of a hundred
kilobytes would be a flat line.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from dataclasses import asdict
from math import floor, log10
from pathlib import Path
from typing import Any

from legroom import __version__
from legroom.model.trace import Comparison, EnvLeak, FigureChange, KeyCost, ObservationCost, Profile
from legroom.rendering.console import document
from legroom.rendering.document import (
    Bar,
    Bars,
    BarSegment,
    Curves,
    Document,
    Note,
    Part,
    Section,
    Series,
    Table,
    section,
    verdict,
)
from legroom.units import format_size, plural

SHOWN_LINES = 6
SHOWN_KEYS = 12
VERDICT_STYLES = {"leak": "bold red", "growing": "yellow", "ok": "green"}
CHANGE_STYLES = {"better": "green", "worse": "red", "same": "", "unknown": "dim"}
CHANGE_NAMES = {
    "level": "memory in use", "bytes_per_step": "growth per step", "marginal": "one more env",
}  # fmt: skip


def profile_json(profile: Profile, comparison: Comparison | None = None) -> str:
    """Return the profile as JSON; `--save` writes the same for `--baseline` to read."""
    found: dict[str, Any] = {
        "env": profile.env,
        "steps": profile.steps,
        "steps_per_s": round(profile.steps_per_s, 2),
        "level": profile.level,
        "level_interval": profile.level_interval,
        "own_cpu_share": round(profile.own_cpu_share, 4),
        "leak": asdict(profile.leak),
        "observation": None if profile.observation is None else _observation_data(profile.observation),
        "parallel": [asdict(row) for row in profile.parallel],
        "scaling": asdict(profile.scaling),
        "fits_envs": profile.fits_envs,
        "versions": {"legroom": __version__, "python": ".".join(map(str, sys.version_info[:3]))},
    }
    if comparison is not None:
        found["baseline"] = asdict(comparison)
    return document(found)


def _observation_data(cost: ObservationCost) -> dict[str, Any]:
    return {
        "nbytes": cost.nbytes,
        "by_key": {key.key: key.nbytes for key in cost.keys},
        "aliases_env_memory": cost.aliases_env_memory,
        "changes_at_reset": cost.changes_at_reset,
        "stack": cost.stack,
        "stacked_nbytes": cost.stacked_nbytes,
        "rollout": {"steps": cost.rollout_steps, "nbytes": cost.rollout_nbytes, "said_by_run": cost.rollout_said},
        "checked": cost.checked,
        "keys": [asdict(key) for key in cost.keys],
    }


def profile_document(profile: Profile, comparison: Comparison | None = None, *, everything: bool = False) -> Document:
    """The report; all lines and keys of it where everything is asked for."""
    leak, cost = profile.leak, profile.observation
    lines, keys = (None, None) if everything else (SHOWN_LINES, SHOWN_KEYS)
    parts: list[Part] = [*_growth(profile)]
    if leak.lines:
        found = Note(f"found by {leak.found_by}, in a separate pass", "dim")
        parts.append(Section("Lines that leak", [_line_table(leak, lines), *([found] if everything else [])]))
    parts += [f"kept in: {container}" for container in leak.kept_in]
    if cost is not None:
        parts.append(Section("Observations", list(_observation_parts(cost, keys))))
    parts += section("Copies side by side, each in its own process", _parallel_parts(profile))
    if comparison is not None:
        parts.append(Section("Against the baseline", list(_comparison_parts(comparison))))
    footer = (
        "Memory in use is what Python's and C's allocators hold. Processes are legroom's light workers; memory that "
        f"several share counts once. Profiling itself took {profile.own_cpu_share:.1%} of the environment's processor "
        f"time. Written by legroom profile {__version__}."
    )
    return Document(headline(profile), verdict(leak_text(leak), VERDICT_STYLES[leak.verdict]), parts, footer)


def _growth(profile: Profile) -> Iterator[Section]:
    """Memory over steps since the first, and the trend that was found in it."""
    steps, leak = profile.curve.steps, profile.leak
    if len(steps) < 2:
        return
    python, malloc = ([n - held[0] for n in held] for held in (profile.curve.python, profile.curve.malloc))
    layers = [
        Series("Python objects", "var(--trainer)", python), Series("arrays and C memory", "var(--others)", malloc),
    ]  # fmt: skip
    if leak.verdict != "ok":
        end = python[-1] + malloc[-1]
        trend = [end - leak.bytes_per_step * (steps[-1] - step) for step in steps]
        name = f"both together, {rate_text(leak.bytes_per_step)} per step"
        layers.append(Series(name, "var(--limit)", trend))
    title = f"Memory of {profile.env} over {profile.steps:,} steps"
    curves = Curves(title, steps, layers, along="count", stacked=False, said=leak_text(leak))
    yield Section("Memory over steps, since the first", [curves])


def headline(profile: Profile) -> str:
    used = f", {format_size(profile.level)} in use" if profile.level else ""
    return f"{profile.env}: {profile.steps:,} steps, {_pace_text(profile.steps_per_s)} per second{used}"


def _pace_text(pace: float) -> str:
    return f"{pace:,.0f}" if pace >= 100 else f"{pace:,.1f}"


def leak_text(leak: EnvLeak) -> str:
    low, high = leak.interval
    rate = f"{rate_text(leak.bytes_per_step)} per step ({rate_text(low)} to {rate_text(high)})"
    if leak.verdict == "leak":
        left = f", out of memory in about {_rough(leak.steps_left)} steps" if leak.steps_left is not None else ""
        trouble = "" if leak.lines else f"; {leak.why}" if leak.why else ""
        return f"leak: {rate}{left}{trouble}"
    if leak.verdict == "growing":
        return f"growing: {rate}; {leak.why}"
    return f"no leak: {leak.why}" if leak.why and leak.why != "steady" else "no leak: memory does not grow"


def rate_text(nbytes: float) -> str:
    return f"{nbytes:.1f} B" if abs(nbytes) < 1000 else format_size(nbytes)


def _rough(number: int) -> str:
    """Return two digits of a number; the rest would be a promise."""
    if number < 100:
        return str(number)
    digits = 10 ** (floor(log10(number)) - 1)
    return f"{number // digits * digits:,}"


def _short_path(file: str) -> str:
    """Return the path as it is from the working directory, where it lies below."""
    try:
        return str(Path(file).relative_to(Path.cwd()))
    except (ValueError, OSError):
        return file


def _line_table(leak: EnvLeak, most: int | None = None) -> Table:
    """Return the lines that leave memory behind, the first of them where there are more than `most`."""
    table = Table(["left behind by", "per step", "in"], "lrw")
    for line in leak.lines[:most]:
        table.add(f"{_short_path(line.file)}:{line.line}", rate_text(line.bytes_per_step), line.function)
    if rest := leak.lines[len(table.rows) :]:
        table.add(f"{len(rest)} more lines", rate_text(sum(line.bytes_per_step for line in rest)), "", style="dim")
    return table


def _rollout_title(cost: ObservationCost) -> str:
    return f"rollout of {cost.rollout_steps:,}" if cost.rollout_said else f"{cost.rollout_steps:,} steps"


def _observation_parts(cost: ObservationCost, most: int | None = None) -> Iterator[Part]:
    """Yield what observations cost key by key, the largest where there are more than `most`, and what is wrong."""
    yield _observation_table(cost, most or len(cost.keys))
    for severity, text in observation_findings(cost):
        yield Note(f"{severity}: {text}", {"error": "bold red", "warning": "yellow"}.get(severity, "cyan"))


def _observation_table(cost: ObservationCost, most: int) -> Table:
    outer = cost.stacked_nbytes // max(cost.nbytes, 1)
    stacked = [f"{outer} stacked"] if outer > 1 else []
    align = "llr" + "r" * len(stacked) + "rw"
    table = Table(["observation", "type", "size", *stacked, _rollout_title(cost), ""], align)

    def add(name: str, kind: str, nbytes: int, remark: str, style: str = "") -> None:
        more = [format_size(outer * nbytes)] if stacked else []
        rollout = format_size(outer * nbytes * cost.rollout_steps)
        table.add(name, kind, format_size(nbytes), *more, rollout, remark, style=style)

    for key in sorted(cost.keys, key=lambda key: -key.nbytes)[:most]:
        shape = "×".join(map(str, key.shape)) or "1"
        add(key.key, f"{shape} {key.dtype}", key.nbytes, "never changed" if key.constant else "")
    if len(cost.keys) > 1:
        rest = f"all {len(cost.keys)} keys" if len(cost.keys) > most else "together"
        add(rest, "", cost.nbytes, "", "bold")
    return table


def observation_findings(cost: ObservationCost) -> Iterator[tuple[str, str]]:
    """Yield severity and text of what is wrong with observations."""
    for key in cost.keys:
        if key.aliases:
            yield ("error" if key.changes_after is not None else "warning"), _alias_text(key, cost)
    for key in cost.keys:
        if key.returned:
            yield "warning", f"{key.key} comes as {key.returned}, the space says {key.dtype}: it is cast at every step"


def _alias_text(key: KeyCost, cost: ObservationCost) -> str:
    if key.changes_after is None:
        return f"{key.key} is the same memory in every observation; no change was seen, but it can change"
    after = "the next step" if key.changes_after == 1 else f"{key.changes_after} steps"
    steps = f"{key.key} is a view of the environment's memory and has changed after {after}"
    if cost.changes_at_reset:
        return f"{steps}; SB3's terminal_observation will be the first of the next episode: return a copy"
    return f"{steps}: its content changes later; return a copy"


def _parallel_parts(profile: Profile) -> Iterator[Part]:
    if profile.parallel:
        table = Table(["side by side", "memory", "of it shared", "alone, each"], "lrrr")
        for row in profile.parallel:
            table.add(plural(row.envs, "env"), *(format_size(n) for n in (row.pss, row.shared, row.uss_per_env)))
        yield table
        bars = [
            Bar(
                plural(row.envs, "env"),
                (BarSegment("shared.among them", row.shared), BarSegment("envs.own", row.pss - row.shared)),
            )
            for row in profile.parallel
        ]
        yield Bars(f"Memory of copies of {profile.env} side by side", bars)
        yield _scaling_text(profile)
    if profile.scaling.why:
        yield Note(f"note: {profile.scaling.why}", "yellow" if not profile.parallel else "dim")


def _scaling_text(profile: Profile) -> str:
    scaling = profile.scaling
    more = ""
    if scaling.marginal is not None:
        within = (
            f" ({format_size(scaling.interval[0])} to {format_size(scaling.interval[1])})" if scaling.interval else ""
        )
        more = f"one more env takes {format_size(scaling.marginal)}{within}; "
    return f"{more}{profile.fits_envs or 0:,} fit into {format_size(scaling.budget)}, 90% of what is free here"


def _comparison_parts(comparison: Comparison) -> Iterator[Part]:
    table = Table([f"against {comparison.baseline}", "before", "now", ""], "lrrw")
    for change in comparison.changes:
        before, now = (_change_value(change, value) for value in (change.before, change.now))
        table.add(CHANGE_NAMES[change.what], before, now, Note(_change_text(change), CHANGE_STYLES[change.verdict]))
    yield table
    yield _comparison_summary(comparison)
    for note in comparison.notes:
        yield Note(f"note: {note}", "yellow")


def _comparison_summary(comparison: Comparison) -> Note:
    changed = [change for change in comparison.changes if change.verdict in ("better", "worse")]
    if not changed:
        return Note("nothing changed beyond noise", "green")
    worse = any(change.verdict == "worse" for change in changed)
    names = ", ".join(f"{CHANGE_NAMES[change.what]} {change.verdict}" for change in changed)
    return Note(f"changed beyond noise: {names}", "red" if worse else "green")


def _change_value(change: FigureChange, value: float | None) -> str:
    if value is None:
        return "–"
    return rate_text(value) if change.what == "bytes_per_step" else format_size(value)


def _change_text(change: FigureChange) -> str:
    if change.verdict == "unknown":
        return change.why
    if change.verdict == "same" or change.before is None or change.now is None:
        return "the same, within noise"
    if change.what == "bytes_per_step" or change.before <= 0:
        return change.verdict
    return f"{change.verdict}, {change.now / change.before:.2f}×"
