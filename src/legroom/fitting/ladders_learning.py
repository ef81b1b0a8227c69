"""Ladders of the knobs that change what is learned, however harmless.

They go down to where the library would refuse, so that "nothing fits" is said only when nothing does; how far it is
sensible to go is for the person who reads the plan.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

from legroom.backends.base import algorithm_of, hyper
from legroom.backends.sb3.stored import is_sb3, rollout_samples
from legroom.fitting.settings import halves, with_settings
from legroom.model.evidence import Evidence
from legroom.model.run import Run
from legroom.model.spaces import BoxSpace, DiscreteSpace
from legroom_workloads.registry import EXTRACTOR_SIZES

NARROWEST_LAYER = 8
DEFAULT_WIDTHS = {"on-policy": (64, 64), "off-policy": (256, 256), "evolution": (64, 64)}
DQN_WIDTHS = (64, 64)


def fewer_envs_longer_rollouts(run: Run, evidence: Evidence) -> Iterator[Run]:
    """Fewer environments that each play longer: the same number of samples per update."""
    envs = run.env.n_envs
    if run.backend == "brax":
        if run.algo.upper() == "PPO":  # whose rollout is batch_size × num_minibatches unrolls, of however many envs
            yield from (with_settings(run, env={"n_envs": fewer}) for fewer in divisors_below(envs))
        return
    if algorithm_of(run).family == "on-policy" and is_sb3(run):
        steps = hyper(run, "n_steps")
        for fewer in divisors_below(envs):
            changed = with_settings(run, hyperparams={"n_steps": steps * envs // fewer})
            yield with_settings(changed, env=_envs(run, fewer))


def fewer_envs(run: Run, evidence: Evidence) -> Iterator[Run]:
    """Fewer environments, and so less data per update."""
    if run.backend == "brax" and run.algo.upper() == "PPO":
        return  # `fewer_envs_longer_rollouts` does the same and keeps the data per update
    for fewer in halves(run.env.n_envs):
        changed = with_settings(run, env=_envs(run, fewer))
        yield changed if run.backend == "brax" else _with_dividing_batch(changed)


def smaller_batch(run: Run, evidence: Evidence) -> Iterator[Run]:
    """Noisier gradients: each step of the optimizer sees fewer samples."""
    size = hyper(run, "batch_size")
    if not size or algorithm_of(run).name == "TRPO":
        return
    if run.backend == "brax" and run.algo.upper() == "PPO":
        return  # `smaller_batch_more_minibatches` keeps the data per update
    if algorithm_of(run).family == "on-policy":
        sizes = [n for n in divisors_below(rollout_samples(run)) if n < size]
        least = 2 if hyper(run, "normalize_advantage") else 1
        ladder = [n for n in _thinned(sizes) if n >= least]
    else:
        ladder = list(halves(size))
    yield from (with_settings(run, hyperparams={"batch_size": n}) for n in ladder)


def shorter_rollout(run: Run, evidence: Evidence) -> Iterator[Run]:
    """Less data per update, and returns estimated over shorter stretches."""
    if run.backend == "brax":
        if run.algo.upper() == "PPO":
            lengths = halves(hyper(run, "unroll_length"))
            yield from (with_settings(run, hyperparams={"unroll_length": n}) for n in lengths)
            yield from _fewer_unrolls(run)
        return
    if algorithm_of(run).family != "on-policy" or not is_sb3(run):
        return
    for steps in halves(hyper(run, "n_steps")):
        if steps * run.env.n_envs >= 2:
            yield _with_dividing_batch(with_settings(run, hyperparams={"n_steps": steps}))


def smaller_replay(run: Run, evidence: Evidence) -> Iterator[Run]:
    """Older experience is forgotten earlier."""
    if algorithm_of(run).family != "off-policy":
        return
    key = "max_replay_size" if run.backend == "brax" else "buffer_size"
    size = hyper(run, key) or run.total_timesteps or 0
    least = max(hyper(run, "batch_size") or 1, run.env.n_envs, hyper(run, "min_replay_size") or 0, 1)
    while size > least:
        size = max(int(size * 0.75), least)
        yield with_settings(run, hyperparams={key: size})


def bfloat16(run: Run, evidence: Evidence) -> Iterator[Run]:
    """Forward and backward passes in 16 bits, weights in 32; on a CPU without bf16 instructions it is far slower."""
    if is_sb3(run) and run.memory.bf16 is None and evidence.device == "cuda":
        yield with_settings(run, memory={"bf16": True})


def coarser_grid(run: Run, evidence: Evidence) -> Iterator[Run]:
    """The workload's data at half the resolution, a quarter, ..."""
    grid = grid_of(run)
    while grid is not None and max(grid) > 2:
        grid = tuple(-(-n // 2) for n in grid)
        yield _with_grid(run, grid)


def smaller_extractor(run: Run, evidence: Evidence) -> Iterator[Run]:
    """A features extractor with fewer channels or branches."""
    known = EXTRACTOR_SIZES.get(run.policy.features_extractor or "", ())
    given = run.policy.features_extractor_kwargs
    at = next((i for i, size in enumerate(known) if {**given, **size} == dict(given)), -1)
    for size in known[at + 1 :]:
        yield with_settings(run, policy={"features_extractor_kwargs": {**given, **size}})


def smaller_network(run: Run, evidence: Evidence) -> Iterator[Run]:
    """Hidden layers of half the width, a quarter, ..."""
    keys = _width_keys(run)
    if not keys:
        return
    widths = dict(keys)
    while any(_widest(value) > NARROWEST_LAYER for value in widths.values()):
        widths = {key: _narrower(value) for key, value in widths.items()}
        yield with_settings(run, policy={"kwargs": {**run.policy.kwargs, **widths}})


def grid_of(run: Run) -> tuple[int, ...] | None:
    """Return the grid of a run whose observation is channels × grid; None where it has none that could be coarser."""
    if run.env.grid is None or run.env.spaces is None:
        return None
    space = run.env.spaces.observation
    if not isinstance(space, BoxSpace) or len(space.shape) < 3:
        return None
    grid = tuple(space.shape[1:])
    return grid if run.env.grid in ("data", grid) else None


def _with_grid(run: Run, grid: tuple[int, ...]) -> Run:
    assert run.env.spaces is not None
    observation, action = run.env.spaces.observation, run.env.spaces.action
    assert isinstance(observation, BoxSpace)
    if isinstance(action, DiscreteSpace) and action.n == math.prod(observation.shape[1:3]):  # a column of the grid
        action = action.model_copy(update={"n": math.prod(grid[:2])})
    smaller = observation.model_copy(update={"shape": (observation.shape[0], *grid)})
    spaces = run.env.spaces.model_copy(update={"observation": smaller, "action": action})
    return with_settings(run, env={"grid": grid, "spaces": spaces})


def _envs(run: Run, envs: int) -> dict[str, int]:
    return {"n_envs": envs, "envs_per_worker": min(run.env.envs_per_worker, envs)}


def _with_dividing_batch(run: Run) -> Run:
    """Return the run with the largest minibatch up to its own that divides the rollout it has now."""
    size = hyper(run, "batch_size")
    if algorithm_of(run).family != "on-policy" or not size or rollout_samples(run) % size == 0:
        return run
    whole = rollout_samples(run)
    return with_settings(run, hyperparams={"batch_size": largest_divisor(whole, size)})


def largest_divisor(whole: int, most: int) -> int:
    """Return the largest divisor of `whole` that is at most `most`."""
    return max(n for n in (whole, *divisors_below(whole)) if n <= max(most, 1))


def _fewer_unrolls(run: Run) -> Iterator[Run]:
    """Yield brax runs with fewer minibatches per update, as far as the environments divide them."""
    shortest = with_settings(run, hyperparams={"unroll_length": 1})
    batch, envs = hyper(run, "batch_size"), run.env.n_envs
    step = envs // math.gcd(envs, batch)
    for minibatches in halves(hyper(run, "num_minibatches")):
        if minibatches % step == 0:
            yield with_settings(shortest, hyperparams={"num_minibatches": minibatches})


def divisors_below(whole: int) -> list[int]:
    """Return the divisors of `whole` below it, largest first."""
    small = [n for n in range(1, math.isqrt(whole) + 1) if whole % n == 0]
    return sorted({n for d in small for n in (d, whole // d)} - {whole}, reverse=True)


def _thinned(sizes: list[int]) -> list[int]:
    """Return the sizes without those that are hardly smaller than the one before."""
    kept: list[int] = []
    for size in sizes:
        if not kept or size <= 0.8 * kept[-1]:
            kept.append(size)
    return kept + ([sizes[-1]] if sizes and kept[-1] != sizes[-1] else [])


def _width_keys(run: Run) -> dict[str, Any]:
    """Return the hidden layers that the policy is given, or has by default."""
    kwargs = run.policy.kwargs
    if run.backend == "brax":
        names = ("policy_hidden_layer_sizes", "value_hidden_layer_sizes", "hidden_layer_sizes")
        return {name: list(kwargs[name]) for name in names if name in kwargs}
    if not is_sb3(run) or ":" in run.policy.name or run.policy.name.startswith("Linear"):
        return {}
    given = kwargs.get("net_arch")
    if given is None:
        algorithm = algorithm_of(run)
        if run.policy.name.startswith("Cnn"):
            return {}  # SB3 puts no hidden layers behind a NatureCNN
        given = DQN_WIDTHS if "DQN" in algorithm.name else DEFAULT_WIDTHS[algorithm.family]
    return {"net_arch": given} if given else {}


def _widest(value: Any) -> int:
    parts = value.values() if isinstance(value, dict) else [value]
    return max((n if isinstance(n, int) else _widest(n) for part in parts for n in part), default=0)


def _narrower(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _narrower(part) for key, part in value.items()}
    if isinstance(value, list | tuple):
        return [_narrower(part) for part in value]
    return max(value // 2, min(value, NARROWEST_LAYER))
