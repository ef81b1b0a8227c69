"""The other direction: uses memory that is free, up to the budget and never past it.

An on-policy run gets more environments (more varied data per update), an off-policy run a larger replay buffer (older
experience stays), a brax run both more environments and larger batches. All of them change what is learned, which is
why nobody does it unasked.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from legroom.fitting.predictor import Predictor
from legroom.fitting.repairs import breaks_rules
from legroom.fitting.search import relimited, unlimited
from legroom.fitting.settings import differences, with_settings
from legroom.model.facts import algorithm_of, hyper
from legroom.model.plan import Plan, Turn
from legroom.model.run import Run
from legroom.model.stored import rollout_samples
from legroom.model.verdict import fits

# A run that is as short as a few rollouts learns nothing, however varied each of them is.
FEWEST_ITERATIONS = 10
LARGEST_FACTOR = 2**16
WORTH_TAKING = 1.02  # of what it had


def grown(plan: Plan, predictor: Predictor) -> Plan:
    """Return the plan with the free memory used; as it is where it does not fit, or nothing can grow."""
    if not plan.fits:
        return plan
    for say, larger, notes in _ways(unlimited(plan.run, predictor)):
        best, factor = _largest(plan, predictor, larger)
        if best is None or factor < WORTH_TAKING:
            continue
        after = predictor.footprint(best)
        changes = differences(plan.run, best)
        used = plan.after.host.high + _gpu(plan) - after.host.high - (after.gpu.high if after.gpu else 0)
        turn = Turn(changes, "changes-learning", say, used, after)
        return Plan(
            plan.asked, best, plan.before, after, plan.budget, True, (*plan.turns, turn), notes=(*plan.notes, notes)
        )
    return Plan(
        plan.asked, plan.run, plan.before, plan.after, plan.budget, True, plan.turns,
        notes=(*plan.notes, "nothing of this run can grow into the free memory"),
    )  # fmt: skip


Larger = Callable[[float], Run | None]


def _ways(run: Run) -> Iterator[tuple[str, Larger, str]]:
    """Yield what can be made larger: a sentence, a function from factor to run, and what bounds it besides memory."""
    family = algorithm_of(run).family
    if run.backend == "brax" and run.algo.upper() == "PPO":
        yield "more environments and as many more samples per step", lambda f: _more_robots(run, f), ""
    elif family == "off-policy":
        yield "older experience stays longer", lambda f: _larger_replay(run, f), _replay_bound(run)
    elif family == "on-policy":
        yield (
            "more environments: more, and more varied, samples per update",
            lambda f: _more_envs(run, f),
            (f"at least {FEWEST_ITERATIONS} rollouts are left in the run's total" if run.total_timesteps else ""),
        )


def _largest(plan: Plan, predictor: Predictor, larger: Larger) -> tuple[Run | None, float]:
    """Return the largest variant that fits and its factor, by doubling and then bisection."""

    def good(factor: float) -> Run | None:
        made = larger(factor)
        if made is None or breaks_rules(made):
            return None
        made = relimited(made, predictor)
        return made if fits(predictor.footprint(made), plan.budget) is True else None

    low, best, high = 1.0, None, 2.0
    while high <= LARGEST_FACTOR and (made := good(high)) is not None:
        low, best, high = high, made, 2 * high
    for _ in range(12 if predictor.mode == "arithmetic" else 8):
        middle = (low + high) / 2
        made = good(middle)
        if made is None:
            high = middle
        else:
            low, best = middle, made
    return best, low


def _more_envs(run: Run, factor: float) -> Run | None:
    """Return the run with about so many times the environments; the minibatch still divides the rollout."""
    envs = int(run.env.n_envs * factor)
    size = hyper(run, "batch_size")
    while size and envs > run.env.n_envs and hyper(run, "n_steps") * envs % size:
        envs -= 1
    more = with_settings(run, env={"n_envs": envs})
    if run.total_timesteps is not None and rollout_samples(more) * FEWEST_ITERATIONS > run.total_timesteps:
        return None
    return more


def _larger_replay(run: Run, factor: float) -> Run | None:
    key = "max_replay_size" if run.backend == "brax" else "buffer_size"
    size = hyper(run, key)
    if not size:
        return None
    most = run.total_timesteps
    larger = int(size * factor)
    return with_settings(run, hyperparams={key: larger}) if most is None or larger <= most else None


def _replay_bound(run: Run) -> str:
    return "a buffer over the run's total would never fill" if run.total_timesteps is not None else ""


def _more_robots(run: Run, factor: float) -> Run | None:
    times = int(factor)
    return with_settings(
        with_settings(run, env={"n_envs": run.env.n_envs * times}),
        hyperparams={"batch_size": hyper(run, "batch_size") * times},
    )


def _gpu(plan: Plan) -> int:
    return plan.after.gpu.high if plan.after.gpu is not None else 0
