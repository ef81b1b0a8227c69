"""The other direction: uses memory that is free, up to the budget and never past it.

An on-policy run gets more environments (more varied data per update), an off-policy run a larger replay buffer (older
experience stays), a brax run both more environments and larger batches. All of them change what is learned, which is
why nobody does it unasked.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from legroom.backends.base import algorithm_of, hyper
from legroom.backends.brax.facts import env_steps_per_training_step
from legroom.backends.brax.growth import steps_cap
from legroom.backends.sb3.stored import rollout_samples
from legroom.fitting.predictor import Predictor
from legroom.fitting.repairs import breaks_rules
from legroom.fitting.search import needed_in_all, relimited, unlimited
from legroom.fitting.settings import differences, with_settings
from legroom.model.plan import Plan, Turn
from legroom.model.run import Run
from legroom.model.verdict import fits

# A run that is as short as a few rollouts learns nothing, however varied each of them is.
FEWEST_ITERATIONS = 10
LARGEST_FACTOR = 2**16
ENOUGH = 0.9  # of the budget: what is left is not worth another change


def grown(plan: Plan, predictor: Predictor) -> Plan:
    """Return the plan with the free memory used; as it is where it does not fit, or nothing can grow."""
    if not plan.fits:
        return plan
    first = plan
    for number in range(len(_ways(plan.run))):
        if _used(plan) >= ENOUGH:
            break
        say, larger, bound = _ways(unlimited(plan.run, predictor))[number]
        best = _largest(plan, predictor, larger)
        if best is None or best == plan.run:
            continue
        after = predictor.footprint(best)
        turn = Turn(
            differences(plan.run, best),
            "changes-learning",
            say,
            needed_in_all(plan.after) - needed_in_all(after),
            after,
        )
        notes = (*plan.notes, bound) if bound else plan.notes
        plan = replace(plan, run=best, after=after, turns=(*plan.turns, turn), notes=notes)
    if plan is first:
        return replace(plan, notes=(*plan.notes, "nothing of this run can grow into the free memory"))
    return plan


Larger = Callable[[float], Run | None]


def _ways(run: Run) -> list[tuple[str, Larger, str]]:
    """Return what can be made larger: a sentence, a function from factor to run, and what bounds it besides memory."""
    family = algorithm_of(run).family
    if run.backend == "brax" and run.algo.upper() == "PPO":
        cap = steps_cap(run)
        bound = f"one update learns from at most {cap:,} env steps"
        return [("more environments and as many more samples per step", lambda f: _more_robots(run, f, cap), bound)]
    if family == "off-policy":
        return [("older experience stays longer", lambda f: _larger_replay(run, f), _replay_bound(run))]
    if family == "on-policy":
        bound = f"at least {FEWEST_ITERATIONS} rollouts are left in the run's total" if run.total_timesteps else ""
        return [
            ("more environments: more, and more varied, samples per update", lambda f: _more_envs(run, f), bound),
            ("longer rollouts: more samples per update", lambda f: _longer_rollout(run, f), ""),
        ]
    return []


def _largest(plan: Plan, predictor: Predictor, larger: Larger) -> Run | None:
    """Return the largest variant that fits, by doubling and then bisection."""

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
    return best


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


def _longer_rollout(run: Run, factor: float) -> Run | None:
    """Return the run with about so many times the steps per rollout; the minibatch still divides it."""
    steps, size = int(hyper(run, "n_steps") * factor), hyper(run, "batch_size")
    while size and steps > hyper(run, "n_steps") and steps * run.env.n_envs % size:
        steps -= 1
    longer = with_settings(run, hyperparams={"n_steps": steps})
    if run.total_timesteps is not None and rollout_samples(longer) * FEWEST_ITERATIONS > run.total_timesteps:
        return None
    return longer


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


def _more_robots(run: Run, factor: float, cap: int) -> Run | None:
    times = int(factor)
    more = with_settings(
        with_settings(run, env={"n_envs": run.env.n_envs * times}),
        hyperparams={"batch_size": hyper(run, "batch_size") * times},
    )
    return more if env_steps_per_training_step(more) <= cap else None


def _used(plan: Plan) -> float:
    """Return the share of the budget in use, of the place that is fullest."""
    pairs = [(plan.after.host.high, plan.budget.ram), (plan.after.gpu.high if plan.after.gpu else 0, plan.budget.vram)]
    return max(high / plan.budget.usable(limit) for high, limit in pairs if limit)
