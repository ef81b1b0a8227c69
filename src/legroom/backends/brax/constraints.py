"""What brax and jax refuse: sizes that do not divide, sizes beyond 32 bits, and lengths that leave nothing to do.

jax counts with 32-bit integers, as brax uses it; a size beyond them ends as an OverflowError somewhere inside, or
silently as a negative number. brax's SAC has three conditions of its own on its replay buffer (sac/train.py and
replay_buffers.py of 0.14.2).
"""

import math
from collections.abc import Iterator

from legroom.backends.base import algorithm_of, hyper
from legroom.backends.brax.facts import episode_length_of, is_ppo
from legroom.model.footprint import Finding
from legroom.model.run import Run

INT32 = 2**31 - 1


def divisibility_rule(run: Run) -> Iterator[Finding]:
    """`batch_size * num_minibatches % num_envs == 0` (brax/training/agents/ppo/train.py, no message there)."""
    if not is_ppo(run):
        return
    batch, minibatches, envs = hyper(run, "batch_size"), hyper(run, "num_minibatches"), run.env.n_envs
    if batch * minibatches % envs:
        key, better = least_mend(batch, minibatches, envs)
        product = f"{batch} × {better}" if key == "num_minibatches" else f"{better} × {minibatches}"
        product += f" = {(batch if key == 'num_minibatches' else minibatches) * better}"
        yield Finding(
            "LR002", "brax-divisibility", "error",
            f"brax PPO asserts batch_size × num_minibatches % num_envs == 0; here {batch} × {minibatches} = "
            f"{batch * minibatches} is not a multiple of {envs}",
            hint=f"{key} {better} gives {product}", path=run.source, fix={f"hyperparams.{key}": better},
        )  # fmt: skip


def least_mend(batch: int, minibatches: int, envs: int) -> tuple[str, int]:
    """Return which of the two to change, and to what, so that the data of an update changes least.

    `num_envs` stays as it is: it was chosen for the card.
    """
    more, larger = nearest_minibatches(batch, minibatches, envs), nearest_batch(batch, minibatches, envs)
    if abs(more - minibatches) * batch <= abs(larger - batch) * minibatches:
        return "num_minibatches", more
    return "batch_size", larger


def nearest_minibatches(batch: int, minibatches: int, envs: int) -> int:
    """Return the number of minibatches closest to `minibatches` that brax accepts; the larger of two as close."""
    return nearest_multiple(minibatches, envs // math.gcd(envs, batch))


def nearest_batch(batch: int, minibatches: int, envs: int) -> int:
    """Return the batch size closest to `batch` that brax accepts; the larger of two as close."""
    return nearest_multiple(batch, envs // math.gcd(envs, minibatches))


def nearest_envs(batch: int, minibatches: int, envs: int) -> int:
    """Return the number of environments closest to `envs` that brax accepts; the smaller of two as close."""
    product = batch * minibatches
    divisors = {d for i in range(1, math.isqrt(product) + 1) if product % i == 0 for d in (i, product // i)}
    return min(divisors, key=lambda d: (abs(d - envs), d))


def nearest_multiple(number: int, step: int) -> int:
    """Return the positive multiple of `step` closest to `number`; the larger of two as close."""
    below = number // step * step
    above = below + step
    return above if below == 0 or above - number <= number - below else below


def device_rule(run: Run, devices: int) -> Iterator[Finding]:
    """`num_envs % device_count == 0`, asserted by both of brax's algorithms; a run alone does not say the devices."""
    if run.env.n_envs % devices:
        better = nearest_multiple(run.env.n_envs, devices)
        yield Finding(
            "LR010", "brax-devices", "error",
            f"brax asserts num_envs % device_count == 0; {run.env.n_envs:,} environments are not a multiple of "
            f"{devices} devices", hint=f"num_envs {better}", path=run.source, fix={"env.n_envs": better},
        )  # fmt: skip


def overflow_rule(run: Run) -> Iterator[Finding]:
    """Sizes that jax's 32-bit integers cannot count."""
    for key, what, value, fix in _counted(run):
        if value > INT32:
            yield Finding(
                "LR033", "brax-int32", "error",
                f"{what} is {value:,}, more than the {INT32:,} that jax's 32-bit integers count to",
                hint=f"{key.rpartition('.')[2]} of at most {fix:,}", path=run.source,
            )  # fmt: skip


def _counted(run: Run) -> Iterator[tuple[str, str, int, int]]:
    """Yield (key, what it is, its value, the largest value of the key) for everything that an int32 indexes."""
    yield "env.num_envs", "num_envs", run.env.n_envs, INT32
    length = episode_length_of(run)
    yield "hyperparams.episode_length", "episode_length", length, INT32
    if is_ppo(run):
        batch, minibatches = int(hyper(run, "batch_size")), int(hyper(run, "num_minibatches"))
        unroll = int(hyper(run, "unroll_length"))
        yield (
            "hyperparams.batch_size", "batch_size × num_minibatches × unroll_length", batch * minibatches * unroll,
            max(INT32 // (minibatches * unroll), 1),
        )  # fmt: skip
    else:
        size = hyper(run, "max_replay_size") or run.total_timesteps or 0
        yield "hyperparams.max_replay_size", "the replay buffer", int(size), INT32


def length_rules(run: Run) -> Iterator[Finding]:
    """Episodes too short for what is to happen in them."""
    length, repeat = episode_length_of(run), int(hyper(run, "action_repeat"))
    if repeat > length:
        yield Finding(
            "LR034", "brax-episode-length", "error",
            f"action_repeat {repeat:,} is over episode_length {length:,}: brax evaluates episode_length // "
            "action_repeat = 0 steps",
            hint=f"action_repeat of at most {length}", path=run.source, fix={"hyperparams.action_repeat": length},
        )  # fmt: skip
    unroll = hyper(run, "unroll_length") if is_ppo(run) else None
    if unroll is not None and unroll * repeat > length:
        most = max(length // repeat, 1)
        yield Finding(
            "LR034", "brax-episode-length", "warning",
            f"unroll_length {unroll:,} × action_repeat {repeat} is over episode_length {length:,}: every unroll has a "
            "reset in it",
            hint=f"unroll_length {most}", path=run.source,
        )  # fmt: skip


def replay_rule(run: Run) -> Iterator[Finding]:
    """What brax's SAC wants of its replay buffer."""
    if is_ppo(run):
        return
    total, least = run.total_timesteps, int(hyper(run, "min_replay_size"))
    size = hyper(run, "max_replay_size") or total
    if total is not None and least >= total:
        yield Finding(
            "LR035", "brax-replay", "error",
            f"min_replay_size {least:,} is not reached in {total:,} steps: brax refuses to begin",
            hint=f"min_replay_size below {total:,}", path=run.source,
        )  # fmt: skip
    if size is not None and size < max(run.env.n_envs, least):
        needed = max(run.env.n_envs, least)
        yield Finding(
            "LR035", "brax-replay", "error",
            f"a replay buffer of {size:,} transitions cannot take {needed:,} at once "
            f"({'one step of all environments' if needed == run.env.n_envs else 'min_replay_size'})",
            hint=f"max_replay_size of at least {needed:,}", path=run.source,
            fix={"hyperparams.max_replay_size": needed},
        )  # fmt: skip


def constraints(run: Run) -> Iterator[Finding]:
    """Yield all that brax would refuse about the run."""
    for rule in (divisibility_rule, overflow_rule, length_rules, replay_rule):
        yield from rule(run)


def unread_memory(run: Run) -> dict[str, tuple[str, str]]:
    """Return the keys of `memory` that are of other libraries: what is to be said of each, and the way out."""
    buffers = {
        key: (f"memory.{key} has no effect with {algorithm_of(run).name} on brax, which has no such buffer", "")
        for key in ("rollout", "replay")
    }
    pieces = f"memory.micro_batch has no effect with {algorithm_of(run).name}"
    return (
        buffers
        | {"micro_batch": (pieces, "only PPO, MaskablePPO, A2C, DQN, DoubleDQN on SB3 update in pieces")}
        | {"expandable_segments": ("memory.expandable_segments is PyTorch's and has no effect with backend brax", "")}
    )
