"""LR035: a brax replay buffer smaller than what is put into it at once."""

from collections.abc import Iterator

from legroom.backends.brax.constraints import replay_rule
from legroom.checking.rule_helpers import N_ENVS, TOTAL, per_run
from legroom.model.rule import Found, Rule
from legroom.model.subject import Subject, SubjectRun


def look(subject: Subject, one: SubjectRun) -> Iterator[Found]:
    for finding in replay_rule(one.run):
        if finding.hint.startswith("min_replay_size") and not one.knows(*TOTAL):
            continue
        line = one.line("hyperparams", finding.hint.partition(" ")[0]) or one.line(*N_ENVS)
        yield Found(finding.message, finding.hint, line or one.line("algo"))


RULE = Rule(
    code="LR035",
    name="brax-replay",
    severity="error",
    what="A brax SAC run has a max_replay_size below num_envs or min_replay_size, or ends before min_replay_size.",
    why="Every step puts one transition of each environment into the buffer; "
    "brax refuses more than it holds, and a first fill that the run is too short for.",
    example="sac: {num_envs: 4096, max_replay_size: 1024}",
    remedy="A buffer of at least the larger of the two, and a first fill shorter than the run.",
    look=per_run(look, needs=(N_ENVS,)),
)
