"""LR101: a rollout_fragment_length that no whole number of makes the train batch of PPO."""

from collections.abc import Iterable

from legroom.backends.rllib.script_calls import rllib_fragments
from legroom.checking.rule_helpers import per_script
from legroom.model.rule import Found, Rule
from legroom.reading.interpreter.script import Script

TOLERATED = 0.1  # AlgorithmConfig.validate_train_batch_size_vs_rollout_fragment_length, release 2.60


def look(script: Script) -> Iterable[Found]:
    for each in rllib_fragments(script):
        rounds = -(-each.batch // each.collected)
        over = rounds * each.collected - each.batch
        if over > TOLERATED * each.batch:
            yield Found(
                f"RLlib refuses this: {each.runners} runners × {each.envs} envs × rollout_fragment_length "
                f"{each.fragment:,} = {each.collected:,} steps, and no multiple of it is within 10 % of "
                f"{each.batch_name} {each.batch:,}",
                f'rollout_fragment_length="auto", or {max(each.batch // (each.runners * each.envs), 1):,}',
                each.line,
            )


RULE = Rule(
    code="LR101",
    name="fragments-miss-batch",
    severity="error",
    what="rollout_fragment_length × env runners × envs does not come to the train batch of PPO.",
    why="RLlib checks this before it starts and raises a ValueError.",
    example="PPOConfig().env_runners(num_env_runners=7, rollout_fragment_length=200).training(train_batch_size=1000)\n",
    remedy='rollout_fragment_length="auto".',
    look=per_script(look),
)
