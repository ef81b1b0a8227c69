"""LR025: stacked frames, each of which is stored as often as it is shown."""

from collections.abc import Iterator

from legroom.backends.base import algorithm_of, hyper
from legroom.backends.sb3.checking import lean_way
from legroom.backends.sb3.stored import may_store_leanly, stores_leanly
from legroom.checking.rule_helpers import N_ENVS, per_run
from legroom.model.rule import Found, Rule
from legroom.model.subject import Subject, SubjectRun
from legroom.units import format_fine_size as size

WORTH_A_WORD = 64 << 20


def look(subject: Subject, one: SubjectRun) -> Iterator[Found]:
    stack, run = one.run.env.frame_stack or 1, one.run
    if stack < 2 or one.footprint is None or stores_leanly(run):
        return
    on_policy = algorithm_of(run).family == "on-policy"
    kind = "rollout" if on_policy else "replay"
    observations = sum(
        item.total for item in one.footprint.items if item.name.startswith((f"{kind}.observations", f"{kind}.next_obs"))
    )
    if observations < WORTH_A_WORD:
        return
    # a replay buffer keeps the next observation too, unless it is told to find it one row later
    times = stack if on_policy or hyper(run, "optimize_memory_usage") is True else 2 * stack
    message = (
        f"every frame is stored {times} times: {stack} frames per observation"
        f"{'' if times == stack else ', and each observation as the next one too'}; {size(observations)}, of which "
        f"{size(observations / times)} are different frames"
    )
    lean = f"{lean_way(subject, one, kind)} stores each frame once" if may_store_leanly(run) else ""
    yield Found(message, lean, one.line("env", "frame_stack") or one.line("algo"))


RULE = Rule(
    code="LR025",
    name="stacked-frames-stored",
    severity="info",
    what="A frame stack in a plain rollout or replay buffer.",
    why="Consecutive observations share all frames but one, and SB3's buffers keep every observation whole: k times "
    "for a "
    "stack of k, 2 k times in a replay buffer.",
    example="env: {id: PongNoFrameskip-v4, frame_stack: 4}\nhyperparams: {buffer_size: 100_000}",
    remedy="Lean storage recognises the stack, keeps each frame once and gives back the same bytes.",
    look=per_run(look, needs=(N_ENVS, ("env", "frame_stack"))),
)
