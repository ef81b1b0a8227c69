"""LR035: a brax replay buffer smaller than what is put into it at once."""

from collections.abc import Iterator

from legroom.backends.brax.constraints import replay_rule
from legroom.checking.rule_helpers import N_ENVS, per_run
from legroom.model.rule import Found, Rule
from legroom.model.subject import Subject, SubjectRun


def look(subject: Subject, one: SubjectRun) -> Iterator[Found]:
    for finding in replay_rule(one.run):
        if not finding.hint.startswith("max_replay_size"):
            continue  # a fill beyond the end of the run is LR022's
        line = one.line("hyperparams", "max_replay_size") or one.line(*N_ENVS)
        yield Found(finding.message, finding.hint, line or one.line("algo"))


RULE = Rule(
    code="LR035",
    name="brax-replay",
    severity="error",
    what="max_replay_size is below num_envs or min_replay_size in a brax SAC run.",
    why="Every step puts one transition of each environment into the buffer; brax refuses more than it holds.",
    example="sac: {num_envs: 4096, max_replay_size: 1024}",
    remedy="A buffer of at least the larger of the two.",
    look=per_run(look, needs=(N_ENVS,)),
)
