"""From a grid to trials that know what they need: predicted once for all that need the same.

A learning rate or a seed changes nothing about memory, so trials that differ only in such settings share one
prediction; those that do not are asked for together, since most of a prediction is the start of a process.

Trials on one machine have the pages of torch's libraries together. They are left out of what each trial requests and
kept free once (`ray_sweep`).
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from legroom.backends.base import backend_of
from legroom.environments.own_code import own_code
from legroom.errors import BadInput, Unseen
from legroom.model.evidence import Evidence
from legroom.model.footprint import Footprint
from legroom.model.machine import Machine
from legroom.model.run import Run
from legroom.predicting.predict import add_up, gather_all
from legroom.sweeping.grid import Parameter, Point, points
from legroom.sweeping.trial import WORKER_NBYTES, Trial
from legroom.training.run_folder import Predicted

# Hyperparameters that are only numbers in a formula: no array's size and no kept tensor depends on them. What is None
# or not decides whether something is computed at all, so `clip_range_vf` and the like are not among them.
WITHOUT_MEMORY = frozenset({
    "learning_rate", "gamma", "gae_lambda", "ent_coef", "vf_coef", "max_grad_norm", "clip_range", "tau",
    "exploration_fraction", "exploration_initial_eps", "exploration_final_eps", "learning_starts",
    "target_update_interval", "rms_prop_eps", "discounting", "entropy_cost", "reward_scaling", "clipping_epsilon",
    "lr", "grad_clip",
})  # fmt: skip

Reader = Callable[[Point], Run]


def make_trials(
    parameters: Sequence[Parameter], read_point: Reader, machine: Machine, *, trust: bool = False, on_one: bool = True
) -> list[Trial]:
    """Return a trial for every point of the grid, with what it will need.

    Args:
        read_point: gives the run with a point's values laid over it.
        trust: import the code that the run names (`own_code`).
        on_one: all trials run on one machine.

    Raises:
        Unseen: it names some, and is not trusted.
        BadInput: a key or a value that the run cannot have, or a run that has no total_timesteps.
    """
    asked = [(point, read_point(point)) for point in points(parameters)]
    check_trust([run for _, run in asked], trust=trust)
    seed = secrets.randbelow(2**31)  # the same for all, or they would differ by more than their params
    for _, run in asked:
        if run.total_timesteps is None:
            raise BadInput(f"{run.name} has no total_timesteps", path=run.source, hint="--timesteps N")
    firsts: dict[str, int] = {}
    shares = [firsts.setdefault(_memory_key(run), number) for number, (_, run) in enumerate(asked)]
    leaders = sorted(set(shares))
    gathered = gather_all([asked[number][1] for number in leaders], machine, trust=True)
    known = {number: _priced(run, evidence, machine) for number, (run, evidence) in zip(leaders, gathered, strict=True)}
    trials = []
    for number, (point, run) in enumerate(asked):
        leader, evidence, footprint, gpu_share = known[shares[number]]
        mapped = footprint.mapped if on_one else 0
        built = backend_of(run).fitter.with_free_savings(run.replace(env=leader.env), evidence)
        trials.append(
            Trial(
                number=number,
                params={key: _value_in(run, key, text) for key, text in point},
                asked=run,
                run=built if built.seed is not None else built.replace(seed=seed),
                device=footprint.device,
                predicted=Predicted.of(footprint),
                requested=footprint.host.high - mapped + WORKER_NBYTES,
                gpu_share=gpu_share,
                shares=shares[number],
                mapped=mapped,
            )
        )
    return trials


def check_trust(runs: Iterable[Run], *, trust: bool) -> None:
    """Refuse to train runs that name code of their own without being trusted.

    Raises:
        Unseen: one does.
    """
    for run in runs:
        if not trust and (code := own_code(run).names):
            raise Unseen(run.name, code, path=run.source)


def _priced(run: Run, evidence: Evidence, machine: Machine) -> tuple[Run, Evidence, Footprint, float]:
    footprint = add_up(backend_of(run).fitter.with_free_savings(run, evidence), evidence)
    share = 0.0
    if footprint.gpu is not None:
        known = machine.gpus and machine.gpus[0].free and not footprint.unknown  # else it gets a card of its own
        share = min(footprint.gpu.high / machine.gpus[0].free, 1.0) if known else 1.0
    return run, evidence, footprint, round(share, 3)


def _memory_key(run: Run) -> str:
    """Return a key that runs share which need the same memory."""
    hyperparams = {name: value for name, value in run.hyperparams.items() if name not in WITHOUT_MEMORY}
    return run.replace(seed=None, name="", description="", hyperparams=hyperparams).key


def _value_in(run: Run, key: str, text: str) -> Any:
    """Return the value that the run has at a key; the text where it is elsewhere by another name."""
    data: Any = run.model_dump()
    path = key.replace("-", "_").split(".")
    for place in (path, ["hyperparams", *path], ["env", *path], ["policy", *path], ["memory", *path]):
        at: Any = data
        for part in place:
            at = at.get(part) if isinstance(at, dict) else None
        if at is not None and not isinstance(at, dict):
            return at
    return text
