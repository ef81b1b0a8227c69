"""LR018: rollouts of several episodes, where the length of an episode is known."""

import re
from collections.abc import Iterator

from legroom.backends.sb3.stored import rollout_rows
from legroom.checking.rule_helpers import ROLLOUT, per_run
from legroom.model.facts import episode_limit
from legroom.model.rule import Found, Rule
from legroom.model.subject import Subject, SubjectRun

_LIMIT = re.compile(r"_max_episode_steps|\.unwrapped\b|\)\.env\b")


def look(subject: Subject, one: SubjectRun) -> Iterator[Found]:
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


RULE = Rule(
    code="LR018",
    name="episode-shorter-than-rollout",
    severity="info",
    what="n_steps is longer than an episode can be.",
    why="Rollout length and episode length are independent: rollouts may hold many episodes or a part of one, and "
    "the value "
    "function stands in for what is cut off. But a rollout that is long only because it was mistaken for an episode "
    "costs memory. No finding where the length of an episode is unknown.",
    example="env: {id: CartPole-v1}   # at most 500 steps\nhyperparams: {n_steps: 2048}",
    remedy="None needed; fewer steps where memory is short.",
    look=per_run(look, needs=(*ROLLOUT, ("env", "wrappers"))),
)
