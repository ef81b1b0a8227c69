"""brax's words, as its `train()` functions have them, and the spaces of its own environments."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from legroom.backends.brax.facts import LAYERS
from legroom.model.draft import Key
from legroom.model.spaces import KnownSpaces
from legroom.model.vocabulary import Vocabulary

NETWORKS: Mapping[str, Key] = {
    "policy_hidden_layer_sizes": ("policy", "kwargs", "policy_hidden_layer_sizes"),
    "value_hidden_layer_sizes": ("policy", "kwargs", "value_hidden_layer_sizes"),
    "policy_hidden_layers": ("policy", "kwargs", "policy_hidden_layer_sizes"),
    "value_hidden_layers": ("policy", "kwargs", "value_hidden_layer_sizes"),
    "hidden_layer_sizes": ("policy", "kwargs", "hidden_layer_sizes"),
}
TRAIN: Mapping[str, Key] = {
    "num_envs": ("env", "n_envs"),
    "num_eval_envs": ("eval", "n_envs"),
    "num_timesteps": ("total_timesteps",),
}

VOCABULARY = Vocabulary(
    names=NETWORKS,
    moved={
        **{(*part, name): place for part in ((), ("env",), ("hyperparams",)) for name, place in TRAIN.items()},
        ("hyperparams", "seed"): ("seed",),
        **{(*part, name): place for part in (("hyperparams",), ("policy",)) for name, place in NETWORKS.items()},
        ("policy", "kwargs", "policy_hidden_layers"): ("policy", "kwargs", "policy_hidden_layer_sizes"),
        ("policy", "kwargs", "value_hidden_layers"): ("policy", "kwargs", "value_hidden_layer_sizes"),
    },
    layers=LAYERS,
    sizes=frozenset({
        "batch_size", "unroll_length", "num_minibatches", "num_updates_per_batch", "episode_length", "action_repeat",
        "max_replay_size", "grad_updates_per_step", "max_devices_per_host",
    }),
    counts={"min_replay_size": 0, "num_resets_per_eval": 0, "num_evals": 0},
)  # fmt: skip

# brax's own environments (brax 0.14.2): name -> observation numbers, action numbers; all are float32
_ENVIRONMENTS = {
    "ant": (27, 8), "halfcheetah": (17, 6), "hopper": (11, 3), "humanoid": (244, 17), "humanoidstandup": (244, 17),
    "inverted_pendulum": (4, 1), "inverted_double_pendulum": (8, 1), "pusher": (23, 7), "reacher": (11, 2),
    "swimmer": (8, 2), "walker2d": (17, 6),
}  # fmt: skip


def _vector(n: int) -> dict[str, Any]:
    return {"type": "box", "shape": [n], "dtype": "float32"}


SPACES: Mapping[str, KnownSpaces] = {
    name: KnownSpaces(_vector(observation), _vector(action)) for name, (observation, action) in _ENVIRONMENTS.items()
}
