"""The tables of named runs, from the runs themselves."""

from __future__ import annotations

from collections.abc import Mapping

from docs.generators.markdown import table

from legroom.named_runs import workloads
from legroom.reading import read


def pages() -> Mapping[str, str]:
    rows = []
    for workload in workloads():
        for name in workload.run_files():
            run = read(f"{workload.name}:{name}")
            envs = run.hyperparams.get("num_envs", run.env.n_envs)
            rows.append(
                (f"`{workload.name}:{name}`", run.algo, f"{envs:,}", run.description, run.recommended_for)
            )  # fmt: skip
    return {"runs.md": table(["run", "algorithm", "envs", "what it is", "for"], rows)}
