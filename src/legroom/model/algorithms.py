"""The algorithms legroom knows: their family and their constructors' own defaults.

Kept as data so that a prediction by arithmetic needs no import of the library; a test holds the table against the
installed signatures. Mirrors the constructors of stable-baselines3 2.9.2, sb3-contrib 2.9.2 and brax 0.14.2.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, Literal

Family = Literal["on-policy", "off-policy", "evolution"]

# Constructor arguments that no algorithm's memory depends on and that are always allowed in `hyperparams`.
NEUTRAL = frozenset({"verbose", "tensorboard_log", "stats_window_size", "_init_setup_model"})


@dataclass(frozen=True)
class Algorithm:
    """One algorithm of one backend; `defaults` are its constructor's hyperparameters."""

    name: str
    backend: str
    package: str
    family: Family
    defaults: Mapping[str, Any]
    masked: bool = False  # keeps action masks in the rollout
    recurrent: bool = False  # keeps LSTM states in the rollout

    @property
    def keys(self) -> frozenset[str]:
        return frozenset(self.defaults) | NEUTRAL


def _defaults(base: Mapping[str, Any] = MappingProxyType({}), /, drop: str = "", **own: Any) -> Mapping[str, Any]:
    return MappingProxyType({k: v for k, v in {**base, **own}.items() if k not in drop.split()})


_ROLLOUT = dict(rollout_buffer_class=None, rollout_buffer_kwargs=None)
_SDE = dict(use_sde=False, sde_sample_freq=-1)
_PPO = _defaults(
    _ROLLOUT | _SDE, learning_rate=3e-4, n_steps=2048, batch_size=64, n_epochs=10, gamma=0.99, gae_lambda=0.95,
    clip_range=0.2, clip_range_vf=None, normalize_advantage=True, ent_coef=0.0, vf_coef=0.5, max_grad_norm=0.5,
    target_kl=None,
)  # fmt: skip
_OFF = dict(
    buffer_size=1_000_000, learning_starts=100, tau=0.005, gamma=0.99, train_freq=1, gradient_steps=1,
    replay_buffer_class=None, replay_buffer_kwargs=None, optimize_memory_usage=False, n_steps=1,
)  # fmt: skip
_DQN = _defaults(
    _OFF, learning_rate=1e-4, batch_size=32, tau=1.0, train_freq=4, target_update_interval=10_000,
    exploration_fraction=0.1, exploration_initial_eps=1.0, exploration_final_eps=0.05, max_grad_norm=10,
)  # fmt: skip
_SAC = _defaults(
    _OFF | _SDE, learning_rate=3e-4, batch_size=256, action_noise=None, ent_coef="auto", target_update_interval=1,
    target_entropy="auto", use_sde_at_warmup=False,
)  # fmt: skip
_DDPG = _defaults(_OFF, learning_rate=1e-3, batch_size=256, action_noise=None)

# num_timesteps, num_envs, num_eval_envs, seed and the networks have places of their own in a Run.
_BRAX = dict(
    episode_length=None, action_repeat=1, learning_rate=1e-4, discounting=0.9, normalize_observations=False,
    max_devices_per_host=None, reward_scaling=1.0, num_evals=1, deterministic_eval=False, wrap_env=True,
)  # fmt: skip
_BRAX_PPO = _defaults(
    _BRAX, entropy_cost=1e-4, unroll_length=10, batch_size=32, num_minibatches=16, num_updates_per_batch=2,
    num_resets_per_eval=0, normalize_observations_std_eps=0.0, normalize_observations_mode="welford",
    normalize_until_count=None, clipping_epsilon=0.3, clipping_epsilon_value=None, gae_lambda=0.95,
    max_grad_norm=None, normalize_advantage=True, vf_loss_coefficient=0.5, bootstrap_on_timeout=False,
    use_distributional_critic=False, desired_kl=0.01, learning_rate_schedule=None, learning_rate_schedule_min_lr=1e-5,
    learning_rate_schedule_max_lr=1e-2, log_training_metrics=False, training_metrics_steps=None,
    use_pmap_on_reset=True, vision=False, augment_pixels=False, run_evals=True, restore_value_fn=True,
)  # fmt: skip
_BRAX_SAC = _defaults(
    _BRAX, batch_size=256, tau=0.005, min_replay_size=0, max_replay_size=None, grad_updates_per_step=1,
)  # fmt: skip

_SB3, _CONTRIB, _OURS = "stable_baselines3", "sb3_contrib", "legroom"  # ours: trained by SB3 all the same
ALGORITHMS: tuple[Algorithm, ...] = (
    Algorithm("PPO", "sb3", _SB3, "on-policy", _PPO),
    Algorithm("A2C", "sb3", _SB3, "on-policy", _defaults(
        _ROLLOUT | _SDE, learning_rate=7e-4, n_steps=5, gamma=0.99, gae_lambda=1.0, ent_coef=0.0, vf_coef=0.5,
        max_grad_norm=0.5, rms_prop_eps=1e-5, use_rms_prop=True, normalize_advantage=False)),
    Algorithm("DQN", "sb3", _SB3, "off-policy", _DQN),
    Algorithm("DoubleDQN", "sb3", _OURS, "off-policy", _defaults(
        _DQN, double=True, priority_alpha=0.6, priority_beta=0.4, priority_eps=1e-6)),
    Algorithm("SAC", "sb3", _SB3, "off-policy", _SAC),
    Algorithm("TD3", "sb3", _SB3, "off-policy", _defaults(
        _DDPG, policy_delay=2, target_policy_noise=0.2, target_noise_clip=0.5)),
    Algorithm("DDPG", "sb3", _SB3, "off-policy", _DDPG),
    Algorithm("MaskablePPO", "sb3", _CONTRIB, "on-policy", _defaults(
        _PPO, drop="use_sde sde_sample_freq"), masked=True),
    Algorithm("RecurrentPPO", "sb3", _CONTRIB, "on-policy", _defaults(
        _PPO, drop="rollout_buffer_class rollout_buffer_kwargs", n_steps=128, batch_size=128), recurrent=True),
    Algorithm("QRDQN", "sb3", _CONTRIB, "off-policy", _defaults(
        _DQN, learning_rate=5e-5, exploration_fraction=0.005, exploration_final_eps=0.01, max_grad_norm=None)),
    Algorithm("TQC", "sb3", _CONTRIB, "off-policy", _defaults(_SAC, top_quantiles_to_drop_per_net=2)),
    Algorithm("TRPO", "sb3", _CONTRIB, "on-policy", _defaults(
        _ROLLOUT | _SDE, learning_rate=1e-3, n_steps=2048, batch_size=128, gamma=0.99, cg_max_steps=15, cg_damping=0.1,
        line_search_shrinking_factor=0.8, line_search_max_iter=10, n_critic_updates=10, gae_lambda=0.95,
        normalize_advantage=True, target_kl=0.01, sub_sampling_factor=1)),
    Algorithm("ARS", "sb3", _CONTRIB, "evolution", _defaults(
        n_delta=8, n_top=None, learning_rate=0.02, delta_std=0.05, zero_policy=True, alive_bonus_offset=0,
        n_eval_episodes=1)),
    Algorithm("CrossQ", "sb3", _CONTRIB, "off-policy", _defaults(
        _SAC, drop="tau target_update_interval", learning_rate=1e-3, policy_delay=3)),
    Algorithm("PPO", "brax", "brax.training.agents.ppo", "on-policy", _BRAX_PPO),
    Algorithm("SAC", "brax", "brax.training.agents.sac", "off-policy", _BRAX_SAC),
)  # fmt: skip
_BY_KEY = {(a.backend, a.name.lower()): a for a in ALGORITHMS}


def find_algorithm(backend: str, name: str) -> Algorithm | None:
    """Return the algorithm of that name (in any case), None when there is none. RLlib runs use SB3's names."""
    return _BY_KEY.get(("sb3" if backend == "rllib" else backend, name.lower()))


def algorithm_names(backend: str) -> list[str]:
    return [a.name for a in ALGORITHMS if a.backend == backend]
