"""What `legroom train --backend rllib --cluster …` means: the run on RLlib, and where Ray is.

A run of another backend is read with RLlib's words allowed beside its own, so that `--num-env-runners 4` may be said of
a run that was written for SB3.
"""

from __future__ import annotations

import secrets
from collections.abc import Sequence

from legroom.backends.rllib.translation import rllib_plan
from legroom.catalog import load
from legroom.cli.train_choice import shortage, tell
from legroom.errors import BadInput
from legroom.model.machine import Machine
from legroom.model.run import Run
from legroom.model.verdict import Budget, fits
from legroom.predicting.predict import add_up, choose_device, gather
from legroom.rendering.console import status
from legroom.training.folder import Predicted, RunFolder
from legroom.training.train import Training

Settings = list[tuple[str, str]]


def with_backend(overrides: Sequence[tuple[str, str]], backend: str | None, cluster: str | None) -> Settings:
    """Return the settings that are laid over the run file, with the backend among them where it was given.

    Raises:
        BadInput: there is no such backend, or a run of another one is sent to a cluster.
    """
    if backend is not None and backend not in ("sb3", "brax", "rllib"):
        raise BadInput(f"--backend {backend!r} is none", hint="sb3, brax or rllib")
    if cluster is not None and backend not in (None, "rllib"):
        raise BadInput(f"--cluster is for RLlib: backend {backend} trains on this machine", hint="--backend rllib")
    return [*overrides] if backend is None else [*overrides, ("backend", backend)]


def refuse_what_rllib_cannot(run: Run, *, cluster: str | None, fit: bool, pictures: bool) -> None:
    """Say before Ray is started, which takes seconds, what would be refused after that.

    Raises:
        BadInput: in one line.
    """
    if run.backend != "rllib":
        if cluster is not None:
            raise BadInput(
                f"--cluster is for RLlib: {run.name} is of backend {run.backend}",
                path=run.source,
                hint="--backend rllib",
            )
        return
    rllib_plan(run)
    if fit:
        raise BadInput("--fit is for one machine; legroom fit --cluster plans per node", hint="leave --fit out")
    if pictures:
        raise BadInput("--visualization draws what SB3 and brax train, not RLlib", hint="leave it out")


def cluster_training(
    asked: Run, folder: RunFolder, machine: Machine, budget: Budget, cluster: str, *, quiet: bool
) -> Training | None:
    """Return the training of an RLlib run, seeded; None where it does not fit on this machine, which is said.

    Savings of legroom's are SB3's and not applied. On a cluster every runner asks Ray for the memory that it is
    predicted to need, so that Ray places it where that is; the cluster's own nodes are not looked at from here.
    """
    device = choose_device(asked, machine)
    with status(f"predicting {asked.name}", show=not quiet):
        seen, evidence = gather(asked, machine, device=device)
        footprint = add_up(seen, evidence)
    run = asked if asked.seed is not None else asked.replace(seed=secrets.randbelow(2**31))
    if cluster != "local":
        if run.memory.runner_bytes is None:
            request = load("predicting.runner_request")(seen, evidence)
            run = run.replace(memory=run.memory.model_copy(update={"runner_bytes": request}))
        return Training(asked, run, folder, device, versions=machine.versions, cluster=cluster)
    if fits(footprint, budget) is False:
        tell(f"{shortage(asked, footprint, budget)}; fewer environments, or more machines: --cluster ADDRESS")
        return None
    return Training(asked, run, folder, device, Predicted.of(footprint), versions=machine.versions, cluster=cluster)
