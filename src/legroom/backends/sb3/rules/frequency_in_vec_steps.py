"""LR016: intervals of a module of constants that SB3's callbacks count in steps of the vectorised environment."""

from collections.abc import Iterator

from legroom.checking.rule_helpers import N_ENVS, counts_known, per_run
from legroom.model.rule import Found, Rule
from legroom.model.subject import Key, Subject, SubjectRun
from legroom.reading.constants import drafts

WHAT = {("checkpoint", "every"): ("save_freq", "a checkpoint"), ("eval", "every"): ("eval_freq", "an evaluation")}


def look(subject: Subject, one: SubjectRun) -> Iterator[Found]:
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


RULE = Rule(
    code="LR016",
    name="frequency-in-vec-steps",
    severity="info",
    what="A constant for save_freq or eval_freq of SB3's callbacks, with several environments.",
    why="CheckpointCallback and EvalCallback count calls of env.step(), and each makes n_envs environment steps. "
    "SAVE_FREQ = 81,920 with 2 environments and rollouts of 16,384 saves every 10 iterations, not every 5. It is a "
    "warning where the run ends before the first one.",
    example="NUM_ENVS = 2\nSAVE_FREQ = 81_920   # every 163,840 environment steps",
    remedy="save_freq=max(81_920 // n_envs, 1). In legroom's own run files checkpoint.every counts environment steps.",
    look=per_run(look, needs=(N_ENVS,)),
)
