"""LR019: epochs, which cost time and no memory."""

from collections.abc import Iterator

from legroom.backends.base import algorithm_of, hyper
from legroom.checking.rule_helpers import counts_known, per_run, too_big_for_ram
from legroom.model.rule import Found, Rule
from legroom.model.subject import Key, Subject, SubjectRun

KEY: Key = ("hyperparams", "n_epochs")
USUAL = 10  # SB3's default


def look(subject: Subject, one: SubjectRun) -> Iterator[Found]:
    found = counts_known(one)
    if found is None or found.updates is None or "n_epochs" not in algorithm_of(one.run).defaults:
        return
    epochs = int(hyper(one.run, "n_epochs"))
    if not one.gives(*KEY) or not (epochs > USUAL or too_big_for_ram(subject, one)):
        return
    message = (
        f"n_epochs {epochs} costs time, not memory: {found.minibatches:,} "
        f"minibatch{'' if found.minibatches == 1 else 'es'} × {epochs} = {found.updates:,} updates per iteration, "
        f"each with the same memory"
    )
    yield Found(message, "fewer epochs make it faster, not smaller", one.line(*KEY))


RULE = Rule(
    code="LR019",
    name="n-epochs-costs-time",
    severity="info",
    what="Many epochs, or epochs in a run that is too big.",
    why="Each epoch goes over the same rollout with the same minibatches; nothing is kept from one to the next. "
    "Lowering "
    "n_epochs to save memory changes learning and saves none.",
    example="n_epochs: 20",
    remedy="Leave it to the learning.",
    look=per_run(look, needs=(KEY,)),
)
