"""What is right about a run, and why: the other half of a check.

People who were told wrongly that something is critical want to hear that it is not, with the numbers.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from legroom.backends.base import algorithm_of, hyper
from legroom.checking.counting import counts_known
from legroom.checking.rule_helpers import plural, size
from legroom.checking.shares import of_ram, of_vram, ram_limit, shares
from legroom.errors import BadInput
from legroom.model.facts import episode_limit, replay_rows, rollout_rows
from legroom.model.subject import Subject, SubjectRun

Sentence = tuple[str, str]


def confirmations(subject: Subject, one: SubjectRun, *, algo_known: bool = True) -> Iterator[Sentence]:
    """Yield (what, why it is fine) for one run."""
    looks = LOOKS if algo_known else LOOKS[:1]
    for look in looks:
        try:
            yield from look(subject, one)
        except BadInput:  # something it would need is not known
            continue


def _minibatches(subject: Subject, one: SubjectRun) -> Iterator[Sentence]:
    found, run = counts_known(one), one.run
    if found is None or found.minibatches is None or not one.knows("hyperparams", "batch_size"):
        return
    batch = hyper(run, "batch_size")
    if run.backend == "brax":
        product, envs = batch * hyper(run, "num_minibatches"), run.env.n_envs
        if product % envs == 0:
            yield (
                f"batch_size {batch:,} × num_minibatches {hyper(run, 'num_minibatches'):,}",
                f"{product:,} is {product // envs} × num_envs {envs:,}, as brax asserts; {found.updates:,} gradient "
                f"steps "
                "per iteration",
            )
        return
    if "n_epochs" not in algorithm_of(run).defaults or batch > found.samples or found.samples % batch:
        return
    yield (
        f"batch_size {batch:,}",
        f"at most the {found.samples:,} samples of a rollout ({hyper(run, 'n_steps'):,} steps × "
        f"{plural(run.env.n_envs, 'env')}), and divides them: {found.minibatches:,} "
        f"minibatch{'' if found.minibatches == 1 else 'es'} per epoch, {found.updates:,} updates per iteration",
    )


def _epochs(subject: Subject, one: SubjectRun) -> Iterator[Sentence]:
    if (
        one.run.backend == "sb3"
        and "n_epochs" in algorithm_of(one.run).defaults
        and one.knows("hyperparams", "n_epochs")
    ):
        yield f"n_epochs {hyper(one.run, 'n_epochs')}", "costs time, not memory: every epoch uses the same rollout"


def _host(subject: Subject, one: SubjectRun) -> Iterator[Sentence]:
    limit = ram_limit(subject)
    if limit is None or one.footprint is None or one.footprint.host.high > limit:
        return
    host, run = one.footprint.host, one.run
    detail = ""
    if run.backend == "sb3" and rollout_rows(run) is not None:
        parts = shares(one.footprint, "rollout.")
        copy = f", {size(parts.buffer + parts.flatten)} while SB3 flattens it" if parts.flatten else ""
        detail = f"rollout {size(parts.buffer)} stored{copy}; "
    elif run.backend == "sb3" and replay_rows(run) is not None:
        detail = f"replay {size(shares(one.footprint, 'replay.').buffer)} when full; "
    yield "host memory", f"{detail}peak {size(host.nbytes)}, at most {size(host.high)}, of {of_ram(subject)}"


def _gpu(subject: Subject, one: SubjectRun) -> Iterator[Sentence]:
    vram, gpu = subject.budget.vram, one.footprint.gpu if one.footprint else None
    if vram is None or gpu is None or gpu.high > subject.budget.usable(vram):
        return
    yield "GPU memory", f"peak {size(gpu.nbytes)}, at most {size(gpu.high)}, of {of_vram(subject)}"


def _checkpoints(subject: Subject, one: SubjectRun) -> Iterator[Sentence]:
    found, checkpoint = counts_known(one), one.run.checkpoint
    if found and checkpoint and checkpoint.every and checkpoint.every % found.samples == 0 and subject.kind == "run":
        yield (
            f"checkpoint every {checkpoint.every:,}",
            f"environment steps: exactly {plural(checkpoint.every // found.samples, 'iteration')}",
        )


def _total(subject: Subject, one: SubjectRun) -> Iterator[Sentence]:
    found, total = counts_known(one), one.run.total_timesteps
    if found and total and found.steps == total:
        yield f"total of {total:,}", f"exactly {found.iterations:,} iterations of {found.samples:,}"


def _episodes(subject: Subject, one: SubjectRun) -> Iterator[Sentence]:
    rows, limit = rollout_rows(one.run), episode_limit(one.run)
    if rows and limit and limit >= rows and one.knows("hyperparams", "n_steps"):
        yield (
            f"n_steps {rows:,}",
            f"an episode of up to {limit:,} steps spans several rollouts; the value function stands in for the rest",
        )


def _schedules(subject: Subject, one: SubjectRun) -> Iterator[Sentence]:
    rate = hyper(one.run, "learning_rate")
    if isinstance(rate, str) and rate.startswith("lin"):
        yield f"learning_rate {rate}", "a linear schedule goes by the share of the run that is left, so it completes"
    fraction, total = hyper(one.run, "exploration_fraction"), one.run.total_timesteps
    if (
        isinstance(fraction, int | float)
        and total
        and 0 < fraction <= 1
        and one.knows("hyperparams", "exploration_fraction")
    ):
        final = hyper(one.run, "exploration_final_eps")
        yield (
            f"exploration_fraction {fraction:g}",
            f"epsilon reaches {final} after {int(fraction * total):,} of {total:,} steps",
        )


LOOKS: tuple[Callable[[Subject, SubjectRun], Iterator[Sentence]], ...] = (
    _minibatches, _epochs, _host, _gpu, _checkpoints, _total, _episodes, _schedules,
)  # fmt: skip
