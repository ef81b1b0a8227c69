"""LR073: brax SAC's replay buffer is as large as the training is long, unless told otherwise."""

from collections.abc import Iterable

from legroom.backends.brax.script_calls import brax_calls
from legroom.checking.rule_helpers import per_script
from legroom.model.rule import Found, Rule
from legroom.reading.interpreter.script import Script

USUAL = 1_000_000  # transitions: what people give for max_replay_size


def look(script: Script) -> Iterable[Found]:
    for train in brax_calls(script):
        if train.algorithm == "SAC" and train.complete and "max_replay_size" not in train.given:
            total = train.count(script, "num_timesteps")
            if total is not None and total <= USUAL:
                continue
            rows = f"{total:,} transitions (num_timesteps)" if total is not None else "num_timesteps transitions"
            yield Found(
                f"brax SAC keeps {rows} in GPU memory, since max_replay_size is not given",
                f"max_replay_size={USUAL:_}", train.call.lineno,
            )  # fmt: skip


RULE = Rule(
    code="LR073",
    name="brax-sac-replay",
    severity="info",
    what="A brax SAC training does not say how large its replay buffer is.",
    why="It defaults to num_timesteps, all allocated on the accelerator before the first step.",
    example="sac.train(env, num_timesteps=100_000_000, episode_length=1000, num_envs=128)\n",
    remedy="max_replay_size=1_000_000.",
    look=per_script(look),
)
