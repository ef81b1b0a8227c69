"""LR004: a policy for another kind of observation."""

from collections.abc import Iterator

from legroom.backends.sb3.constraints import space_rules
from legroom.checking.locating import value_fix
from legroom.checking.rule_helpers import per_run
from legroom.model.rule import Found, Rule
from legroom.model.subject import Subject, SubjectRun


def look(subject: Subject, one: SubjectRun) -> Iterator[Found]:
    for finding in space_rules(one.run):
        if finding.code != "LR004":
            continue
        fix = None
        if finding.fix and subject.kind in ("run", "zoo") and one.gives("policy", "name"):
            fix = value_fix(subject, one, ("policy", "name"), "MultiInputPolicy", "policy -> MultiInputPolicy")
        yield Found(finding.message, finding.hint, one.line("policy", "name") or one.line("algo"), fix=fix)


RULE = Rule(
    code="LR004",
    name="policy-does-not-match",
    severity="error",
    what="The policy is made for another kind of observation: a CnnPolicy without an image, an MlpPolicy for a dict.",
    why="SB3's constructor refuses it.",
    example="policy: CnnPolicy\nenv: {id: CartPole-v1}   # four numbers, no image",
    remedy="MlpPolicy for vectors, CnnPolicy for uint8 images, MultiInputPolicy for dicts.",
    look=per_run(look, needs=(("policy", "name"), ("env", "wrappers"))),
)
