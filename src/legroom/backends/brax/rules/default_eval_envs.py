"""LR028: brax's 128 evaluation environments, where nobody asked for them."""

from collections.abc import Iterator

from legroom.backends.base import hyper
from legroom.checking.rule_helpers import N_ENVS, per_run
from legroom.model.rule import Found, Rule
from legroom.model.subject import Subject, SubjectRun
from legroom.units import format_fine_size as size

DEFAULT = 128


def look(subject: Subject, one: SubjectRun) -> Iterator[Found]:
    run = one.run
    if run.eval is not None or hyper(run, "run_evals") is False:
        return
    envs = run.env.n_envs
    message = f"num_eval_envs is not given: brax evaluates on {DEFAULT} environments of its own beside the {envs:,}"
    if one.footprint is not None:
        nbytes = sum(item.total for item in one.footprint.items if item.name == "envs.evaluation states")
        message += f", about {size(nbytes)} of states"
    if envs < DEFAULT:
        yield Found(
            f"{message}: more than it trains on",
            f"num_eval_envs {envs}",
            one.line(*N_ENVS) or one.line("algo"),
            "warning",
        )
        return
    yield Found(message, "", one.line(*N_ENVS) or one.line("algo"))


RULE = Rule(
    code="LR028",
    name="default-eval-envs",
    severity="info",
    what="A brax run that does not say num_eval_envs.",
    why="The default of 128 is compiled and kept beside the training's; in a small run it is the larger part, and "
    "then a "
    "warning.",
    example="ppo: {num_envs: 64}",
    remedy="num_eval_envs as small as the evaluation allows.",
    look=per_run(look, needs=(N_ENVS,)),
)
