"""Optuna: a trial whose suggested values do not fit into memory is pruned before it starts.

    unfit = PruneUnfit("4GiB")

    def objective(trial):
        values = {"n_steps": trial.suggest_int("n_steps", 128, 65536, log=True), ...}
        values = unfit(trial, PPO, "CnnPolicy", env, **values)      # raises TrialPruned where it does not fit
        model = PPO("CnnPolicy", env, **values)

It is asked by arithmetic, in milliseconds. Where it is unknown (networks of one's own), the trial runs.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from legroom.api import asked_budget, predict
from legroom.backends.base import backend_of
from legroom.extras import needs
from legroom.machine import probe
from legroom.model.footprint import Footprint
from legroom.model.run import Run
from legroom.model.verdict import fits
from legroom.predicting.predict import add_up, gather
from legroom.units import format_size

with needs("optuna", what="pruning trials"):
    from optuna import TrialPruned
    from optuna.trial import BaseTrial

HOST, GPU = "legroom.host_bytes", "legroom.gpu_bytes"  # attributes of a trial


class PruneUnfit:
    """Prunes trials that do not fit.

    Args:
        ram: host memory for all trials that run at once (`"4GiB"`, bytes); `vram` the same for the GPU.
        n_jobs: trials at once, as given to `study.optimize`; the budget is divided among them.
        reserve: share of the budget to keep free.
        budget: what `ram` is, by its name in 0.2.
    """

    def __init__(
        self, ram: str | int | None = None, *, vram: str | int | None = None, n_jobs: int = 1, reserve: float = 0.0,
        budget: str | int | None = None,
    ) -> None:  # fmt: skip
        self._machine = probe()
        given = asked_budget(self._machine, ram=budget if ram is None else ram, vram=vram, named=False, share=n_jobs)
        self.budget = replace(given, reserve=reserve)

    def __call__(self, trial: BaseTrial, what: Any, policy: Any = None, env: Any = None, **values: Any) -> Any:
        """Return what to train with: the values as they are; a Run with free savings where it needs them.

        Args:
            what: an algorithm's class, with what its constructor would get; or a Run.

        Raises:
            TrialPruned: it does not fit.
        """
        if isinstance(what, Run):
            return self._run(trial, what)
        footprint = predict(what, policy, env, machine=self._machine, mode="arithmetic", **values)
        self._judge(trial, footprint)
        return values

    def _run(self, trial: BaseTrial, run: Run) -> Run:
        seen, evidence = gather(run, self._machine, mode="arithmetic")
        footprint = add_up(seen, evidence)
        if fits(footprint, self.budget) is False:
            seen = backend_of(seen).fitter.with_free_savings(seen, evidence)
            footprint = add_up(seen, evidence)
        self._judge(trial, footprint)
        return seen

    def _judge(self, trial: BaseTrial, footprint: Footprint) -> None:
        trial.set_user_attr(HOST, footprint.host.high)
        if footprint.gpu is not None:
            trial.set_user_attr(GPU, footprint.gpu.high)
        if fits(footprint, self.budget) is False:
            card = f" and {format_size(footprint.gpu.high)} of GPU memory" if footprint.gpu is not None else ""
            raise TrialPruned(f"does not fit: needs up to {format_size(footprint.host.high)}{card}")
