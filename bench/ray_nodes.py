"""RLlib runs on a cluster of three nodes: predicted against measured memory of every node.

    python -m bench.ray_nodes [--only NAME]

The nodes are `ray.cluster_utils.Cluster`'s, on this machine. What is compared is what the sum of PSS of a node's
processes would be on a machine of its own: PSS itself divides a library's page among the processes of all three nodes
(and of whatever else runs here), so it is too small by most of libtorch. Measured is therefore anonymous memory, plus
each mapped file's pages once per node, plus the pages that exist of the node's object store (`bench.ray_measure`); the
prediction counts the same three. One difference to real nodes remains: a simulated cluster has one log monitor for all
its nodes, so that item is left out of the prediction of nodes other than the head.

A prediction is made before the cluster starts, and with it the placement of the runners; where Ray's differs, the row
says so and its memory is compared with what was predicted all the same.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from bench.ray_measure import Measured, measure
from bench.results import write_section
from legroom.backends.rllib.nodes import predict_nodes
from legroom.machine import probe
from legroom.model.cluster import Cluster, Node, NodeBill
from legroom.model.run import Run
from legroom.predicting.predict import gather

COMMAND = "python -m bench.ray_nodes"
MOST_ERROR = 0.10
CPUS, RAM, STORE = 4, 6 << 30, 400_000_000

_PIXELS = "bench.pixel_env:Sprites"
SETTINGS: dict[str, tuple[dict[str, Any], int]] = {  # name -> (run, env steps)
    "PPO, numbers, 6 runners x 4": (
        {
            "algo": "PPO",
            "env": {"id": "CartPole-v1", "n_envs": 24, "workers": "subproc", "envs_per_worker": 4},
            "hyperparams": {"n_steps": 128, "batch_size": 256, "n_epochs": 2},
        },
        9_000,
    ),
    "PPO, pictures, 3 runners x 4": (
        {
            "algo": "PPO",
            "env": {"id": _PIXELS, "n_envs": 12, "workers": "subproc", "envs_per_worker": 4},
            "policy": {"name": "CnnPolicy"},
            "hyperparams": {"n_steps": 96, "batch_size": 64, "n_epochs": 1},
        },
        3_456,
    ),
    "DQN, numbers, 4 runners x 8": (
        {
            "algo": "DQN",
            "env": {"id": "CartPole-v1", "n_envs": 32, "workers": "subproc", "envs_per_worker": 8},
            "hyperparams": {"buffer_size": 20_000, "batch_size": 128, "learning_starts": 500, "train_freq": 16},
        },
        22_000,
    ),
    "DQN, pictures, 2 runners x 2": (
        {
            "algo": "DQN",
            "env": {"id": _PIXELS, "n_envs": 4, "workers": "subproc", "envs_per_worker": 2},
            "policy": {"name": "CnnPolicy"},
            "hyperparams": {"buffer_size": 6_000, "batch_size": 32, "learning_starts": 200, "train_freq": 32},
        },
        7_000,
    ),
}


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(description="Predicted against measured memory of the nodes of a cluster.")
    parser.add_argument("--only", help="settings whose name has this in it; writes no results")
    options = parser.parse_args(arguments)
    rows = []
    for name, (data, steps) in SETTINGS.items():
        if options.only is None or options.only in name:
            rows += _rows(name, Run.model_validate({"backend": "rllib", "name": name, **data}), steps)
            print(*rows[-3:], sep="\n", flush=True)
    if options.only is None:
        columns = ["setting", "node", "runners", "predicted", "band", "measured", "error", "required", "verdict"]
        write_section("Nodes of a Ray cluster", columns, rows, COMMAND)
    return 0 if all(row[-1] == "ok" for row in rows) else 1


def _rows(name: str, run: Run, steps: int) -> list[list[str]]:
    cluster = Cluster(tuple(Node(f"node {n}", RAM, CPUS) for n in (1, 2, 3)))
    seen, evidence = gather(run, probe(), device="cpu", trust=True)
    predicted = sorted(
        ((number, bill) for bill in predict_nodes(seen, evidence, cluster) for number in bill.names),
        key=lambda pair: pair[0],
    )
    node = {"cpus": CPUS, "memory": RAM, "object_store": STORE}
    found = measure(seen, [node] * 3, steps)
    # which of the equal nodes comes after the head is chance: compared in the order of their runners
    found = [found[0], *sorted(found[1:], key=lambda one: -one.runners)]
    return [_row(name, number, bill, one) for (number, bill), one in zip(predicted, found, strict=True)]


def _row(name: str, number: str, bill: NodeBill, found: Measured) -> list[str]:
    footprint = bill.footprint
    if not found.head:
        items = tuple(item for item in footprint.items if item.name != "ray.log monitor")
        footprint = replace(footprint, items=items)
    peak = footprint.host
    error = peak.nbytes / found.peak - 1
    runners = f"{bill.runners}" if bill.runners == found.runners else f"{bill.runners}, Ray: {found.runners}"
    split = f"{found.peak / 1e6:.0f} MB ({found.anon / 1e6:.0f} own, {found.files / 1e6:.0f} files, "
    split += f"{found.shm / 1e6:.0f} store)"
    good = abs(error) <= MOST_ERROR
    parts = ", ".join(f"{role} {nbytes / 1e6:.0f}" for role, nbytes in found.roles.items())
    sys.stderr.write(f"{name}, {number}: {parts}\n")
    band = f"{peak.low / 1e6:.0f}–{peak.high / 1e6:.0f} MB"
    return [name, number, runners, f"{peak.nbytes / 1e6:.0f} MB", band, split, f"{error:+.1%}",
            f"within {MOST_ERROR:.0%}", "ok" if good else "MISSED"]  # fmt: skip


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
