"""SB3's knobs: every setting that memory depends on and that fitting may turn, with its price and its ladder.

Within a price the order decides between knobs that buy the same. A new knob is one function that gives its settings,
one line in `SB3_KNOBS`, one test. What people are advised to do and is not here does nothing for memory: fewer epochs
(time only), fewer simulations per step, a shorter run, no replay buffer saved with PPO (which has none).

A ladder is the settings that a knob has for a run as it is, from the least turned to the most. It is empty where the
knob does nothing for the run. Those that change what is learned go down to where the
library would refuse, so that "nothing fits" is said only when nothing does; how far it is sensible to go is for the
person who reads the plan.
"""

import math
from collections.abc import Iterator
from typing import Any

from legroom.backends.base import algorithm_of, hyper
from legroom.backends.sb3.bill.lean import storage_price, stored_nbytes
from legroom.backends.sb3.bill.net_arithmetic import may_checkpoint
from legroom.backends.sb3.published_layers import find_extractor
from legroom.backends.sb3.stored import (
    MICRO_BATCHED,
    batch_samples,
    may_store_leanly,
    rollout_samples,
    storage_said,
    stores_leanly,
)
from legroom.fitting.changes import (
    divisors_below,
    halves,
    larger_replay,
    narrower_layers,
    one_setting,
    smaller_rings,
    with_settings,
)
from legroom.model.evidence import Evidence
from legroom.model.plan import Attachment, Growth, Knob, Price
from legroom.model.run import Run
from legroom.model.spaces import BoxSpace, DiscreteSpace
from legroom.units import MIB

LEAST_SPILL_LIMIT = 16 * MIB  # below it hardly anything but the newest records would be in memory
SPILL_STEP = 0.8
# What a worker adds to a step of all environments, beside stepping its own: 30 to 45 µs in the training process
# (2026-11-18, `python -m bench.workers`).
MESSAGE_S = 40e-6
WORTH_SHARING = 1.5  # times as fast, with several environments in a process; else each has its own, as it was asked for
DEFAULT_WIDTHS = {"on-policy": (64, 64), "off-policy": (256, 256), "evolution": (64, 64)}
DQN_WIDTHS = (64, 64)


# Free: bit-equal results, and no slower


def lean_storage(run: Run, evidence: Evidence) -> Iterator[Run]:
    """Observations stored losslessly without what repeats; the rollout is no longer copied to be flattened."""
    if may_store_leanly(run) and storage_said(run) is None and not stores_leanly(run):
        kind = "rollout" if algorithm_of(run).family == "on-policy" else "replay"
        yield with_settings(run, memory={kind: "lean"})


def light_workers(run: Run, evidence: Evidence) -> Iterator[Run]:
    """Torch-free worker processes, or none where a step costs less than a message to a worker."""
    if run.env.workers == "subproc":
        yield with_settings(run, env=_suited_workers(run, evidence))


def _suited_workers(run: Run, evidence: Evidence) -> dict[str, Any]:
    """Return where environments are stepped soonest, by what a step was measured to cost; a worker each if it was not.

    Workers of one processor are waited for one after the other, and each of them costs the training process a message.
    """
    step_s, n = evidence.env.step_s if evidence.env else None, run.env.n_envs
    if step_s is None:
        return {"workers": "light"}
    processors = max(evidence.machine.cores, 1)
    each = [1 << power for power in range(n.bit_length()) if 1 << power <= n]
    took = {k: -(-(w := -(-n // k)) // processors) * k * step_s + w * MESSAGE_S for k in each}
    best = min(each, key=lambda k: took[k])
    if n * step_s <= took[best]:
        return {"workers": "dummy"}
    return {"workers": "light"} | ({"envs_per_worker": best} if took[1] > WORTH_SHARING * took[best] else {})


light_evaluation_workers = one_setting(
    lambda run, evidence: run.eval is not None and run.eval.workers == "subproc", eval={"workers": "light"}
)
expandable_segments = one_setting(
    lambda run, evidence: evidence.device == "cuda" and run.memory.expandable_segments is None,
    memory={"expandable_segments": True},
)
# What happens anyway (`legroom.share`), unless the run says no.
shared_data = one_setting(
    lambda run, evidence: run.env.workers != "dummy" and run.memory.shared_data is False, memory={"shared_data": True}
)


# Slower: the same mathematics, to the bit or up to rounding

activation_checkpointing = one_setting(
    lambda run, evidence: run.memory.activation_checkpointing is None and may_checkpoint(run) is not False,
    memory={"activation_checkpointing": True},
)


def micro_batches(run: Run, evidence: Evidence) -> Iterator[Run]:
    """A minibatch goes through the networks in pieces, whose gradients add up to its own."""
    given = run.memory.micro_batch
    if algorithm_of(run).name not in MICRO_BATCHED or not isinstance(given, int | None):
        return  # (the latter is a schedule of the user's own)
    for size in halves(min(given or math.inf, batch_samples(run))):
        yield with_settings(run, memory={"micro_batch": size})


def envs_per_worker(run: Run, evidence: Evidence) -> Iterator[Run]:
    """Several environments in one process, stepped one after the other."""
    each = run.env.envs_per_worker
    while run.env.workers == "light" and each < run.env.n_envs:
        each = min(2 * each, run.env.n_envs)
        yield with_settings(run, env={"envs_per_worker": each})


def spilling(run: Run, evidence: Evidence) -> Iterator[Run]:
    """The oldest stored observations are kept in files."""
    if not stores_leanly(run):
        return
    counted = stored_nbytes(run, evidence)
    limit = counted * SPILL_STEP
    while limit > LEAST_SPILL_LIMIT:
        yield with_settings(run, memory={"max_bytes": int(limit)})
        limit *= SPILL_STEP
    if counted > LEAST_SPILL_LIMIT:
        yield with_settings(run, memory={"max_bytes": LEAST_SPILL_LIMIT})


# These change what is learned, however harmless

# Weights stay in 32 bits; on a CPU without bf16 instructions it is far slower.
bfloat16 = one_setting(
    lambda run, evidence: run.memory.bf16 is None and evidence.device == "cuda", memory={"bf16": True}
)


def fewer_envs_longer_rollouts(run: Run, evidence: Evidence) -> Iterator[Run]:
    """Fewer environments that each play longer: the same number of samples per update."""
    if algorithm_of(run).family == "on-policy":
        envs, steps = run.env.n_envs, hyper(run, "n_steps")
        for fewer in divisors_below(envs):
            changed = with_settings(run, hyperparams={"n_steps": steps * envs // fewer})
            yield with_settings(changed, env=_envs(run, fewer))


def fewer_envs(run: Run, evidence: Evidence) -> Iterator[Run]:
    """Fewer environments, and so less data per update."""
    for fewer in halves(run.env.n_envs):
        yield _with_dividing_batch(with_settings(run, env=_envs(run, fewer)))


def smaller_batch(run: Run, evidence: Evidence) -> Iterator[Run]:
    """Noisier gradients: each step of the optimizer sees fewer samples."""
    size = hyper(run, "batch_size")
    if not size or algorithm_of(run).name == "TRPO":
        return
    if algorithm_of(run).family == "on-policy":
        sizes = [n for n in divisors_below(rollout_samples(run)) if n < size]
        least = 2 if hyper(run, "normalize_advantage") else 1
        ladder = [n for n in _thinned(sizes) if n >= least]
    else:
        ladder = list(halves(size))
    yield from (with_settings(run, hyperparams={"batch_size": n}) for n in ladder)


def shorter_rollout(run: Run, evidence: Evidence) -> Iterator[Run]:
    """Less data per update, and returns estimated over shorter stretches."""
    if algorithm_of(run).family != "on-policy":
        return
    for steps in halves(hyper(run, "n_steps")):
        if steps * run.env.n_envs >= 2:
            yield _with_dividing_batch(with_settings(run, hyperparams={"n_steps": steps}))


def smaller_replay(run: Run, evidence: Evidence) -> Iterator[Run]:
    """Older experience is forgotten earlier."""
    if algorithm_of(run).family == "off-policy":
        size = hyper(run, "buffer_size") or run.total_timesteps or 0
        yield from smaller_rings(run, "buffer_size", size, max(hyper(run, "batch_size") or 1, run.env.n_envs))


def coarser_grid(run: Run, evidence: Evidence) -> Iterator[Run]:
    """The workload's data at half the resolution, a quarter, ..."""
    grid = grid_of(run)
    while grid is not None and max(grid) > 2:
        grid = tuple(-(-n // 2) for n in grid)
        yield _with_grid(run, grid)


def smaller_extractor(run: Run, evidence: Evidence) -> Iterator[Run]:
    """A features extractor with fewer channels or branches."""
    published = find_extractor(run.policy.features_extractor or "")
    known = () if published is None else published.sizes
    given = run.policy.features_extractor_kwargs
    at = next((i for i, size in enumerate(known) if {**given, **size} == dict(given)), -1)
    for size in known[at + 1 :]:
        yield with_settings(run, policy={"features_extractor_kwargs": {**given, **size}})


def smaller_network(run: Run, evidence: Evidence) -> Iterator[Run]:
    """Hidden layers of half the width, a quarter, ..."""
    given = _hidden_layers(run)
    if given:
        yield from narrower_layers(run, {"net_arch": given})


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
    largest = max(n for n in (whole, *divisors_below(whole)) if n <= max(size, 1))
    return with_settings(run, hyperparams={"batch_size": largest})


def with_nearest_batch(run: Run) -> Run:
    """Return the run with the minibatch nearest to its own that divides the rollout."""
    whole, size = rollout_samples(run), run.hyperparams.get("batch_size", 64)
    sizes = [n for n in (whole, *divisors_below(whole)) if n >= min(whole, 2)]
    return with_settings(run, hyperparams={"batch_size": min(sizes, key=lambda n: (abs(n - size), n))})


def _thinned(sizes: list[int]) -> list[int]:
    """Return the sizes without those that are hardly smaller than the one before."""
    kept: list[int] = []
    for size in sizes:
        if not kept or size <= 0.8 * kept[-1]:
            kept.append(size)
    return kept + ([sizes[-1]] if sizes and kept[-1] != sizes[-1] else [])


def _hidden_layers(run: Run) -> Any:
    """Return the hidden layers that the policy is given, or has by default; none where they cannot be told."""
    if ":" in run.policy.name or run.policy.name.startswith("Linear"):
        return None
    given = run.policy.kwargs.get("net_arch")
    if given is not None or run.policy.name.startswith("Cnn"):
        return given  # SB3 puts no hidden layers behind a NatureCNN
    algorithm = algorithm_of(run)
    return DQN_WIDTHS if "DQN" in algorithm.name else DEFAULT_WIDTHS[algorithm.family]


# A run that is as short as a few rollouts learns nothing, however varied each of them is.
FEWEST_ITERATIONS = 10


def ways_to_grow(run: Run) -> tuple[Growth, ...]:
    """Return what can be made larger; an evolution strategy has nothing."""
    family, total = algorithm_of(run).family, run.total_timesteps
    if family == "off-policy":
        return (larger_replay(run, "buffer_size"),)
    if family == "on-policy":
        bound = f"at least {FEWEST_ITERATIONS} rollouts are left in the run's total" if total else ""
        more = "more environments: more, and more varied, samples per update"
        return (
            Growth(more, lambda factor: _more_envs(run, factor), bound),
            Growth("longer rollouts: more samples per update", lambda factor: _longer_rollout(run, factor)),
        )
    return ()


def _more_envs(run: Run, factor: float) -> Run | None:
    """Return the run with about so many times the environments; the minibatch still divides the rollout."""
    envs = int(run.env.n_envs * factor)
    size = hyper(run, "batch_size")
    while size and envs > run.env.n_envs and hyper(run, "n_steps") * envs % size:
        envs -= 1
    return _long_enough(with_settings(run, env={"n_envs": envs}))


def _longer_rollout(run: Run, factor: float) -> Run | None:
    """Return the run with about so many times the steps per rollout; the minibatch still divides it."""
    steps, size = int(hyper(run, "n_steps") * factor), hyper(run, "batch_size")
    while size and steps > hyper(run, "n_steps") and steps * run.env.n_envs % size:
        steps -= 1
    return _long_enough(with_settings(run, hyperparams={"n_steps": steps}))


def _long_enough(run: Run) -> Run | None:
    total = run.total_timesteps
    return run if total is None or rollout_samples(run) * FEWEST_ITERATIONS <= total else None


# fmt: off
LEAN_STORAGE = Knob(
    "memory.rollout", "free", "bits",
    "observations are stored losslessly, repeats once; the rollout is not copied to be flattened",
    lean_storage, storage_price, also=("memory.replay",))
SB3_KNOBS: tuple[Knob, ...] = (
    LEAN_STORAGE,
    Knob("env.workers", "free", "bits",
         "workers without torch: 4.8 to 23 MB each, not 165 to 284 MB; cheap environments run in-process",
         light_workers),
    Knob("eval.workers", "free", "bits",
         "the same for evaluation environments", light_evaluation_workers),
    Knob("memory.expandable_segments", "free", "bits",
         "the CUDA allocator's segments grow, instead of leaving gaps between them", expandable_segments,
         counted=False),
    Knob("memory.shared_data", "free", "bits",
         "read-only data of the environments once for all workers", shared_data),

    Knob("memory.micro_batch", "slower", "rounding",
         "a minibatch goes through the networks in pieces whose gradients add up to its own", micro_batches),
    Knob("memory.activation_checkpointing", "slower", "rounding",
         "activations are computed again for the backward pass: one more forward pass",
         activation_checkpointing),
    Knob("env.envs_per_worker", "slower", "bits",
         "several environments share a process and are stepped in turn", envs_per_worker),
    Knob("memory.max_bytes", "slower", "bits",
         "the oldest stored observations wait on disk until they are sampled", spilling),

    Knob("env.n_envs", "changes-learning", "",
         "fewer environments, each with longer rollouts: as many samples per update, less varied",
         fewer_envs_longer_rollouts),
    Knob("hyperparams.batch_size", "changes-learning", "",
         "gradients of fewer samples are noisier, and there are more steps per update", smaller_batch),
    Knob("memory.bf16", "changes-learning", "",
         "forward and backward passes in 16 bits, weights in 32", bfloat16),
    Knob("hyperparams.buffer_size", "changes-learning", "",
         "older experience is forgotten earlier", smaller_replay),
    Knob("hyperparams.n_steps", "changes-learning", "",
         "less data per update, and returns estimated over shorter stretches", shorter_rollout),
    Knob("env.n_envs", "changes-learning", "",
         "fewer environments, and so less data per update", fewer_envs),
    Knob("policy.kwargs.net_arch", "changes-learning", "",
         "narrower hidden layers can represent less", smaller_network, starts_over=True),
    Knob("policy.features_extractor_kwargs", "changes-learning", "",
         "a smaller features extractor sees less", smaller_extractor, starts_over=True),
    Knob("env.grid", "changes-learning", "",
         "the workload's data at a coarser resolution: another, easier problem", coarser_grid,
         starts_over=True),
)
# fmt: on


MENDS = {"minibatch-does-not-divide": with_nearest_batch}


def with_free_savings(run: Run, evidence: Evidence) -> Run:
    """Return the run with light workers and, where a probe measured it no slower, lean storage."""
    lighter = next(light_workers(run, evidence), run)
    is_free = LEAN_STORAGE.price_for(run, evidence) == "free"
    return next(lean_storage(lighter, evidence), lighter) if is_free else lighter


_ATTACHING = "legroom.backends.sb3.attaching"
_PRICES: dict[str, Price] = {knob.key: knob.unprobed_price for knob in SB3_KNOBS}
_UPDATES = {"stable_baselines3.common.base_class": f"{_ATTACHING}:on_base_class"}
ATTACHMENTS = (
    Attachment(
        "lean", _PRICES["memory.rollout"], "rollouts and replay stored losslessly in less memory",
        hooks={
            "stable_baselines3.common.buffers": f"{_ATTACHING}:on_buffers",
            "sb3_contrib.common.maskable.buffers": f"{_ATTACHING}:on_maskable_buffers",
            "stable_baselines3.common.save_util": f"{_ATTACHING}:on_save_util",
            "cleanrl_utils.buffers": f"{_ATTACHING}:on_own_buffers",
        },
    ),
    Attachment(
        "workers", _PRICES["env.workers"], "worker processes without torch in place of SubprocVecEnv's",
        hooks={"stable_baselines3.common.vec_env.subproc_vec_env": f"{_ATTACHING}:on_subproc_vec_env"},
    ),
    Attachment(
        "redo", "free", "an update that runs out of memory is done again in exact pieces", hooks=_UPDATES,
        saves="device",
    ),
    Attachment(
        "allocator", _PRICES["memory.expandable_segments"], "the CUDA allocator's segments grow, without gaps between",
        variables={"PYTORCH_CUDA_ALLOC_CONF": "expandable_segments:True"}, others=("PYTORCH_ALLOC_CONF",),
        needs_gpu=True, saves="device",
    ),
    Attachment(
        "micro_batch", _PRICES["memory.micro_batch"], "a minibatch goes through the network in pieces of N samples",
        hooks=_UPDATES, takes="samples", saves="device",
    ),
)  # fmt: skip
