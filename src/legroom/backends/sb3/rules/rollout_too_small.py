"""LR005: a rollout or minibatch of one sample."""

from collections.abc import Iterator

from legroom.backends.base import algorithm_of, hyper
from legroom.backends.sb3.constraints import rollout_rules
from legroom.checking.rule_helpers import BATCH_SIZE, N_STEPS, ROLLOUT, per_run
from legroom.model.rule import Found, Rule
from legroom.model.subject import Subject, SubjectRun


def look(subject: Subject, one: SubjectRun) -> Iterator[Found]:
    for finding in rollout_rules(one.run):
        if finding.code == "LR005":
            yield Found(finding.message, finding.hint, one.line(*N_STEPS) or one.line("algo"))
            return
    ppo = algorithm_of(one.run).name in ("PPO", "MaskablePPO", "RecurrentPPO")
    if ppo and hyper(one.run, "normalize_advantage") and hyper(one.run, "batch_size") == 1:
        message = "batch_size 1 cannot be normalised: the advantage of one sample has no spread"
        yield Found(message, "batch_size of at least 2, or normalize_advantage: false", one.line(*BATCH_SIZE))


RULE = Rule(
    code="LR005",
    name="rollout-too-small",
    severity="error",
    what="n_steps × n_envs, or batch_size, is 1 while advantages are normalised.",
    why="The standard deviation of one number is not a number; SB3's PPO asserts against both.",
    example="n_steps: 1\nn_envs: 1",
    remedy="n_steps and batch_size of at least 2, or normalize_advantage: false.",
    look=per_run(look, needs=(*ROLLOUT, BATCH_SIZE)),
)
