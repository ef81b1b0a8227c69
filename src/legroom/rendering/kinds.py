"""What kind of memory an item is, so that a drawing colours what belongs together alike.

A kind follows from an item's name alone, since a training's log keeps no more of it. Colours come in pairs, for light
and for dark paper; a name is written on each of them in `--on`, readable in both (4.5 : 1).
"""

from __future__ import annotations

# kind -> the name shown, the colour on light paper, the colour on dark paper; in the order bars are stacked
KINDS = {
    "runtime": ("runtime and libraries", "#5a6572", "#9aa5b1"),
    "envs": ("environments", "#37803f", "#7cc98a"),
    "storage": ("rollout and replay", "#2f6fb3", "#6aa9ea"),
    "network": ("networks", "#7d50a8", "#b795e0"),
    "optimizer": ("optimizer", "#a83d86", "#ee93cf"),
    "update": ("batches and activations", "#b4540a", "#f0a35e"),
    "evaluation": ("evaluation", "#0f7377", "#5fc9cc"),
    "checkpoint": ("checkpoints", "#8a6a1f", "#d3b066"),
    "shared": ("shared among processes", "#2f6fb3", "#6aa9ea"),
    "measured": ("measured as a whole", "#3f4a5a", "#c3ccd6"),
    "other": ("other", "#6b5b4f", "#b8a99c"),
}
_BY_ROOM = {
    "runtime": "runtime", "xla": "runtime", "env": "envs", "envs": "envs", "rollout": "storage", "replay": "storage",
    "storage": "storage", "network": "network", "optimizer": "optimizer", "update": "update", "collect": "update",
    "eval": "evaluation", "checkpoint": "checkpoint",
    "measured": "measured", "shared": "shared",
}  # fmt: skip
_BY_LABEL = {
    "optimizer": "optimizer", "activations": "update", "weights": "network", "targets": "network",
    "gradients": "network", "batch": "update", "temporaries": "update", "workspace": "update",
    "cudnn workspace": "update", "context": "runtime", "fragmentation": "runtime",
    "stored": "storage", "scratch": "update", "rnn reserve": "update", "failed request": "update",
    "custom calls": "update",
}  # fmt: skip
_LABELLED = ("network", "gpu")  # rooms whose second word says more than the first

LIGHT = "".join(f"--k-{kind}:{light};" for kind, (_, light, _) in KINDS.items())
DARK = "".join(f"--k-{kind}:{dark};" for kind, (_, _, dark) in KINDS.items())


def kind_of(item_name: str) -> str:
    """Return the kind of an item, as `storage` of `rollout.observations`; `other` where the name tells nothing."""
    room, _, label = item_name.partition(".")
    if label.startswith("evaluation"):
        return "evaluation"
    if "worker" in label:  # whatever a worker process has, it has for its environments
        return "envs"
    if room in _LABELLED and label in _BY_LABEL:
        return _BY_LABEL[label]
    return _BY_ROOM.get(room, "other")


def kind_name(kind: str) -> str:
    """Return a kind in words."""
    return KINDS[kind][0]


def kind_colour(kind: str) -> str:
    """Return a kind's CSS colour."""
    return f"var(--k-{kind})"
