"""What a check must not claim: cases in which it was wrong about files of other people."""

from pathlib import Path

from legroom.checking.check import check
from legroom.model.machine import Machine
from legroom.model.rule import Checked
from legroom.model.verdict import Budget
from legroom.units import GIB

MACHINE = Machine(32 * GIB, None, 32 * GIB, 0, GIB, cores=8, versions={})


def look(file: Path, text: str) -> Checked:
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(text)
    budget = Budget(32 * GIB, 16 * GIB, ram_origin="given", vram_origin="given")
    (checked,) = check([str(file)], machine=MACHINE, budget=budget)
    return checked


def names(checked: Checked) -> set[str]:
    return {finding.name for finding in checked.findings}


def test_settings_beside_those_of_the_zoo_are_for_another_program(tmp_path: Path) -> None:
    entry = "Pendulum-v1:\n  policy: MlpPolicy\n  n_timesteps: 102400\n  n_steps: 1024\n"
    own = look(tmp_path / "trpo.yml", entry + "  reward_threshold: -3.0\n  net_arch: medium\n  lr_schedule: linear\n")
    assert "invalid-value" not in names(own)
    slip = look(tmp_path / "ppo.yml", entry + "  bacth_size: 64\n")
    assert [f.message for f in slip.findings if f.name == "invalid-value"] == [
        "unknown key 'bacth_size' in hyperparams"
    ]


def test_results_of_a_search_by_environment_are_no_entries(tmp_path: Path) -> None:
    text = "Ant-v5:\n  trial_number: 33\n  value: 993.7\n  params: {n_steps: 256, n_envs: 10}\n  comment: best\n"
    checked = look(tmp_path / "ppo.yml", text)
    assert checked.findings == () and checked.totals == ()


def test_policy_kwargs_may_be_none(tmp_path: Path) -> None:
    script = "from stable_baselines3 import SAC\nkwargs = None\nSAC('MlpPolicy', 'Pendulum-v1', policy_kwargs=kwargs)\n"
    assert "invalid-value" not in names(look(tmp_path / "train.py", script))


def test_a_few_numbers_that_try_the_gpu_leave_no_doubt(tmp_path: Path) -> None:
    script = "import torch\nfrom stable_baselines3 import PPO\n{}\nPPO('MlpPolicy', 'CartPole-v1').learn(2048)\n"
    assert "vram-exceeded" not in names(look(tmp_path / "a.py", script.format("torch.ones(10).cuda()")))
    assert "vram-exceeded" in names(look(tmp_path / "b.py", script.format("torch.ones(2**20, size).cuda()")))


def test_a_number_of_a_module_that_is_not_there_is_not_known(tmp_path: Path) -> None:
    script = """
import config
from stable_baselines3 import PPO
net = dict(net_arch=config.NET_ARCH)
PPO("MlpPolicy", "CartPole-v1", learning_rate=config.LEARNING_RATE, n_steps=config.STEPS, policy_kwargs=net).learn(1e5)
"""
    checked = look(tmp_path / "train.py", script)
    assert not names(checked) & {"invalid-value", "timesteps-not-multiple"}
    (tmp_path / "config.py").write_text("LEARNING_RATE = '1 / 3'\nSTEPS = -8\nNET_ARCH = [64]\n")
    found = [f.message for f in look(tmp_path / "train.py", script).findings if f.name == "invalid-value"]
    assert [message.partition(" ")[0] for message in found] == ["hyperparams.learning_rate", "hyperparams.n_steps"]


def test_a_subclass_has_arguments_of_its_own(tmp_path: Path) -> None:
    script = """
from stable_baselines3 import DQN
class Bootstrapped(DQN):
    {}
Bootstrapped("MlpPolicy", "CartPole-v1", heads=10, lr=1e-3, batch_size=-3)
"""
    own = look(tmp_path / "own.py", script.format("def __init__(self, policy, env, heads=1, **kwargs): ..."))
    assert [f.message for f in own.findings if f.name == "invalid-value"] == [
        "hyperparams.batch_size must be at least 1, got -3"
    ]
    inherited = look(tmp_path / "inherited.py", script.format("pass"))
    assert "unknown key 'lr' in hyperparams" in [f.message for f in inherited.findings]


def test_arguments_that_are_like_none_may_be_those_of_another_release(tmp_path: Path) -> None:
    script = "from stable_baselines3 import PPO\nPPO('MlpPolicy', 'CartPole-v1', n_steps=100, {}=3).learn(12345)\n"
    fork = look(tmp_path / "fork.py", script.format("gumbel_temperature"))
    assert not names(fork) & {"invalid-value", "timesteps-not-multiple", "minibatch-does-not-divide"}
    slip = look(tmp_path / "slip.py", script.format("n_epoch"))
    assert names(slip) >= {"invalid-value", "timesteps-not-multiple"}


def test_a_subclass_may_have_another_order_of_arguments(tmp_path: Path) -> None:
    script = """
from stable_baselines3 import PPO
class Mine(PPO):
    def __init__(self, env, horizon):
        super().__init__("MlpPolicy", env, n_steps=horizon)
Mine("CartPole-v1", 256).learn(10_000)
"""
    assert "timesteps-not-multiple" not in names(look(tmp_path / "train.py", script))


def test_another_programs_settings_have_an_algo_and_hyperparams_too(tmp_path: Path) -> None:
    own = "algo: {}\nenv: CartPole-v1\ntotal_timesteps: 100000\nhyperparams:\n  n_steps: 128\n  {}: 64\n"
    for algo, key in (("mappo", "batch_size"), ("PPO", "hidden_sizes"), ("PPO", "lr"), ("PPO", "n_epoch: 3\n  nsteps")):
        checked = look(tmp_path / "run.yaml", own.format(algo, key))
        assert (checked.findings, checked.understanding.kind) == ((), "not understood")
    slip = look(tmp_path / "run.yaml", own.format("PPO", "bacth_size"))
    assert "unknown key 'bacth_size' in hyperparams" in [f.message for f in slip.findings]


def test_a_table_of_environments_is_the_zoos_only_with_its_policies(tmp_path: Path) -> None:
    entry = "CartPole-v1:\n  n_timesteps: 100000\n  n_steps: 32\n  batch_size: 256\n"
    other = look(tmp_path / "ppo.yml", entry)
    assert (other.findings, other.understanding.kind) == ((), "not understood")
    assert "minibatch-exceeds-rollout" in names(look(tmp_path / "ppo.yml", entry + "  policy: MlpPolicy\n"))


def test_a_schedule_of_a_zoo_like_program_may_have_another_name(tmp_path: Path) -> None:
    entry = "CartPole-v1:\n  policy: MlpPolicy\n  n_timesteps: 100000\n  learning_rate: {}\n"
    assert "invalid-value" not in names(look(tmp_path / "ppo.yml", entry.format("cos_3e-4")))
    assert "invalid-value" in names(look(tmp_path / "ppo.yml", entry.format("fast")))


def test_a_limit_that_is_lifted_says_nothing_about_episodes(tmp_path: Path) -> None:
    script = "import gymnasium as gym\nfrom stable_baselines3 import PPO\nenv = gym.make('CartPole-v1'){}\n"
    script += "PPO('MlpPolicy', env)\n"
    assert "episode-shorter-than-rollout" in names(look(tmp_path / "a.py", script.format("")))
    for lifted in (".unwrapped", ".env", "\nenv._max_episode_steps = 9_000"):
        assert "episode-shorter-than-rollout" not in names(look(tmp_path / "b.py", script.format(lifted)))


def test_a_function_that_nobody_knows_may_make_several_environments(tmp_path: Path) -> None:
    script = """
import gymnasium as gym
{}
from stable_baselines3 import PPO
PPO("MlpPolicy", {}, n_steps=16, batch_size=512)
"""
    rule, own = "minibatch-exceeds-rollout", "gym.make('Pendulum-v1')"
    assert rule in names(look(tmp_path / "a.py", script.format("from mine import Cut", f"Cut({own})")))
    for imports, env in (
        ("from mine import copies", f"copies({own}, 8)"),
        ("import envpool", "envpool.make('Ant-v4', num_envs=8)"),
        ("import supersuit as ss", f"ss.concat_vec_envs_v1({own}, 8)"),
    ):
        assert rule not in names(look(tmp_path / "b.py", script.format(imports, env)))


def test_settings_with_sb3s_words_are_sb3s_only_where_they_say_so(tmp_path: Path) -> None:
    own = "algorithm: PPO\nn_steps: 100\nn_epochs: 10\nclip_range: 0.2\ngae_lambda: 0.9\nent_coef: 0.0\nn_envs: 3\n"
    own += "total_timesteps: 100000\n"
    checked = look(tmp_path / "own.yaml", own)
    assert (checked.findings, checked.understanding.kind) == ((), "not understood")
    for said in ("policy: MlpPolicy\n", "library: stable-baselines3\n"):
        assert "timesteps-not-multiple" in names(look(tmp_path / "sb3.yaml", own + said))


def test_a_replay_that_finds_the_next_observation_one_row_later_stores_frames_half_as_often(tmp_path: Path) -> None:
    entry = "atari:\n  policy: CnnPolicy\n  frame_stack: 4\n  buffer_size: 10000\n  n_timesteps: 10000000\n"
    entry += "  env_wrapper: stable_baselines3.common.atari_wrappers.AtariWrapper\n"
    shared = look(tmp_path / "dqn.yml", entry + "  optimize_memory_usage: true\n")
    (said,) = [f.message for f in shared.findings if f.name == "stacked-frames-stored"]
    assert said.endswith("stored 4 times: 4 frames per observation; 269.2 MiB, of which 67.3 MiB are different frames")
    (said,) = [f.message for f in look(tmp_path / "dqn.yml", entry).findings if f.name == "stacked-frames-stored"]
    assert "stored 8 times" in said and said.endswith("538.3 MiB, of which 67.3 MiB are different frames")
