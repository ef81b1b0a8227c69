"""LR009: keys that nothing reads in such a run."""

from __future__ import annotations

from collections.abc import Iterator

from legroom.backends.base import algorithm_of
from legroom.checking.locating import line_removal, value_fix
from legroom.checking.rule_helpers import callbacks_are_its_own, per_run
from legroom.model.rule import Found, Rule
from legroom.model.subject import Key, Subject, SubjectRun
from legroom.predicting.constraints import keys_without_effect

REPLAY: Key = ("checkpoint", "replay_buffer")


def look(subject: Subject, one: SubjectRun) -> Iterator[Found]:
    for key, message, hint in keys_without_effect(one.run):
        if not one.gives(*key) or (key == REPLAY and not callbacks_are_its_own(subject)):
            continue  # a base run's, a default, or another model's
        if key == REPLAY and subject.kind in ("constants", "script"):
            message = message.replace("saving the replay buffer", "save_replay_buffer")
            fix = value_fix(subject, one, key, "False", "save_replay_buffer -> False, which is what happens now")
        else:
            fix = line_removal(subject, one.line(*key), f"remove {key[-1]}, which nothing reads")
        refused = key[0] == "hyperparams" and subject.kind in ("script", "zoo")
        if refused:
            message = f"{algorithm_of(one.run).name} takes no {key[-1]}: its constructor raises a TypeError"
        yield Found(message, hint, one.line(*key), "error" if refused else None, fix)


RULE = Rule(
    code="LR009",
    name="no-effect",
    severity="warning",
    what="A key that this algorithm, backend or kind of buffer does not read.",
    why="The setting looks as if it had an effect: SAVE_REPLAY_BUFFER with PPO saves nothing and costs "
    "nothing. "
    "SB3's constructors refuse foreign arguments altogether, which is an error in a script or a zoo file.",
    example="algo: PPO\ncheckpoint: {replay_buffer: true}   # PPO has none",
    remedy="Remove the key, or choose the algorithm that has it.",
    look=per_run(look),
)
