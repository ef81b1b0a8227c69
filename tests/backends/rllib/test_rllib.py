"""A run on RLlib: SB3's settings translated by hand-computed numbers, and every difference of meaning said."""

import math

import pytest

from legroom.backends.rllib.translation import LEAST_ROUND, rllib_plan
from legroom.errors import BadInput
from legroom.model.run import Run


def run(algo="PPO", *, env=None, policy=None, total=100_000, **hyperparams):
    data = {"algo": algo, "backend": "rllib", "env": {"id": "CartPole-v1", **(env or {})}, "hyperparams": hyperparams}
    return Run.model_validate(data | {"total_timesteps": total, "policy": policy or {}})


def test_ppo_of_sb3_keeps_its_numbers():
    plan = rllib_plan(
        run(env={"n_envs": 6, "workers": "subproc", "envs_per_worker": 2}, n_steps=128, batch_size=64, n_epochs=4,
            gae_lambda=0.9, ent_coef=0.01, vf_coef=0.25, clip_range=0.1, max_grad_norm=0.4, learning_rate=1e-3)
    )  # fmt: skip
    assert (plan.algo, plan.masked) == ("PPO", False)
    assert (plan.runners, plan.envs_per_runner, plan.n_envs) == (3, 2, 6)
    assert (plan.rollout_fragment_length, plan.train_batch_size) == (128, 768)  # 128 steps x 6 envs
    assert (plan.minibatch_size, plan.num_epochs, plan.replay_capacity) == (64, 4, None)
    assert plan.settings == {
        "lr": 1e-3, "gamma": 0.99, "lambda_": 0.9, "entropy_coeff": 0.01, "vf_loss_coeff": 0.25, "clip_param": 0.1,
        "grad_clip": 0.4, "grad_clip_by": "global_norm", "minibatch_size": 64, "num_epochs": 4,
        "use_kl_loss": False, "kl_coeff": 0.0, "vf_clip_param": math.inf, "train_batch_size_per_learner": 768,
    }  # fmt: skip
    assert plan.said == ()  # nothing means anything else


@pytest.mark.parametrize(
    ("given", "plan", "settings"),
    [
        # what is left out has SB3's defaults
        ({}, {"train_batch_size": 2048, "minibatch_size": 64, "num_epochs": 10}, {"lambda_": 0.95, "lr": 3e-4}),
        # a batch of two learners is halved for each
        ({"n_steps": 100, "batch_size": 50, "num_learners": 2}, {"train_batch_size": 100},
         {"train_batch_size_per_learner": 50}),
        # one update every 4 steps, in longer rounds
        ({"algo": "DQN"}, {"steps_per_round": LEAST_ROUND, "updates_per_round": LEAST_ROUND // 4}, {}),
        # as many gradient steps as steps
        ({"algo": "DQN", "env": {"n_envs": 4}, "train_freq": 8, "gradient_steps": -1},
         {"steps_per_round": 32, "updates_per_round": 32}, {}),
        ({"algo": "DoubleDQN", "priority_alpha": 0.7, "priority_beta": 0.5}, {}, {
            "double_q": True,
            "replay_buffer_config": {
                "type": "PrioritizedEpisodeReplayBuffer", "capacity": 1_000_000, "alpha": 0.7, "beta": 0.5,
            },
        }),
        # SAC's targets follow after every update, as SB3's interval of 1
        ({"algo": "SAC", "ent_coef": "auto"}, {},
         {"initial_alpha": 1.0, "alpha_lr": 3e-4, "twin_q": True, "target_network_update_freq": 0}),
        ({"algo": "SAC", "ent_coef": "auto_0.1"}, {}, {"initial_alpha": 0.1, "alpha_lr": 3e-4}),
        ({"algo": "SAC", "ent_coef": 0.2}, {}, {"initial_alpha": 0.2, "alpha_lr": 0.0}),
    ],
)  # fmt: skip
def test_sb3s_settings_in_rllibs_words(given, plan, settings):
    found = rllib_plan(run(**given))
    assert {name: getattr(found, name) for name in plan} == plan
    assert {name: found.settings[name] for name in settings} == settings


def test_dummy_environments_stay_in_one_runner_and_that_is_said():
    plan = rllib_plan(run(env={"n_envs": 4}))
    assert (plan.runners, plan.envs_per_runner) == (1, 4)
    assert any("num_env_runners" in line for line in plan.said)


@pytest.mark.parametrize(
    ("given", "runners", "each"),
    [
        ({"num_env_runners": 3}, 3, 3),  # 8 environments: 3 + 3 + 3
        ({"num_envs_per_env_runner": 4}, 2, 4),
        ({"num_env_runners": 0}, 0, 8),
        ({"num_env_runners": 2, "num_envs_per_env_runner": 5}, 2, 5),
    ],
)
def test_rllibs_words_for_where_environments_are_count_in_a_run_of_sb3(given, runners, each):
    plan = rllib_plan(run(env={"n_envs": 8, "workers": "subproc"}, **given))
    assert (plan.runners, plan.envs_per_runner) == (runners, each)
    assert any("every runner has as many" in line for line in plan.said) == (plan.n_envs != 8)


def test_differences_of_meaning_are_said():
    plan = rllib_plan(
        run(n_steps=100, batch_size=64, clip_range="lin_0.2", clip_range_vf=0.2, normalize_advantage=False,
            target_kl=0.02, learning_rate="lin_0.001", rollout_buffer_kwargs={"a": 1})
    )  # fmt: skip
    text = "\n".join(plan.said)
    for word in ("100 steps are not a multiple", "clip_range stays 0.2", "clip_range_vf", "normalize_advantage",
                 "target_kl", "rollout_buffer_kwargs"):  # fmt: skip
        assert word in text
    assert plan.settings["lr"] == [[0, 0.001], [100_000, 0.0]]  # linear to the end of the training


def test_dqn_makes_as_many_updates_as_sb3():
    plan = rllib_plan(
        run("DQN", env={"n_envs": 2, "workers": "subproc"}, train_freq=16, gradient_steps=8, batch_size=64,
            buffer_size=5_000, learning_starts=500, exploration_fraction=0.2, exploration_final_eps=0.1,
            target_update_interval=250)
    )  # fmt: skip
    assert (plan.runners, plan.envs_per_runner, plan.replay_capacity) == (2, 1, 5_000)
    assert (plan.rollout_fragment_length, plan.steps_per_round, plan.updates_per_round) == (16, 32, 8)
    # RLlib: updates = intensity / (batch / (fragment x envs per runner x (runners + 1))) = 8
    assert plan.settings["training_intensity"] / (64 / (16 * 1 * 3)) == pytest.approx(8)
    assert plan.settings["epsilon"] == [[0, 1.0], [20_000, 0.1]]
    assert plan.settings["target_network_update_freq"] == 250
    assert plan.settings["num_steps_sampled_before_learning_starts"] == 500
    assert plan.settings["replay_buffer_config"] == {"type": "EpisodeReplayBuffer", "capacity": 5_000}
    assert (plan.settings["double_q"], plan.settings["dueling"]) == (False, False)


@pytest.mark.parametrize(
    ("bad", "words"),
    [
        (run("A2C"), "A2C cannot be trained with backend rllib"),
        (run(env={"normalize": True}), "env.normalize"),
        (run(use_sde=True), "use_sde"),
        (run("DQN", train_freq=[1, "episode"]), "in episodes"),
        (run("SAC", policy={"kwargs": {"n_critics": 5}}), "one critic or two"),
        (run("DQN", exploration_fraction=None), "exploration_fraction is null"),
    ],
)
def test_what_cannot_be_kept_is_refused_in_one_line(bad, words):
    with pytest.raises(BadInput, match=words) as refused:
        rllib_plan(bad)
    assert "\n" not in str(refused.value)
