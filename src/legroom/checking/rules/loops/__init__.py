"""Rules about training loops that people write themselves, mostly with plain PyTorch: leaks, waste, gradients."""

from __future__ import annotations

from legroom.checking.rules.loops import (
    acts_with_gradients,
    anomaly_detection,
    array_exceeds,
    cache_emptied,
    cache_on_method,
    collected_in_loop,
    device_not_used,
    env_keeps_steps,
    evaluates_with_gradients,
    float_frames,
    loader_ahead,
    loss_kept,
    loss_summed,
    models_kept,
    next_stored_twice,
    replay_exceeds,
    retained_graph,
    transitions_kept,
    transitions_on_card,
    zero_grad_missing,
)

LOOP_RULES = tuple(module.RULE for module in (
    loss_kept, loss_summed, retained_graph, cache_emptied, acts_with_gradients, evaluates_with_gradients,
    transitions_kept, env_keeps_steps, array_exceeds, replay_exceeds, float_frames, next_stored_twice, loader_ahead,
    device_not_used, zero_grad_missing, models_kept, transitions_on_card, cache_on_method, anomaly_detection,
    collected_in_loop,
))  # fmt: skip
