"""LR006 for RLlib: a minibatch over the train batch, which RLlib refuses."""

from collections.abc import Iterable

from legroom.backends.rllib.script_calls import rllib_settings
from legroom.checking.rule_helpers import per_script
from legroom.model.rule import Found, Rule
from legroom.reading.interpreter.script import Script


def look(script: Script) -> Iterable[Found]:
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


RULE = Rule(
    code="LR006",
    name="minibatch-exceeds-rollout",
    severity="error",
    what="RLlib's minibatch_size is larger than the train batch of a learner.",
    why="PPOConfig.validate refuses it when the algorithm is built (ray/rllib/algorithms/ppo/ppo.py).",
    example="PPOConfig().training(train_batch_size_per_learner=512, minibatch_size=1024)\n",
    remedy="A minibatch_size of at most train_batch_size_per_learner.",
    look=per_script(look),
)
