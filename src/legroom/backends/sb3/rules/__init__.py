"""What `legroom check` knows about SB3, one module per rule; those called `script_…` look at source code."""

from legroom.backends.sb3.rules import (
    episode_shorter_than_rollout,
    flatten_copy_exceeds_ram,
    float32_rollout,
    frequency_in_vec_steps,
    full_gpu,
    heavy_workers,
    minibatch_does_not_divide,
    minibatch_exceeds_rollout,
    optimize_memory_refused,
    policy_does_not_match,
    replay_exceeds_ram,
    rollout_exceeds_ram,
    rollout_too_small,
    script_callback_not_used,
    script_class_cache,
    script_cuda_in_workers,
    script_eval_on_training_env,
    script_fork_workers,
    script_frequency_in_vec_steps,
    script_reset_not_seen,
    script_worker_imports_torch,
    stacked_frames_stored,
    under_used_machine,
    unsupported_actions,
    wide_observations,
)

RUN_RULES = (
    unsupported_actions.RULE,  # LR003
    policy_does_not_match.RULE,
    rollout_too_small.RULE,
    minibatch_exceeds_rollout.RULE,
    minibatch_does_not_divide.RULE,
    optimize_memory_refused.RULE,
    full_gpu.RULE,
    float32_rollout.RULE,  # LR011
    flatten_copy_exceeds_ram.RULE,
    rollout_exceeds_ram.RULE,
    replay_exceeds_ram.RULE,
    frequency_in_vec_steps.RULE,  # LR016
    episode_shorter_than_rollout.RULE,
    under_used_machine.RULE,
    stacked_frames_stored.RULE,
    wide_observations.RULE,
    heavy_workers.RULE,  # LR029
)
SCRIPT_RULES = (
    script_callback_not_used.RULE,  # LR050
    script_eval_on_training_env.RULE,
    script_frequency_in_vec_steps.RULE,
    script_fork_workers.RULE,  # LR054
    script_worker_imports_torch.RULE,
    script_class_cache.RULE,  # LR060
    script_cuda_in_workers.RULE,
    script_reset_not_seen.RULE,  # LR102
)
