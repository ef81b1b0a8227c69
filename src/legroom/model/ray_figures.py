"""What the processes of Ray and RLlib hold before they do anything, by role."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from legroom.model.footprint import Known


@dataclass(frozen=True)
class RayFigures:
    """Bytes by role, measured on this machine or shipped.

    Anonymous memory of each kind of process; the pages of mapped libraries are counted once per node, whoever maps
    them there.

    Args:
        head: what only the head runs: global control store, autoscaler's monitor, dashboard.
        node: what every node runs: raylet, dashboard agent, runtime environment agent.
        log_monitor: one more on every node, apart because a cluster simulated on one machine has one for all nodes.
        driver: the training process after a first tiny update, its learner in it.
        runner: an env runner that has sampled a little.
        node_files: mapped libraries of a node without any of these; `files`: with a runner or the driver.
        errors: ± bytes for each of those names.
    """

    head: int
    node: int
    log_monitor: int
    driver: int
    runner: int
    node_files: int
    files: int
    errors: Mapping[str, int]
    known: Known
    versions: Mapping[str, str] = field(default_factory=dict)
