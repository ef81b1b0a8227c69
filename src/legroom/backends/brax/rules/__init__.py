"""What `legroom check` knows about brax, one module per rule; those called `script_…` look at source code."""

from legroom.backends.brax.rules import (
    default_eval_envs,
    devices,
    divisibility,
    episode_length,
    int32,
    replay,
    sac_replay_default,
    script_default_eval_envs,
    script_divisibility,
    script_sac_replay,
    script_xla_preallocation,
    xla_preallocation,
)

RUN_RULES = (
    divisibility.RULE,  # LR002
    devices.RULE,  # LR010
    sac_replay_default.RULE,  # LR027
    default_eval_envs.RULE,
    xla_preallocation.RULE,  # LR031
    int32.RULE,
    episode_length.RULE,
    replay.RULE,
)
SCRIPT_RULES = (
    script_divisibility.RULE,  # LR002
    script_xla_preallocation.RULE,  # LR062
    script_default_eval_envs.RULE,  # LR072
    script_sac_replay.RULE,
)
