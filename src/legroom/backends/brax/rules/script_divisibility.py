"""LR002 for scripts: brax PPO's assertion about batch_size, num_minibatches and num_envs."""

import ast
from collections.abc import Iterable

from legroom.backends.brax.constraints import nearest_minibatches
from legroom.backends.brax.script_calls import brax_calls
from legroom.checking.rule_helpers import per_script
from legroom.model.rule import Fix, Found, Rule
from legroom.reading.interpreter.script import Script


def look(script: Script) -> Iterable[Found]:
    for train in brax_calls(script):
        if train.algorithm != "PPO":
            continue
        batch, minibatches = train.count(script, "batch_size"), train.count(script, "num_minibatches")
        envs = train.count(script, "num_envs")
        if not batch or not minibatches or not envs or batch * minibatches % envs == 0:
            continue
        better = nearest_minibatches(batch, minibatches, envs)
        place = train.given.get("num_minibatches")
        yield Found(
            f"brax PPO asserts batch_size × num_minibatches % num_envs == 0; here {batch} × {minibatches} = "
            f"{batch * minibatches} is not a multiple of {envs}",
            f"num_minibatches={better} gives {batch} × {better} = {batch * better}",
            place.lineno if place is not None else train.call.lineno,
            fix=_fix(script, train.call, place, better),
        )


def _fix(script: Script, call: ast.Call, place: ast.expr | None, better: int) -> Fix | None:
    written = place is not None and any(place is k.value for k in call.keywords)
    if not (written and isinstance(place, ast.Constant) and place.lineno == place.end_lineno):
        return None
    line = place.lineno
    column, end = script.column(line, place.col_offset), script.column(line, place.end_col_offset or 0)
    return Fix(f"num_minibatches={better}", line, column, line, end, str(better))


RULE = Rule(
    code="LR002",
    name="brax-divisibility",
    severity="error",
    what="batch_size × num_minibatches of a brax PPO training is not a multiple of num_envs.",
    why="brax collects whole unrolls of all environments and asserts it, without a message (ppo/train.py).",
    example="ppo.train(env, num_timesteps=10_000_000, num_envs=512, batch_size=128, num_minibatches=2)\n",
    remedy="num_minibatches a multiple of num_envs / gcd(num_envs, batch_size).",
    look=per_script(look),
)
