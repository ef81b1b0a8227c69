"""Rules about training loops that people write themselves, mostly with plain PyTorch: leaks, waste, gradients."""

from __future__ import annotations

from legroom.checking.rules.loops import (
    acts_with_gradients,
    array_exceeds,
    cache_emptied,
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
)

LOOP_RULES = tuple(module.RULE for module in (
    loss_kept, loss_summed, retained_graph, cache_emptied, acts_with_gradients, evaluates_with_gradients,
    transitions_kept, env_keeps_steps, array_exceeds, replay_exceeds, float_frames, next_stored_twice, loader_ahead,
    models_kept, transitions_on_card,
))  # fmt: skip
