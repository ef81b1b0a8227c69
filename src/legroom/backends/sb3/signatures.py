"""The algorithms of SB3, sb3-contrib and our own on top of them: their constructors' defaults, as data.

A prediction by arithmetic needs no import of the library; a test compares the table with the installed signatures.
Mirrors stable-baselines3 2.9.2 and sb3-contrib 2.9.2.
"""

from legroom.model.facts import Algorithm, defaults

_ROLLOUT = dict(rollout_buffer_class=None, rollout_buffer_kwargs=None)
_SDE = dict(use_sde=False, sde_sample_freq=-1)
_PPO = defaults(
    _ROLLOUT | _SDE, learning_rate=3e-4, n_steps=2048, batch_size=64, n_epochs=10, gamma=0.99, gae_lambda=0.95,
    clip_range=0.2, clip_range_vf=None, normalize_advantage=True, ent_coef=0.0, vf_coef=0.5, max_grad_norm=0.5,
    target_kl=None,
)  # fmt: skip
_OFF = dict(
    buffer_size=1_000_000, learning_starts=100, tau=0.005, gamma=0.99, train_freq=1, gradient_steps=1,
    replay_buffer_class=None, replay_buffer_kwargs=None, optimize_memory_usage=False, n_steps=1,
)  # fmt: skip
_DQN = defaults(
    _OFF, learning_rate=1e-4, batch_size=32, tau=1.0, train_freq=4, target_update_interval=10_000,
    exploration_fraction=0.1, exploration_initial_eps=1.0, exploration_final_eps=0.05, max_grad_norm=10,
)  # fmt: skip
_SAC = defaults(
    _OFF | _SDE, learning_rate=3e-4, batch_size=256, action_noise=None, ent_coef="auto", target_update_interval=1,
    target_entropy="auto", use_sde_at_warmup=False,
)  # fmt: skip
_DDPG = defaults(_OFF, learning_rate=1e-3, batch_size=256, action_noise=None)

_SB3, _CONTRIB, _OURS = "stable_baselines3", "sb3_contrib", "legroom"  # ours: trained by SB3 all the same
SB3_ALGORITHMS: tuple[Algorithm, ...] = (
    Algorithm("PPO", "sb3", _SB3, "on-policy", _PPO),
    Algorithm("A2C", "sb3", _SB3, "on-policy", defaults(
        _ROLLOUT | _SDE, learning_rate=7e-4, n_steps=5, gamma=0.99, gae_lambda=1.0, ent_coef=0.0, vf_coef=0.5,
        max_grad_norm=0.5, rms_prop_eps=1e-5, use_rms_prop=True, normalize_advantage=False)),
    Algorithm("DQN", "sb3", _SB3, "off-policy", _DQN),
    Algorithm("DoubleDQN", "sb3", _OURS, "off-policy", defaults(
        _DQN, double=True, priority_alpha=0.6, priority_beta=0.4, priority_eps=1e-6)),
    Algorithm("SAC", "sb3", _SB3, "off-policy", _SAC),
    Algorithm("TD3", "sb3", _SB3, "off-policy", defaults(
        _DDPG, policy_delay=2, target_policy_noise=0.2, target_noise_clip=0.5)),
    Algorithm("DDPG", "sb3", _SB3, "off-policy", _DDPG),
    Algorithm("MaskablePPO", "sb3", _CONTRIB, "on-policy", defaults(
        _PPO, drop="use_sde sde_sample_freq"), masked=True),
    Algorithm("RecurrentPPO", "sb3", _CONTRIB, "on-policy", defaults(
        _PPO, drop="rollout_buffer_class rollout_buffer_kwargs", n_steps=128, batch_size=128), recurrent=True),
    Algorithm("QRDQN", "sb3", _CONTRIB, "off-policy", defaults(
        _DQN, learning_rate=5e-5, exploration_fraction=0.005, exploration_final_eps=0.01, max_grad_norm=None)),
    Algorithm("TQC", "sb3", _CONTRIB, "off-policy", defaults(_SAC, top_quantiles_to_drop_per_net=2)),
    Algorithm("TRPO", "sb3", _CONTRIB, "on-policy", defaults(
        _ROLLOUT | _SDE, learning_rate=1e-3, n_steps=2048, batch_size=128, gamma=0.99, cg_max_steps=15, cg_damping=0.1,
        line_search_shrinking_factor=0.8, line_search_max_iter=10, n_critic_updates=10, gae_lambda=0.95,
        normalize_advantage=True, target_kl=0.01, sub_sampling_factor=1)),
    Algorithm("ARS", "sb3", _CONTRIB, "evolution", defaults(
        n_delta=8, n_top=None, learning_rate=0.02, delta_std=0.05, zero_policy=True, alive_bonus_offset=0,
        n_eval_episodes=1)),
    Algorithm("CrossQ", "sb3", _CONTRIB, "off-policy", defaults(
        _SAC, drop="tau target_update_interval", learning_rate=1e-3, policy_delay=3)),
)  # fmt: skip
