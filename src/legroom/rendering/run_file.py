"""A run as the file that `legroom` reads: YAML in the order people think of it, comments where a knob was turned."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import yaml

from legroom.model.plan import Plan, Turn
from legroom.model.run import Run
from legroom.model.spaces import plain
from legroom.units import format_size

LEFT_OUT = ("source", "name")
ORDER = (
    "legroom", "description", "recommended_for", "backend", "algo", "env", "policy", "hyperparams", "memory", "eval",
    "checkpoint", "total_timesteps", "seed", "device",
)  # fmt: skip
WIDTH = 110


def plan_file(plan: Plan, command: str) -> str:
    """Return the fitted run as a file, with what was done and what it is predicted to need at its head."""
    peaks = f"host {format_size(plan.after.host.nbytes)} (at most {format_size(plan.after.host.high)})"
    if plan.after.gpu is not None:
        peaks += f", GPU {format_size(plan.after.gpu.nbytes)} (at most {format_size(plan.after.gpu.high)})"
    head = [f"{plan.run.name}, fitted: {command}", f"predicted: {peaks}"]
    return run_file(plan.run, head=head, comments=_comments(plan.turns))


def run_data(run: Run) -> dict[str, Any]:
    """Return what a run file says: what differs from the defaults, and its backend."""
    data = run.model_dump(exclude_defaults=True)
    return {"legroom": 1, "backend": run.backend, **{k: v for k, v in data.items() if k not in LEFT_OUT}}


def run_file(run: Run, *, head: Iterable[str] = (), comments: Mapping[str, str] | None = None) -> str:
    """Return the run as YAML that reads back as the same run.

    Args:
        comments: by dotted key, what to say about it at the end of its line.
    """
    data = run_data(run)
    lines = [f"# {' '.join(line.split())}" for line in head]
    for key in (*ORDER, *(key for key in data if key not in ORDER)):
        if key in data:
            lines += _entry(key, data[key], key, comments or {}, 0)
    return "\n".join(lines) + "\n"


def _entry(name: str, value: Any, path: str, comments: Mapping[str, str], depth: int) -> list[str]:
    """Return the lines of one key; a mapping that has comments inside, or is long, is written line by line."""
    indent, said = "  " * depth, comments.get(path, "")
    flow = f"{indent}{name}: {_flow(value)}"
    inside = any(key.startswith(f"{path}.") for key in comments)
    if isinstance(value, dict) and value and (depth == 0 or inside or len(flow) > WIDTH):
        lines = [f"{indent}{name}:" + (f"  # {said}" if said else "")]
        for key, entry in value.items():
            lines += _entry(str(key), entry, f"{path}.{key}", comments, depth + 1)
        return lines
    return [flow + (f"  # {said}" if said else "")]


def _flow(value: Any) -> str:
    text = yaml.safe_dump(value, default_flow_style=True, width=10**6, allow_unicode=True, sort_keys=False)
    return text.removesuffix("\n").removesuffix("...").strip()


def _comments(turns: Iterable[Turn]) -> dict[str, str]:
    comments = {}
    for turn in turns:
        for change in turn.changes:
            was = "left out" if change.before is None else _flow(plain(change.before))
            told = f"; {turn.say}" if change.key == turn.name else ""
            comments[change.key] = f"{turn.price}: was {was}{told}" if len(was) < 60 else f"{turn.price}{told}"
    comments.pop("env.spaces", None)
    return comments
