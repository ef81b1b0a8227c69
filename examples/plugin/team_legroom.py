"""A team's own rule and knob: found by legroom through the entry points in pyproject.toml.

pip install ./examples/plugin
legroom check run.yaml            # tells of EX001, too
legroom fit run.yaml --ram 2GiB   # may stack fewer frames
"""

from collections.abc import Iterator

from legroom.extend import Evidence, Found, Knob, Rule, Run, with_settings


def look(subject) -> Iterator[Found]:
    """Tell of runs with more environments than the team's machines have cores."""
    for one in subject.runs:
        if one.run.env.n_envs > 32:
            yield Found(
                f"{one.run.env.n_envs} environments; our machines have 32 cores", line=one.line("env", "n_envs")
            )


RULE = Rule(
    code="EX001",  # not LR: those are legroom's
    name="more-envs-than-cores",
    severity="warning",
    what="More environments than a machine of ours has cores.",
    why="They take turns, and each has memory of its own.",
    example="env: {id: CartPole-v1, n_envs: 64}",
    remedy="At most 32 environments.",
    look=look,
)


def fewer_frames(run: Run, evidence: Evidence) -> Iterator[Run]:
    """Yield the run with ever fewer stacked frames; nothing where none are stacked."""
    frames = run.env.frame_stack or 1
    while frames > 1:
        frames -= 1
        yield with_settings(run, env={"frame_stack": frames})


KNOB = Knob(
    key="env.frame_stack",
    price="changes-learning",
    exact="",
    say="fewer frames are stacked: an observation is smaller, and says less of what moves",
    ladder=fewer_frames,
)
