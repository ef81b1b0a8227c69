"""LR023: target networks that are not synchronised when the file says."""

from collections.abc import Iterator

from legroom.backends.base import algorithm_of, hyper
from legroom.checking.rule_helpers import N_ENVS, per_run
from legroom.model.rule import Found, Rule
from legroom.model.subject import Key, Subject, SubjectRun

KEY: Key = ("hyperparams", "target_update_interval")
BY_STEPS, BY_GRADIENTS = ("DQN", "QRDQN"), ("SAC", "TQC")
EXACTLY = ("DoubleDQN",)  # ours: counts environment steps, whatever their stride
MUCH = 0.25  # of the interval; more is worth a warning


def look(subject: Subject, one: SubjectRun) -> Iterator[Found]:
    name = algorithm_of(one.run).name
    if name in BY_STEPS:
        yield from _by_steps(one)
    elif name in EXACTLY:
        yield from _exactly(one)
    elif name in BY_GRADIENTS and one.gives(*KEY):
        yield from _by_gradients(one, name)


def _by_steps(one: SubjectRun) -> Iterator[Found]:
    """`_n_calls % max(target_update_interval // n_envs, 1) == 0`, once per step of all environments (dqn.py)."""
    interval, envs, total = int(hyper(one.run, "target_update_interval")), one.run.env.n_envs, one.run.total_timesteps
    stride = max(interval // envs, 1)
    really = stride * envs
    line = one.line(*KEY) if one.gives(*KEY) else one.line(*N_ENVS)
    if total is not None and really > total:
        yield _never(one, really, total, line)
    elif interval < envs:
        message = (
            f"target_update_interval {interval:,} is below one step of {envs:,} envs: the target is synchronised every "
            f"{envs:,} environment steps, after each"
        )
        yield Found(message, f"a multiple of {envs}", line, "warning")
    elif really != interval:
        message = (
            f"target_update_interval {interval:,} is not a multiple of {envs:,} envs: SB3 synchronises every "
            f"{stride:,} steps "
            f"of all of them, {really:,} environment steps"
        )
        much = interval - really > MUCH * interval
        yield Found(message, f"{really:,} or {really + envs:,} say it exactly", line, "warning" if much else None)
    yield from _between_updates(one, really)


def _exactly(one: SubjectRun) -> Iterator[Found]:
    """The k-th time is the first step of all environments at which k × interval have been made (double_dqn.py)."""
    interval, total = int(hyper(one.run, "target_update_interval")), one.run.total_timesteps
    line = one.line(*KEY) if one.gives(*KEY) else one.line("algo")
    if total is not None and interval > total:
        yield _never(one, interval, total, line)
    yield from _between_updates(one, interval)


def _never(one: SubjectRun, really: int, total: int, line: int | None) -> Found:
    message = f"the target network is never synchronised: every {really:,} steps, and the run ends after {total:,}"
    whose = "the" if algorithm_of(one.run).name in EXACTLY else "SB3's"
    given = "" if one.gives(*KEY) else f" ({whose} default)"
    return Found(message + given, f"a target_update_interval below {total:,}", line, "warning")


def _between_updates(one: SubjectRun, really: int) -> Iterator[Found]:
    freq = hyper(one.run, "train_freq")
    if not one.gives(*KEY) or not one.knows("hyperparams", "train_freq") or not isinstance(freq, int):
        return
    between = freq * one.run.env.n_envs
    steps = hyper(one.run, "gradient_steps")
    if really < between and steps != 1:
        message = (
            f"the target is synchronised every {really:,} step{'' if really == 1 else 's'}, the network changes "
            f"only every {between:,}: all "
            f"gradient steps of a round work against one target, the network before it"
        )
        yield Found(message, "the same as a target_update_interval equal to train_freq × n_envs", one.line(*KEY))


def _by_gradients(one: SubjectRun, name: str) -> Iterator[Found]:
    """`gradient_step % target_update_interval == 0`, counted anew in every call of train() (sac.py, tqc.py)."""
    interval, steps = int(hyper(one.run, "target_update_interval")), hyper(one.run, "gradient_steps")
    if not one.knows("hyperparams", "gradient_steps") or not isinstance(steps, int) or steps == -1:
        return
    if interval > 1 and steps > 0 and interval >= steps:
        each = "every gradient step" if steps == 1 else f"every round of {steps:,} gradient steps"
        message = (
            f"target_update_interval {interval:,} has no effect: {name} restarts counting gradient steps in every "
            f"round, and a round has {steps:,}; the target moves with {each}"
        )
        yield Found(message, "a smaller tau slows the target down", one.line(*KEY), "warning")


RULE = Rule(
    code="LR023",
    name="sync-stride",
    severity="info",
    what="A target_update_interval that the stride of steps or updates does not hit.",
    why="SB3's DQN counts steps of all environments and divides the interval by their number, rounding down; SAC "
    "counts "
    "gradient steps and starts over in every round. An interval beyond the end means that the target never moves.",
    example="algo: DQN\nenv: {n_envs: 16}\nhyperparams: {target_update_interval: 1000}   # every 992 steps",
    remedy="A multiple of n_envs, below the total.",
    look=per_run(look, needs=(N_ENVS, KEY)),
)
