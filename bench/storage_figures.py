"""What the storage bench requires, and its two tables: required against measured, and all libraries side by side.

"Predicted" is what a prototype of the same design showed before this code was written. The stretch figures are wishes:
missing one is said, and does not fail the bench.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from bench.storage_rivals import LIBRARIES, OURS
from bench.storage_workloads import Workload

Results = dict[str, Any]
CHANGES = {
    "wrong_obs": "observations",
    "wrong_starts": "first stacks of episodes",
    "wrong_next": "next observations",
    "wrong_ends": "terminal observations",
}


@dataclass(frozen=True)
class Figure:
    """One requirement.

    Attributes:
        value: reads it from what the workload's processes said; KeyError where one did not run.
        limit: the most (or, with `at_least`, the least) it may be; None where nothing is required.
    """

    workload: str
    name: str
    value: Callable[[Workload, Results], float]
    limit: float | None
    unit: str = "×"
    predicted: str = "–"
    stretch: float | None = None
    at_least: bool = False

    def holds(self, value: float, limit: float) -> bool:
        """Say whether the value is on the right side."""
        return value >= limit if self.at_least else value <= limit


def _megabytes(_: Workload, results: Results) -> float:
    return whole_bytes(results[OURS]) / 1e6


def _below_plain(workload: Workload, results: Results) -> float:
    return workload.plain_bytes / whole_bytes(results[OURS])


def _below_sb3(_: Workload, results: Results) -> float:
    return whole_bytes(results["sb3"]) / whole_bytes(results[OURS])


def _of_sb3(_: Workload, results: Results) -> float:
    return whole_bytes(results[OURS]) / whole_bytes(results["sb3"])


def _below_best_other(_: Workload, results: Results) -> float:
    """How many times smaller than the smallest other library that gives back what it was given."""
    others = [one for name, one in results.items() if name not in (OURS, "sb3", "race") and "failed" not in one]
    return min(whole_bytes(one) for one in others if changed(one) == 0) / whole_bytes(results[OURS])


def _per_transition(workload: Workload, results: Results) -> float:
    return whole_bytes(results[OURS]) / (workload.shape.rows * workload.shape.n_envs)


def _changed_ends(_: Workload, results: Results) -> float:
    return changed(results[OURS])


def _add_of_copy(_: Workload, results: Results) -> float:
    """Means, because the steps that bring a new geology count too."""
    return results[OURS]["mean_add_s"] / results[OURS]["mean_copy_s"]


def _raced(what: str) -> Callable[[Workload, Results], float]:
    return lambda _, results: results["race" if "race" in results else OURS][what]["ratio"]


FIGURES = (
    Figure("mine", "memory of the whole rollout", _megabytes, 250, "MB", "203 MB"),
    Figure("mine", "below plain", _below_plain, 440, predicted="554×", at_least=True),
    Figure("mine", "minibatch of 64 ÷ SB3's", _raced("draw-64"), 0.4, predicted="0.2×"),
    Figure("mine", "add ÷ memcpy, mean of all steps", _add_of_copy, 2, predicted="1.5×"),
    Figure("pong", "memory", _megabytes, 25, "MB", "20 MB"),
    Figure("pong", "below SB3", _below_sb3, 200, predicted="283×", at_least=True),
    Figure("pong", "below the best other exact library", _below_best_other, 5, predicted="7×", at_least=True),
    Figure("pong", "sample of 32 ÷ SB3's", _raced("draw-32"), 1.0),
    Figure("pong", "sample of 256 ÷ SB3's", _raced("draw-256"), 1.0),
    Figure("scrolling", "memory", _megabytes, 350, "MB", "213 MB", stretch=250),
    Figure("scrolling", "one epoch of 64s ÷ SB3's with flatten", _raced("draw-64"), 1.5, stretch=1.0),
    Figure("scrolling", "a later epoch ÷ SB3's, which has flattened", _raced("later-epochs"), None),
    Figure("pacman", "memory", _megabytes, 60, "MB", "48 MB"),
    Figure("pacman", "one epoch of 64s ÷ SB3's with flatten", _raced("draw-64"), 1.5, stretch=1.0),
    Figure("pacman", "a later epoch ÷ SB3's, which has flattened", _raced("later-epochs"), None),
    Figure("vectors", "memory per transition", _per_transition, 1600, "B", "1590 B"),
    Figure("vectors", "observations changed, terminals included", _changed_ends, 0, "", "0"),
    Figure("vectors", "sample of 256 ÷ SB3's", _raced("draw-256"), 1.0),
    Figure("noise-rollout", "memory ÷ SB3's", _of_sb3, 1.03, predicted="1.0×"),
    Figure("noise-rollout", "add ÷ SB3's", _raced("add"), 1.5),
    Figure("noise-rollout", "one epoch of 64s ÷ SB3's with flatten", _raced("draw-64"), 1.5),
    Figure("noise-replay", "memory ÷ SB3's", _of_sb3, 1.03, predicted="0.5×"),
    Figure("noise-replay", "add ÷ SB3's", _raced("add"), 1.5),
    Figure("noise-replay", "sample of 32 ÷ SB3's", _raced("draw-32"), 1.5),
    Figure("noise-replay", "sample of 256 ÷ SB3's", _raced("draw-256"), 1.5),
)


def figures(chosen: dict[str, Workload], results: dict[str, Results]) -> tuple[list[list[str]], bool]:
    """Return the rows of required against measured, and whether any falls short or could not be measured."""
    rows, failed = [], False
    for figure in FIGURES:
        if figure.workload not in chosen:
            continue
        required = "–"
        if figure.limit is not None:
            required = f"{'≥' if figure.at_least else '≤'} {_amount(figure.limit, figure.unit)}"
        if figure.stretch is not None:
            required += f" (stretch {_amount(figure.stretch, figure.unit)})"
        try:
            value = figure.value(chosen[figure.workload], results[figure.workload])
        except (KeyError, ValueError):
            measured, verdict = "–", "not measured"
        else:
            measured, verdict = _amount(value, figure.unit), "FALLS SHORT"
            if figure.limit is None:
                verdict = "for information"
            elif figure.holds(value, figure.limit):
                verdict = "ok"
                if figure.stretch is not None:
                    verdict += ", stretch too" if figure.holds(value, figure.stretch) else ", stretch missed"
        failed |= not verdict.startswith(("ok", "for"))
        rows.append([figure.workload, figure.name, figure.predicted, required, measured, verdict])
    return rows, failed


def side_by_side(chosen: dict[str, Workload], results: dict[str, Results]) -> list[list[str]]:
    """Return one row per workload and library."""
    rows = []
    for name, workload in chosen.items():
        first = workload.title
        for library, about in LIBRARIES.items():
            said = results[name].get(library)
            if said is None:
                continue
            if "failed" in said:
                rows.append([first, about.name, f"failed: {said['failed']}", "", "", "", "", ""])
                first = ""
                continue
            nbytes = whole_bytes(said)
            sb3 = results[name].get("sb3", {})
            plain = sb3["nbytes"] if sb3.get("rows", 0) == workload.shape.rows else workload.plain_bytes
            memory = f"{nbytes / 1e6:,.1f} MB"
            if said["rows"] < said["of_rows"]:
                memory += f" (×{said['of_rows'] / said['rows']:.0f} from {said['rows']} rows)"
            if said["payload"]:
                memory += f", payload {said['payload'] * said['of_rows'] / said['rows'] / 1e6:,.1f}"
            peak = f"{said['peak'] / 1e6:,.0f} MB" if said["rows"] == said["of_rows"] else "–"
            rows.append([
                first, about.name, memory, f"{plain / nbytes:,.1f}", peak,
                _time(said["add_s"]), _time(said["draw_s"]), _content(said),
            ])  # fmt: skip
            first = ""
    return rows


def whole_bytes(said: Results) -> float:
    """Return the bytes of the whole buffer, in proportion where a part was measured."""
    return said["nbytes"] * said["of_rows"] / said["rows"]


def changed(said: Results) -> int:
    """Return how many of the compared observations came back changed."""
    return sum(said[kind] for kind in CHANGES)


def _content(said: Results) -> str:
    found = [f"{said[kind]} {words}" for kind, words in CHANGES.items() if said[kind]]
    return f"CHANGED: {', '.join(found)} of {said['checked']}" if found else "exact"


def _amount(value: float, unit: str) -> str:
    if unit == "×":
        return f"{value:,.0f}×" if value >= 100 else f"{value:.2f}×"
    if unit == "MB":
        return f"{value:,.1f} MB"
    return f"{value:,.1f} {unit}" if unit else f"{value:,.0f}"


def _time(seconds: float) -> str:
    if seconds < 1e-3:
        return f"{seconds * 1e6:.0f} µs"
    return f"{seconds * 1e3:.1f} ms" if seconds < 1 else f"{seconds:.2f} s"
