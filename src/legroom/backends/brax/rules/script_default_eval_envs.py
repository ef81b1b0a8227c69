"""LR072: brax evaluates on 128 environments unless told otherwise."""

import ast
from collections.abc import Iterable

from legroom.backends.brax.script_calls import brax_calls
from legroom.checking.rule_helpers import per_script
from legroom.model.rule import Found, Rule
from legroom.reading.interpreter.script import Script

DEFAULT_EVAL_ENVS = 128  # num_eval_envs in brax 0.14.2, PPO and SAC alike


def look(script: Script) -> Iterable[Found]:
    for train in brax_calls(script):
        envs = train.count(script, "num_envs")
        off = train.given.get("run_evals")
        if isinstance(off, ast.Constant) and off.value is False:
            continue
        if train.complete and "num_eval_envs" not in train.given and envs is not None and envs < DEFAULT_EVAL_ENVS:
            yield Found(
                f"brax evaluates on {DEFAULT_EVAL_ENVS} environments by default, more than the {envs} it trains on",
                f"num_eval_envs={envs}", train.call.lineno,
            )  # fmt: skip


RULE = Rule(
    code="LR072",
    name="default-eval-envs",
    severity="info",
    what="A brax training with few environments leaves num_eval_envs at its default of 128.",
    why="The evaluation then needs more memory than the training, and is compiled for it too.",
    example="ppo.train(env, num_timesteps=1_000_000, num_envs=16, batch_size=16, num_minibatches=1)\n",
    remedy="num_eval_envs as large as num_envs.",
    look=per_script(look),
)
