"""Minibatches of RLlib's scripts."""

from __future__ import annotations

from collections.abc import Iterable

from legroom.backends.rllib.script_calls import rllib_settings
from legroom.checking.rule_helpers import script_rule
from legroom.model.rule import Found
from legroom.reading.interpreter.script import Script


@script_rule("LR006")
def minibatch_exceeds_batch(script: Script) -> Iterable[Found]:
    """A minibatch over the train batch, which RLlib refuses."""
    for settings in rllib_settings(script):
        if settings.minibatch > settings.batch:
            default = "" if settings.gives_minibatch else " (RLlib's default)"
            whole = "" if settings.gives_batch else " (RLlib's default)"
            yield Found(
                f"minibatch_size {settings.minibatch:,}{default} is over {settings.batch_name} {settings.batch:,}"
                f"{whole}: RLlib raises ValueError",
                f"minibatch_size={settings.batch} or less",
                settings.line,
            )


@script_rule("LR007")
def minibatch_rest(script: Script) -> Iterable[Found]:
    """A train batch that is no whole number of minibatches."""
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
