"""Rules about scripts: what only source code can show.

Three of them carry the code of a rule about runs (LR002, LR006, LR007): the same thing, seen in a script that holds no
run which could be read.
"""

from __future__ import annotations

from legroom.checking.rule import Rule
from legroom.checking.rules.scripts import (
    alloc_conf_too_late,
    brax_defaults,
    brax_divisibility,
    brax_sac_replay,
    callback_not_used,
    class_cache,
    cuda_in_workers,
    eval_on_training_env,
    fork_workers,
    frequency_in_vec_steps,
    handwritten_minibatches,
    interval_in_iterations,
    live_observation,
    oom_handler_keeps,
    oom_handler_misses,
    rllib_minibatch,
    schedule_never_completes,
    snapshots_kept,
    sync_stride,
    tracemalloc_frames,
    trains_nothing,
    untrusted_load,
    unused_key,
    worker_imports_torch,
    xla_preallocation,
)

SCRIPT_RULES: tuple[Rule, ...] = (
    brax_divisibility.RULE,  # LR002
    rllib_minibatch.RULE,  # LR006
    handwritten_minibatches.RULE,  # LR007
    callback_not_used.RULE,  # LR050
    eval_on_training_env.RULE,
    frequency_in_vec_steps.RULE,
    untrusted_load.RULE,
    fork_workers.RULE,
    worker_imports_torch.RULE,
    oom_handler_misses.RULE,
    oom_handler_keeps.RULE,
    snapshots_kept.RULE,
    tracemalloc_frames.RULE,
    class_cache.RULE,  # LR060
    cuda_in_workers.RULE,
    xla_preallocation.RULE,
    unused_key.RULE,
    interval_in_iterations.RULE,
    trains_nothing.RULE,
    schedule_never_completes.RULE,  # LR070
    sync_stride.RULE,
    brax_defaults.RULE,
    brax_sac_replay.RULE,
    live_observation.RULE,
    alloc_conf_too_late.RULE,
)
