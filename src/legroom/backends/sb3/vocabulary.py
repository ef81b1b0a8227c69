"""SB3's words, and CleanRL's for the same things."""

from collections.abc import Collection
from typing import Any

from legroom.backends.base import find_algorithm
from legroom.model.draft import Key, Vocabulary
from legroom.reading.hyperchecks import whole

# policy_kwargs that decide the size of the networks
_POLICY = (
    "net_arch", "activation_fn", "ortho_init", "log_std_init", "n_critics", "n_quantiles", "lstm_hidden_size",
    "n_lstm_layers", "shared_lstm", "enable_critic_lstm", "share_features_extractor", "normalize_images",
    "optimizer_class", "optimizer_kwargs",
)  # fmt: skip
MINIBATCHES: Key = ("hyperparams", "num_minibatches")

VOCABULARY = Vocabulary(
    names={
        **{name: ("policy", "kwargs", name) for name in _POLICY},
        "num_steps": ("hyperparams", "n_steps"),
        "update_epochs": ("hyperparams", "n_epochs"),
        "num_minibatches": MINIBATCHES,
        "lr": ("hyperparams", "learning_rate"),
    },
    moved={
        ("hyperparams", "policy_kwargs"): ("policy", "kwargs"),
        ("hyperparams", "seed"): ("seed",),
        ("hyperparams", "device"): ("device",),
    },
    layers=("net_arch",),
    sizes=frozenset({
        "n_steps", "batch_size", "n_epochs", "buffer_size", "target_update_interval", "policy_delay", "n_delta",
        "n_top", "n_critic_updates", "cg_max_steps", "line_search_max_iter", "sub_sampling_factor", "n_eval_episodes",
    }),
    counts={"learning_starts": 0, "top_quantiles_to_drop_per_net": 0, "gradient_steps": -1, "sde_sample_freq": -1},
    free=frozenset({
        "rollout_buffer_class", "rollout_buffer_kwargs", "replay_buffer_class", "replay_buffer_kwargs", "action_noise",
    }),
)  # fmt: skip


def translate_minibatches(data: dict[str, Any], given: Collection[Key]) -> dict[str, str]:
    """Turn CleanRL's number of minibatches into SB3's samples per minibatch; return what is wrong with it, by name."""
    hyper: dict[str, Any] = data["hyperparams"]
    if "num_minibatches" not in hyper:
        return {}
    count, problem = whole(hyper.pop("num_minibatches"), 1)
    if problem:
        return {"num_minibatches": problem}
    algorithm = find_algorithm("sb3", data["algo"])
    steps = hyper.get("n_steps", algorithm.defaults.get("n_steps") if algorithm else None)
    envs = data["env"].get("n_envs", 1) if isinstance(data.get("env"), dict) else 1
    # what is no number is refused for its own sake in a moment
    if isinstance(steps, int) and isinstance(envs, int) and ("batch_size" not in hyper or MINIBATCHES in given):
        hyper["batch_size"] = max(steps * envs // count, 1)
    return {}


def adopt_words(data: dict[str, Any], own: Collection[Key]) -> list[str]:
    """Take the minibatches of a file that counts them, not the batch size of the run that completes it."""
    if MINIBATCHES in own and ("hyperparams", "batch_size") not in own:
        data["hyperparams"].pop("batch_size", None)
        if not whole(data["hyperparams"].get("num_minibatches"), 1)[1]:
            translate_minibatches(data, own)
    return []
