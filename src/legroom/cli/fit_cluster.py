"""`legroom fit RUN --nodes …`: a run divided over the nodes of a cluster, and the file that trains so."""

from __future__ import annotations

import shlex
from functools import partial

from legroom.backends.base import backend_of, spreading_backend
from legroom.cli.answering import Answer, Look
from legroom.errors import EXIT_FINDINGS, EXIT_GOOD, BadInput
from legroom.model.cluster import Cluster
from legroom.model.run import Run
from legroom.predicting.predict import gather
from legroom.rendering.cluster_plan import cluster_plan_file, cluster_plan_json, cluster_plan_text
from legroom.rendering.console import say


def fit_cluster(run: Run, cluster: Cluster, look: Look, answer: Answer) -> int:
    """Fit, print the plan, write the run; 0 where it fits.

    Raises:
        BadInput: the run's backend trains on one machine, or the file cannot be written.
    """
    backend = backend_of(run)
    if not backend.spreads:
        able = spreading_backend()
        what = f"a cluster is fitted with {able.title}, " if able is not None else ""
        raise BadInput(f"{what}{run.name} is of backend {run.backend}", path=run.source)
    with look.showing(f"fitting {run.name} to {len(cluster.nodes):,} nodes"):
        seen, evidence = gather(run, look.machine, mode=look.mode, device=look.device)
        plan = backend.fit_to_cluster(seen, cluster, evidence, reserve=look.budget.reserve)
    answer.write_run(plan.fits, partial(cluster_plan_file, plan))
    say(cluster_plan_json(plan) if answer.json else cluster_plan_text(plan))
    if plan.fits and not answer.json:
        what, train = "keep it with -o FILE, and train that", ""
        if answer.output is not None:
            what = f"written to {answer.output}"
            train = f"; on the cluster: legroom train {shlex.quote(str(answer.output))} --cluster auto"
        say(what + train)
    return EXIT_GOOD if plan.fits else EXIT_FINDINGS
