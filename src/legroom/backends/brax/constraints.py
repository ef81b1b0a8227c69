"""What brax and jax refuse besides divisibility: sizes beyond 32 bits, and lengths that leave nothing to do.

jax counts with 32-bit integers, as brax uses it; a size beyond them ends as an OverflowError somewhere inside, or
silently as a negative number. brax's SAC has three conditions of its own on its replay buffer (sac/train.py and
replay_buffers.py of 0.14.2).
"""

from __future__ import annotations

from collections.abc import Iterator

from legroom.backends.base import hyper
from legroom.backends.brax.facts import episode_length_of, is_ppo
from legroom.model.finding import Finding
from legroom.model.run import Run

INT32 = 2**31 - 1


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


BRAX_RULES = (overflow_rule, length_rules, replay_rule)
