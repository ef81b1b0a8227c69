"""Settings of SB3's runs that it refuses, or that mean something else than they seem to."""

from __future__ import annotations

import re
from collections.abc import Iterator

from legroom.backends.base import algorithm_of, hyper
from legroom.backends.sb3.checking import lean_way
from legroom.backends.sb3.constraints import replay_rules, rollout_rules, space_rules
from legroom.backends.sb3.stored import rollout_rows, stores_leanly
from legroom.checking.locating import value_fix
from legroom.checking.rule_helpers import BATCH_SIZE, N_ENVS, N_STEPS, ROLLOUT, counts_known, run_rule
from legroom.model.facts import episode_limit
from legroom.model.rule import Found, Key, Subject, SubjectRun
from legroom.reading.constants import drafts
from legroom.units import plural


@run_rule("LR003")
def unsupported_actions(subject: Subject, one: SubjectRun) -> Iterator[Found]:
    """An algorithm and an action space that do not go together."""
    for finding in space_rules(one.run):
        if finding.code == "LR003":
            yield Found(finding.message, finding.hint, one.line("algo"))


@run_rule("LR004", needs=(("policy", "name"), ("env", "wrappers")))
def policy_does_not_match(subject: Subject, one: SubjectRun) -> Iterator[Found]:
    """A policy for another kind of observation."""
    for finding in space_rules(one.run):
        if finding.code != "LR004":
            continue
        fix = None
        if finding.fix and subject.kind in ("run", "zoo") and one.gives("policy", "name"):
            fix = value_fix(subject, one, ("policy", "name"), "MultiInputPolicy", "policy -> MultiInputPolicy")
        yield Found(finding.message, finding.hint, one.line("policy", "name") or one.line("algo"), fix=fix)


@run_rule("LR005", needs=(*ROLLOUT, BATCH_SIZE))
def rollout_too_small(subject: Subject, one: SubjectRun) -> Iterator[Found]:
    """A rollout or minibatch of one sample."""
    for finding in rollout_rules(one.run):
        if finding.code == "LR005":
            yield Found(finding.message, finding.hint, one.line(*N_STEPS) or one.line("algo"))
            return
    ppo = algorithm_of(one.run).name in ("PPO", "MaskablePPO", "RecurrentPPO")
    if ppo and hyper(one.run, "normalize_advantage") and hyper(one.run, "batch_size") == 1:
        message = "batch_size 1 cannot be normalised: the advantage of one sample has no spread"
        yield Found(message, "batch_size of at least 2, or normalize_advantage: false", one.line(*BATCH_SIZE))


@run_rule("LR006", needs=(*ROLLOUT, BATCH_SIZE), guessed=True)
def minibatch_exceeds_rollout(subject: Subject, one: SubjectRun) -> Iterator[Found]:
    """A minibatch that is larger than the whole rollout."""
    run = one.run
    for finding in rollout_rules(run):
        if finding.code != "LR006":
            continue
        steps, batch = hyper(run, "n_steps"), hyper(run, "batch_size")
        rollout = steps * run.env.n_envs
        given = "" if one.gives(*BATCH_SIZE) else " (SB3's default)"
        message = (
            f"batch_size {batch:,}{given} is over the rollout of {steps:,} steps × {plural(run.env.n_envs, 'env')} = "
            f"{rollout:,} samples: every epoch is one update with {rollout:,}"
        )
        say = f"batch_size {batch} -> {rollout}, which is what runs now"
        fix = value_fix(subject, one, BATCH_SIZE, str(rollout), say) if one in subject.runs else None
        line = (
            one.line(*BATCH_SIZE) if one.gives(*BATCH_SIZE) else one.line("hyperparams", "n_steps") or one.line("algo")
        )
        yield Found(message, f"batch_size {rollout} does the same and says so; or more steps or envs", line, fix=fix)


@run_rule("LR007", needs=(*ROLLOUT, BATCH_SIZE), guessed=True)
def minibatch_does_not_divide(subject: Subject, one: SubjectRun) -> Iterator[Found]:
    """A last minibatch that is smaller than the others."""
    run = one.run
    for finding in rollout_rules(run):
        if finding.code != "LR007":
            continue
        rollout, batch = hyper(run, "n_steps") * run.env.n_envs, hyper(run, "batch_size")
        given = "" if one.gives(*BATCH_SIZE) else " (SB3's default)"
        message = (
            f"{rollout:,} samples ({hyper(run, 'n_steps'):,} steps × {plural(run.env.n_envs, 'env')}) are no multiple "
            f"of batch_size {batch:,}{given}: each epoch ends with a minibatch of {rollout % batch:,}"
        )
        line = (
            one.line(*BATCH_SIZE) if one.gives(*BATCH_SIZE) else one.line("hyperparams", "n_steps") or one.line("algo")
        )
        yield Found(message, f"batch_size {' or '.join(map(str, _near(rollout, batch)))}", line)


def _near(rollout: int, batch: int) -> list[int]:
    """Return the divisors of the rollout next to `batch`, below and above it."""
    below = next(size for size in range(batch, 0, -1) if rollout % size == 0)
    above = next(size for size in range(batch, rollout + 1) if rollout % size == 0)
    return [below, above] if below > 1 else [above]


KEY = ("hyperparams", "optimize_memory_usage")


@run_rule("LR008", needs=(KEY, ("hyperparams", "replay_buffer_kwargs")))
def optimize_memory_refused(subject: Subject, one: SubjectRun) -> Iterator[Found]:
    """SB3's own way of saving replay memory, where SB3 refuses it."""
    if stores_leanly(one.run):  # lean storage accepts and ignores it
        return
    for finding in replay_rules(one.run):
        hint = f"{finding.hint}; or {lean_way(subject, one, 'replay')}, which keeps timeouts and takes less"
        yield Found(finding.message, hint, one.line(*KEY))


WHAT = {("checkpoint", "every"): ("save_freq", "a checkpoint"), ("eval", "every"): ("eval_freq", "an evaluation")}


@run_rule("LR016", needs=(N_ENVS,))
def frequency_in_vec_steps(subject: Subject, one: SubjectRun) -> Iterator[Found]:
    """Intervals of a module of constants that SB3's callbacks count in steps of the vectorised environment."""
    envs = one.run.env.n_envs
    if subject.kind != "constants" or envs == 1:  # of scripts, the calls themselves are looked at
        return
    for key, (name, happens) in WHAT.items():
        part = getattr(one.run, key[0])
        if part is None or part.every is None or not one.gives(*key):
            continue
        every = int(part.every)
        written = every // envs
        if not _counts_vec_steps(subject, one, key, every):
            continue
        message = (
            f"{name} {written:,} counts steps of all {envs:,} envs together: {happens} every {every:,} environment "
            f"steps"
            f"{_in_iterations(one, every, written)}"
        )
        hint = f"max({written} // {envs}, 1) if {written:,} environment steps are meant"
        total = one.run.total_timesteps
        never = total is not None and every > total >= written
        if never:
            message += f"; the run ends after {total:,}, so there is none"
        yield Found(message, hint, one.line(*key), "warning" if never else None)


def _in_iterations(one: SubjectRun, every: int, written: int) -> str:
    found = counts_known(one)
    if found is None:
        return ""
    really, seems = every / found.samples, written / found.samples
    return f" = every {really:,.4g} iteration{'' if really == 1 else 's'}, not {seems:,.4g}"


def _counts_vec_steps(subject: Subject, one: SubjectRun, key: Key, every: int) -> bool:
    """Return whether the file's number goes to SB3 as it is; people who know divide it by the environments."""
    raw = drafts(subject.text, subject.path)[0].data.get(key[0], {}).get(key[1])
    return isinstance(raw, int) and raw * one.run.env.n_envs == every


_LIMIT = re.compile(r"_max_episode_steps|\.unwrapped\b|\)\.env\b")


@run_rule("LR018", needs=(*ROLLOUT, ("env", "wrappers")))
def episode_shorter_than_rollout(subject: Subject, one: SubjectRun) -> Iterator[Found]:
    """Rollouts of several episodes, where the length of an episode is known."""
    rows, limit = rollout_rows(one.run), episode_limit(one.run)
    if rows is None or limit is None or limit >= rows or _may_lift_limit(subject):
        return
    episodes = f"at least {rows // limit:,}" if rows >= 2 * limit else "more than one"
    message = (
        f"n_steps {rows:,} is longer than an episode, which has at most {limit:,} steps: each rollout of an "
        f"environment "
        f"holds {episodes}"
    )
    hint = "this is not a mistake; a shorter rollout would still hold whole episodes, in less memory"
    yield Found(message, hint, one.line("hyperparams", "n_steps") or one.line("algo"))


def _may_lift_limit(subject: Subject) -> bool:
    """Return whether a script takes an environment out of its wrappers, of which the limit is one, or sets another."""
    return subject.script is not None and _LIMIT.search(subject.text) is not None
