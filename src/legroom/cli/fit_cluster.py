"""`legroom fit RUN --nodes …`: a run divided over the nodes of a cluster, and the file that trains so."""

from __future__ import annotations

import shlex
import sys
from pathlib import Path
from typing import Any

from legroom.catalog import load
from legroom.errors import EXIT_FINDINGS, EXIT_GOOD, BadInput
from legroom.model.cluster import Cluster
from legroom.model.files import write_whole
from legroom.model.machine import Machine
from legroom.model.run import Run
from legroom.predicting.predict import gather
from legroom.rendering.console import say, status


def fit_cluster(
    run: Run,
    cluster: Cluster,
    machine: Machine,
    mode: Any,
    device: Any,
    *,
    reserve: float,
    output: Path | None,
    json: bool,
) -> int:
    """Fit, print the plan, write the run; 0 where it fits.

    Raises:
        BadInput: the run is not RLlib's, or the file cannot be written.
    """
    if run.backend != "rllib":
        raise BadInput(f"a cluster is fitted with RLlib, {run.name} is of backend {run.backend}", path=run.source)
    with status(f"fitting {run.name} to {len(cluster.nodes):,} nodes", show=not json and mode != "arithmetic"):
        seen, evidence = gather(run, machine, mode=mode, device=device)
        plan = load("fitting.fit_to_cluster")(seen, cluster, evidence, reserve=reserve)
    if output is not None and plan.fits:
        command = shlex.join(["legroom", *sys.argv[1:]])
        try:
            write_whole(output, load("rendering.cluster_plan_file")(plan, command).encode())
        except OSError as error:
            raise BadInput(f"cannot be written: {error.strerror}", path=output, hint="-o FILE") from None
    say(load("rendering.cluster_plan_json")(plan) if json else load("rendering.cluster_plan_text")(plan))
    if plan.fits and not json:
        what = "keep it with -o FILE, and train that" if output is None else f"written to {output}"
        train = "" if output is None else f"; on the cluster: legroom train {shlex.quote(str(output))} --cluster auto"
        say(what + train)
    return EXIT_GOOD if plan.fits else EXIT_FINDINGS
