"""The tables of named runs, from the runs themselves."""

from __future__ import annotations

from collections.abc import Mapping

from docs.generators.markdown import table

from legroom.reading import read
from legroom_workloads.registry import WORKLOADS, run_files


def pages() -> Mapping[str, str]:
    rows = []
    for workload in WORKLOADS:
        for name in run_files(workload.name):
            run = read(f"{workload.name}:{name}")
            envs = run.hyperparams.get("num_envs", run.env.n_envs)
            rows.append(
                (f"`{workload.name}:{name}`", run.algo, f"{envs:,}", run.description, run.recommended_for)
            )  # fmt: skip
    return {"runs.md": table(["run", "algorithm", "envs", "what it is", "for"], rows)}
