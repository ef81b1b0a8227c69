"""brax's words, as its `train()` functions have them, and the spaces of its own environments."""

from collections.abc import Collection, Mapping
from typing import Any

from legroom.backends.brax.facts import LAYERS
from legroom.model.draft import Key, Vocabulary
from legroom.model.facts import Algorithm, defaults
from legroom.model.spaces import KnownSpaces

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

# What programs with a loop of their own call these; `adopt_words` reads their settings.
OTHER_WORDS: Mapping[str, str] = {
    "n_steps": "unroll_length", "n_epochs": "num_updates_per_batch", "gamma": "discounting",
    "ent_coef": "entropy_cost", "clip_range": "clipping_epsilon", "vf_coef": "vf_loss_coefficient",
    "buffer_size": "max_replay_size",
}  # fmt: skip
_NETS = {"pi": "policy_hidden_layer_sizes", "vf": "value_hidden_layer_sizes"}


def adopt_words(data: dict[str, Any], own: Collection[Key]) -> list[str]:
    """Turn a PPO's settings in other words into brax's; return the names that brax has no word for.

    Such a loop cuts `n_steps x n_envs` samples into `num_minibatches`. brax counts whole unrolls, so that the same
    minibatch is `n_envs / num_minibatches` of them.
    """
    hyper = data.get("hyperparams", {})
    known = {name for each in BRAX_ALGORITHMS if each.name == data.get("algo") for name in each.defaults}
    dropped = []
    for name in [key[1] for key in own if key[0] == "hyperparams" and len(key) == 2]:
        if name in hyper and name not in known:
            value, word = hyper.pop(name), OTHER_WORDS.get(str(name))
            if word in known:
                hyper[word] = value
            else:
                dropped.append(str(name))
    nets = data.get("policy", {}).get("kwargs", {}).pop("net_arch", None)
    for name, layers in nets.items() if isinstance(nets, dict) else ():
        data["policy"]["kwargs"][_NETS[name]] = layers
    envs, parts = data.get("env", {}).get("n_envs"), hyper.get("num_minibatches")
    split = ("hyperparams", "num_minibatches") in own and ("hyperparams", "batch_size") not in own
    if split and isinstance(envs, int) and isinstance(parts, int) and parts > 0 and envs % parts == 0:
        hyper["batch_size"] = envs // parts
    return dropped


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


# num_timesteps, num_envs, num_eval_envs, seed and the networks have places of their own in a Run.
_BRAX = dict(
    episode_length=None, action_repeat=1, learning_rate=1e-4, discounting=0.9, normalize_observations=False,
    max_devices_per_host=None, reward_scaling=1.0, num_evals=1, deterministic_eval=False, wrap_env=True,
)  # fmt: skip
_BRAX_PPO = defaults(
    _BRAX, entropy_cost=1e-4, unroll_length=10, batch_size=32, num_minibatches=16, num_updates_per_batch=2,
    num_resets_per_eval=0, normalize_observations_std_eps=0.0, normalize_observations_mode="welford",
    normalize_until_count=None, clipping_epsilon=0.3, clipping_epsilon_value=None, gae_lambda=0.95,
    max_grad_norm=None, normalize_advantage=True, vf_loss_coefficient=0.5, bootstrap_on_timeout=False,
    use_distributional_critic=False, desired_kl=0.01, learning_rate_schedule=None, learning_rate_schedule_min_lr=1e-5,
    learning_rate_schedule_max_lr=1e-2, log_training_metrics=False, training_metrics_steps=None,
    use_pmap_on_reset=True, vision=False, augment_pixels=False, run_evals=True, restore_value_fn=True,
)  # fmt: skip
_BRAX_SAC = defaults(
    _BRAX, batch_size=256, tau=0.005, min_replay_size=0, max_replay_size=None, grad_updates_per_step=1,
)  # fmt: skip

BRAX_ALGORITHMS: tuple[Algorithm, ...] = (
    Algorithm("PPO", "brax", "brax.training.agents.ppo", "on-policy", _BRAX_PPO),
    Algorithm("SAC", "brax", "brax.training.agents.sac", "off-policy", _BRAX_SAC),
)  # fmt: skip
