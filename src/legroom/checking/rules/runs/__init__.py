"""Rules about runs: what a run file, a zoo entry, a module of constants or a script says about sizes and counts."""

from __future__ import annotations

from legroom.backends.brax.rules import (
    default_eval_envs,
    xla_preallocation,
)
from legroom.backends.brax.rules import (
    devices as brax_devices,
)
from legroom.backends.brax.rules import (
    divisibility as brax_divisibility,
)
from legroom.backends.brax.rules import (
    episode_length as brax_episode_length,
)
from legroom.backends.brax.rules import (
    int32 as brax_int32,
)
from legroom.backends.brax.rules import (
    replay as brax_replay,
)
from legroom.backends.brax.rules import (
    sac_replay_default as brax_sac_replay_default,
)
from legroom.backends.sb3.rules import (
    episode_shorter_than_rollout,
    flatten_copy_exceeds_ram,
    float32_rollout,
    fork_workers,
    heavy_workers,
    minibatch_does_not_divide,
    minibatch_exceeds_rollout,
    optimize_memory_refused,
    policy_does_not_match,
    replay_exceeds_ram,
    rollout_exceeds_ram,
    rollout_too_small,
    stacked_frames_stored,
    unsupported_actions,
)
from legroom.checking.rule import Rule
from legroom.checking.rules.runs import (
    checkpoint_in_iterations,
    frequency_in_vec_steps,
    host_exceeded,
    invalid_value,
    n_epochs_costs_time,
    no_effect,
    schedule_never_completes,
    sync_stride,
    timesteps_not_multiple,
    under_used_machine,
    updates_per_iteration,
    vram_exceeded,
    wide_observations,
)

RUN_RULES: tuple[Rule, ...] = (
    invalid_value.RULE,
    brax_divisibility.RULE,
    unsupported_actions.RULE,
    policy_does_not_match.RULE,
    rollout_too_small.RULE,
    minibatch_exceeds_rollout.RULE,
    minibatch_does_not_divide.RULE,
    optimize_memory_refused.RULE,
    no_effect.RULE,
    brax_devices.RULE,
    float32_rollout.RULE,
    flatten_copy_exceeds_ram.RULE,
    rollout_exceeds_ram.RULE,
    replay_exceeds_ram.RULE,
    vram_exceeded.RULE,
    frequency_in_vec_steps.RULE,
    checkpoint_in_iterations.RULE,
    episode_shorter_than_rollout.RULE,
    n_epochs_costs_time.RULE,
    timesteps_not_multiple.RULE,
    updates_per_iteration.RULE,
    schedule_never_completes.RULE,
    sync_stride.RULE,
    under_used_machine.RULE,
    stacked_frames_stored.RULE,
    wide_observations.RULE,
    brax_sac_replay_default.RULE,
    default_eval_envs.RULE,
    heavy_workers.RULE,
    fork_workers.RULE,
    xla_preallocation.RULE,
    host_exceeded.RULE,
    brax_int32.RULE,
    brax_episode_length.RULE,
    brax_replay.RULE,
)
