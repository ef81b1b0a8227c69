"""LR018: rollouts of several episodes, where the length of an episode is known."""

from __future__ import annotations

from collections.abc import Iterator

from legroom.checking.looking import ROLLOUT, per_run
from legroom.checking.rule import Found, Rule
from legroom.checking.subject import Subject, SubjectRun
from legroom.model.facts import rollout_rows
from legroom.model.run import Run


def look(subject: Subject, one: SubjectRun) -> Iterator[Found]:
    rows, limit = rollout_rows(one.run), episode_limit(one.run)
    if rows is None or limit is None or limit >= rows or one.run.backend != "sb3":
        return
    episodes = f"at least {rows // limit:,}" if rows >= 2 * limit else "more than one"
    message = (
        f"n_steps {rows:,} is longer than an episode, which has at most {limit:,} steps: each rollout of an "
        f"environment "
        f"holds {episodes}"
    )
    hint = "nothing is wrong with it; a shorter rollout would still hold whole episodes, in less memory"
    yield Found(message, hint, one.line("hyperparams", "n_steps") or one.line("algo"))


def episode_limit(run: Run) -> int | None:
    """Return the most steps an episode has: by a TimeLimit of the run, by the run, or by the known environment."""
    limits = [
        wrapper[name].get("max_episode_steps")
        for wrapper in run.env.wrappers
        if isinstance(wrapper, dict)
        for name in wrapper
        if str(name).rpartition(".")[2].rpartition(":")[2] == "TimeLimit" and isinstance(wrapper[name], dict)
    ]
    limits += [run.env.kwargs.get("max_episode_steps"), run.env.episode_steps]
    known = [limit for limit in limits if isinstance(limit, int) and not isinstance(limit, bool) and limit > 0]
    return known[0] if known else None


RULE = Rule(
    code="LR018",
    name="episode-shorter-than-rollout",
    severity="info",
    what="n_steps is longer than an episode can be.",
    why="Rollout length and episode length are two things: rollouts may hold many episodes or a part of one, and "
    "the value "
    "function stands in for what is cut off. But a rollout that is long only because someone took it for an episode "
    "costs memory. Nothing is said where the length of an episode is not known.",
    example="env: {id: CartPole-v1}   # at most 500 steps\nhyperparams: {n_steps: 2048}",
    remedy="None needed; fewer steps where memory is short.",
    look=per_run(look, needs=(*ROLLOUT, ("env", "wrappers"))),
)
