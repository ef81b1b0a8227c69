"""LR007, what RLlib adds to it: a train batch that is no whole number of minibatches."""

from collections.abc import Iterable
from dataclasses import replace

from legroom.backends.rllib.script_calls import rllib_settings
from legroom.checking.rule_helpers import per_script
from legroom.checking.rules.scripts import handwritten_minibatches
from legroom.model.rule import Found
from legroom.reading.interpreter.script import Script


def look(script: Script) -> Iterable[Found]:
    for settings in rllib_settings(script):
        if not (settings.gives_batch and settings.gives_minibatch and settings.minibatch):
            continue
        rest = settings.batch % settings.minibatch
        if rest and settings.batch > settings.minibatch:
            yield Found(
                f"{settings.batch:,} samples are not a multiple of minibatch_size {settings.minibatch:,}; RLlib fills "
                f"the last minibatch of the pass with repeated samples",
                "a minibatch_size that divides the train batch", settings.line, severity="info",
            )  # fmt: skip


RULE = replace(handwritten_minibatches.RULE, look=per_script(look))
