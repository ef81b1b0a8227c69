"""Rules about runs: each finds its mistake at the line where it stands, and leaves what is right alone."""

from dataclasses import replace
from pathlib import Path
from textwrap import dedent

import pytest

from legroom.checking.check import check
from legroom.model.machine import Gpu, Machine
from legroom.model.verdict import Budget
from legroom.units import GIB

MACHINE = Machine(
    ram=32 * GIB, limit=None, available=32 * GIB, swap=0, shm=GIB, cores=8, versions={"stable-baselines3": "2.9.2"}
)
CONFIGS = Path(__file__).parent / "configs"
SHIPPED = (
    "mine:ultra_light", "mine:memory_optimized", "mine:small", "gameboy:default", "ninja:default", "ninja:parallel",
    "fire:low", "fire:medium", "fire:original", "robot:default", "robot:production", "robot:quick",
)  # fmt: skip


def look(path, *, ram=32 * GIB, vram=None, machine=MACHINE, **options):
    budget = Budget(ram, vram, ram_origin="given", vram_origin="given" if vram else "")
    return check([str(path)], machine=machine, budget=budget, **options)


def findings(tmp_path, text, name="run.yaml", **options):
    file = tmp_path / name
    file.write_text(dedent(text))
    return [finding for each in look(file, **options) for finding in each.findings]


def only(found, name):
    return [finding for finding in found if finding.name == name]


def ppo(hyperparams="", env="id: CartPole-v1", rest=""):
    return f"algo: PPO\nenv: {{{env}}}\nhyperparams: {{{hyperparams}}}\n{rest}\n"


IMAGES = (
    "spaces: {observation: {type: box, shape: [84, 84, 4], dtype: uint8}, action: {type: discrete, n: 4}}, n_envs: %d"
)

# rule, a file that has the mistake, the line it stands in, the same file put right
CASES = [
    ("invalid-value", ppo("batch_size: -3"), 3, ppo("batch_size: 64")),
    ("invalid-value", ppo("bach_size: 64"), 3, ppo("batch_size: 64")),
    ("unsupported-actions", "algo: SAC\nenv: {id: CartPole-v1}", 1, "algo: SAC\nenv: {id: Pendulum-v1}"),
    (
        "policy-does-not-match",
        "algo: PPO\nenv: {id: CartPole-v1}\npolicy: {name: CnnPolicy}",
        3,
        "algo: PPO\nenv: {id: CartPole-v1}",
    ),
    ("rollout-too-small", ppo("n_steps: 1"), 3, ppo("n_steps: 2, batch_size: 2")),
    ("minibatch-exceeds-rollout", ppo("n_steps: 128, batch_size: 256"), 3, ppo("n_steps: 256, batch_size: 256")),
    (
        "minibatch-exceeds-rollout",
        ppo("n_steps: 128, batch_size: 2048", "id: CartPole-v1, n_envs: 4"),
        3,
        ppo("n_steps: 128, batch_size: 512", "id: CartPole-v1, n_envs: 4"),
    ),
    ("minibatch-does-not-divide", ppo("n_steps: 1000"), 3, ppo("n_steps: 1000, batch_size: 50")),
    (
        "optimize-memory-refused",
        "algo: DQN\nenv: {id: CartPole-v1}\nhyperparams: {optimize_memory_usage: true}",
        3,
        "algo: DQN\nenv: {id: CartPole-v1}\nhyperparams:\n  optimize_memory_usage: true\n"
        "  replay_buffer_kwargs: {handle_timeout_termination: false}",
    ),
    ("no-effect", ppo(rest="memory: {replay: lean}"), 4, ppo(rest="memory: {rollout: lean}")),
    ("no-effect", ppo("buffer_size: 1000"), 3, ppo()),
    ("no-effect", ppo(rest="checkpoint: {replay_buffer: true}"), 4, ppo(rest="checkpoint: {replay_buffer: false}")),
    (
        "no-effect",
        "algo: SAC\nenv: {id: Pendulum-v1}\nmemory: {micro_batch: 64}",
        3,
        "algo: DQN\nenv: {id: CartPole-v1}\nmemory: {micro_batch: 16}",
    ),
    (
        "fork-workers",
        ppo(env="id: CartPole-v1, n_envs: 4, workers: subproc, start_method: fork"),
        2,
        ppo(env="id: CartPole-v1, n_envs: 4, workers: subproc, start_method: spawn"),
    ),
    ("episode-shorter-than-rollout", ppo("n_steps: 2048"), 3, ppo("n_steps: 500, batch_size: 50")),
    ("timesteps-not-multiple", ppo(rest="total_timesteps: 10_000"), 4, ppo(rest="total_timesteps: 20_480")),
    (
        "default-eval-envs",
        "backend: brax\nalgo: PPO\nenv: {id: ant, n_envs: 64}",
        3,
        "backend: brax\nalgo: PPO\nenv: {id: ant, n_envs: 64}\neval: {n_envs: 16}",
    ),
    (
        "brax-sac-replay-default",
        "backend: brax\nalgo: SAC\nenv: {id: ant, n_envs: 64}\ntotal_timesteps: 1_000_000",
        4,
        "backend: brax\nalgo: SAC\nenv: {id: ant, n_envs: 64}\nhyperparams: {max_replay_size: 100_000}\n"
        "total_timesteps: 1_000_000",
    ),
    (
        "brax-devices",
        "backend: brax\nalgo: PPO\nenv: {id: ant, n_envs: 1000}\nhyperparams:\n  max_devices_per_host: 3",
        3,
        "backend: brax\nalgo: PPO\nenv: {id: ant, n_envs: 1024}\nhyperparams:\n  max_devices_per_host: 4",
    ),
    (
        "xla-preallocation",
        "backend: brax\nalgo: PPO\nenv: {id: ant, n_envs: 64, workers: subproc}\nmemory: {xla_preallocate: true}",
        4,
        "backend: brax\nalgo: PPO\nenv: {id: ant, n_envs: 64}\nmemory: {xla_preallocate: true}",
    ),
]  # fmt: skip


@pytest.mark.parametrize(("name", "wrong", "line", "right"), CASES, ids=[f"{c[0]}-{i}" for i, c in enumerate(CASES)])
def test_rule_finds_its_mistake_at_its_line_and_nothing_when_it_is_put_right(tmp_path, name, wrong, line, right):
    found = only(findings(tmp_path, wrong), name)
    assert [finding.line for finding in found] == [line], found
    assert only(findings(tmp_path, right), name) == []


@pytest.mark.parametrize("run", SHIPPED)
def test_shipped_runs_have_neither_errors_nor_warnings(run):
    (checked,) = look(run)
    assert [f for f in checked.findings if f.severity != "info"] == []


@pytest.mark.parametrize(
    "file", ["ppo.yml", "dqn.yml", "sac.yml", "brax_ok.yaml", "run_ok.yaml", "constants_ok.py"]
)  # fmt: skip
def test_correct_configurations_have_neither_errors_nor_warnings(file):
    (checked,) = look(CONFIGS / file)
    assert [f for f in checked.findings if f.severity != "info"] == []
    assert len(checked.totals) > 0


def test_a_run_in_perfect_order_has_no_finding_at_all():
    (checked,) = look(CONFIGS / "run_ok.yaml")
    assert checked.findings == ()
    assert ("total of 1,600,000", "exactly 200 iterations of 8,000") in checked.fine


# 1024 steps x 8 envs x 84*84*4 B = 231,211,008 B = 0.215 GiB; as float32 four times that; 16x as many steps below


def test_float32_rollout_of_an_old_sb3(tmp_path):
    text = ppo("n_steps: 16384, batch_size: 512", IMAGES % 8, "policy: {name: CnnPolicy}")
    assert only(findings(tmp_path, text), "float32-rollout") == []
    old = replace(MACHINE, versions={"stable-baselines3": "2.3.2"})
    (found,) = only(findings(tmp_path, text, machine=old), "float32-rollout")
    assert "3.45 GiB → 13.78 GiB" in found.message  # 16384 x 8 x 28,224 B, and four times that


def test_flatten_copy_rollout_and_replay_against_ram(tmp_path):
    text = ppo("n_steps: 16384, batch_size: 512", IMAGES % 8, "policy: {name: CnnPolicy}")  # 3.45 GiB stored
    names = {"flatten-copy-exceeds-ram", "rollout-exceeds-ram"}

    def about_ram(ram):
        return {f.name for f in findings(tmp_path, text, ram=ram)} & names

    assert about_ram(12 * GIB) == set()
    assert about_ram(6 * GIB) == {"flatten-copy-exceeds-ram"}
    assert about_ram(3 * GIB) == {"rollout-exceeds-ram"}
    lean = f"{text}memory: {{rollout: lean}}\n"
    assert not {f.name for f in findings(tmp_path, lean, ram=6 * GIB)} & names


def test_replay_says_when_it_dies(tmp_path):
    env = IMAGES % 1
    text = f"algo: DQN\nenv: {{{env}}}\npolicy: {{name: CnnPolicy}}\nhyperparams:\n  buffer_size: 1_000_000\n"
    (found,) = only(findings(tmp_path, text), "replay-exceeds-ram")
    assert found.line == 5
    assert "52.59 GiB when full" in found.message  # 1e6 x (2 x 28,224 + 8 + 4 + 4 + 4) B
    assert "60%" in found.message or "59%" in found.message  # (32 GiB less the libraries) / 52.59 GiB
    # the same buffer in a run that ends long before it is full takes a tenth
    short = f"{text}total_timesteps: 100_000\n"
    assert only(findings(tmp_path, short), "replay-exceeds-ram") == []


def test_vram_by_the_band(tmp_path):
    text = ppo("batch_size: 2048", IMAGES % 8, "policy: {name: CnnPolicy}")
    assert only(findings(tmp_path, text, vram=16 * GIB), "vram-exceeded") == []
    (found,) = only(findings(tmp_path, text, vram=GIB // 2), "vram-exceeded")
    assert found.severity == "error"
    told = only(findings(tmp_path, text.replace("batch_size", "n_steps: 2048, batch_size"), vram=GIB), "no-effect")
    assert [(f.severity, "n_steps does not touch GPU memory" in f.message) for f in told] == [("info", True)]


def test_stacked_frames_and_wide_observations_say_what_they_cost(tmp_path):
    image = "observation: {type: box, shape: [84, 84, 1], dtype: float32, low: 0, high: 255}"
    text = (
        f"algo: DQN\nenv:\n  frame_stack: 4\n  spaces: {{{image}, action: {{type: discrete, n: 4}}}}\n"
        "hyperparams: {buffer_size: 10_000}\n"
    )
    found = findings(tmp_path, text)
    (stacked,) = only(found, "stacked-frames-stored")
    assert (stacked.line, "stored 8 times" in stacked.message) == (3, True)
    (wide,) = only(found, "wide-observations")
    assert "2.10 GiB" in wide.message  # 10,000 x 2 x 84 x 84 x 4 x 4 B
    assert "538.3 MiB as uint8" in wide.message
    narrow = findings(tmp_path, text.replace("dtype: float32, low: 0, high: 255", "dtype: uint8"))
    assert only(narrow, "wide-observations") == []
    unbounded = findings(tmp_path, text.replace(", low: 0, high: 255", ""))
    assert only(unbounded, "wide-observations") == []  # no word where the values are not known


def test_under_used_machine_only_where_there_are_cores_or_another_machine_is_meant(tmp_path):
    text = ppo("n_steps: 2048", "id: CartPole-v1, n_envs: 2, workers: light")
    assert len(only(findings(tmp_path, text), "under-used-machine")) == 1
    assert only(findings(tmp_path, text, ram=GIB // 2), "under-used-machine") == []  # it uses most of that
    many = text.replace("n_envs: 2", "n_envs: 8")
    assert only(findings(tmp_path, many), "under-used-machine") == []
    assert only(findings(tmp_path, "algo: SAC\nenv: {id: Pendulum-v1, n_envs: 1}\n"), "under-used-machine") == []


def test_xla_preallocation_on_a_card_that_is_half_taken(tmp_path):
    text = "backend: brax\nalgo: PPO\nenv: {id: ant, n_envs: 64}\neval: {n_envs: 16}\n"
    taken = Machine(32 * GIB, None, 32 * GIB, 0, GIB, gpus=(Gpu("card", 8 * GIB, 4 * GIB),))
    free = Machine(32 * GIB, None, 32 * GIB, 0, GIB, gpus=(Gpu("card", 8 * GIB, 8 * GIB),))
    assert len(only(findings(tmp_path, text, machine=taken, vram=4 * GIB), "xla-preallocation")) == 1
    assert only(findings(tmp_path, text, machine=free, vram=8 * GIB), "xla-preallocation") == []


def test_brax_devices_by_the_machine(tmp_path):
    text = "backend: brax\nalgo: PPO\nenv: {id: ant, n_envs: 64}\n"
    three = Machine(32 * GIB, None, 32 * GIB, 0, GIB, gpus=(Gpu("card", 8 * GIB, 8 * GIB),) * 3)
    (found,) = only(findings(tmp_path, text, machine=three, vram=8 * GIB), "brax-devices")
    assert (found.hint, found.line) == ("num_envs 63", 3)
    assert only(findings(tmp_path, text), "brax-devices") == []  # nobody knows how many there are


def test_foreign_argument_is_an_error_in_a_zoo_file_since_the_constructor_raises(tmp_path):
    text = "CartPole-v1:\n  n_timesteps: !!float 1e5\n  policy: MlpPolicy\n  buffer_size: 1000\n"
    (found,) = only(findings(tmp_path, text, name="ppo.yml"), "no-effect")
    assert (found.severity, found.line, "TypeError" in found.message) == ("error", 4, True)


def test_one_unreadable_entry_does_not_hide_the_others(tmp_path):
    text = """\
        CartPole-v1:
          policy: MlpPolicy
          policy_kwargs: "dict(net_arch=open('x'))"
        Acrobot-v1:
          policy: MlpPolicy
          n_steps: 16
          n_envs: 2
        Pendulum-v1:
          n_envs: many
          n_steps: 100
        """
    found = findings(tmp_path, text, name="ppo.yml")
    assert [f.line for f in only(found, "invalid-value")] == [3, 9]
    assert [f.line for f in only(found, "minibatch-exceeds-rollout")] == [6]  # Acrobot: 64 of 32
    # of Pendulum nobody knows how many environments there are, so nothing is said about its minibatches
    assert not [f for f in found if "Pendulum" in f.message and f.name.startswith("minibatch")]


def test_entries_that_share_their_settings_are_told_once(tmp_path):
    text = "CartPole-v1: &base\n  n_steps: 100\n  batch_size: 64\n  policy: MlpPolicy\nAcrobot-v1:\n  <<: *base\n"
    found = only(findings(tmp_path, text, name="ppo.yml"), "minibatch-does-not-divide")
    assert [f.line for f in found] == [3]


def test_a_script_of_unknown_environments_is_checked_as_far_as_it_is_known(tmp_path):
    script = """\
        import sys
        from stable_baselines3 import PPO
        from somewhere import make
        model = PPO("MlpPolicy", make(int(sys.argv[1])), n_steps=100, batch_size=64, n_epochs=10)
        other = PPO("MlpPolicy", "CartPole-v1", n_steps=100, batch_size=64)
        """
    found = only(findings(tmp_path, script, name="train.py"), "minibatch-does-not-divide")
    assert [f.line for f in found] == [5]


def test_a_default_is_told_at_the_entry_and_not_at_a_neighbour(tmp_path):
    text = "# Atari\natari:\n  policy: CnnPolicy\n  frame_stack: 4\n  learning_starts: 50000\n  env_wrapper:\n"
    text += "    - stable_baselines3.common.atari_wrappers.AtariWrapper\n"
    (found,) = only(findings(tmp_path, text, name="qrdqn.yml"), "replay-exceeds-ram")
    assert found.line == 2


def test_a_callback_of_one_of_several_models_is_not_told_of_the_others(tmp_path):
    script = """\
        from stable_baselines3 import DQN, PPO
        from stable_baselines3.common.callbacks import CheckpointCallback
        keep = CheckpointCallback(save_freq=1000, save_path="models", save_replay_buffer=True)
        DQN("MlpPolicy", "CartPole-v1").learn(100_000, callback=keep)
        %s
        """
    both = script % 'PPO("MlpPolicy", "CartPole-v1").learn(100_000)'
    assert only(findings(tmp_path, both, name="train.py"), "no-effect") == []
    one = (script % "").replace("DQN(", "PPO(")
    assert len(only(findings(tmp_path, one, name="train.py"), "no-effect")) == 1


@pytest.mark.parametrize(
    ("env", "told"),
    [
        ('gym.make("CartPole-v1", max_episode_steps=200)', "at most 200 steps"),
        ('gym.wrappers.TimeLimit(gym.make("Pendulum-v1"), max_episode_steps=80)', "at most 80 steps"),
        ("gym.wrappers.TimeLimit(Own(), max_episode_steps=80)", "at most 80 steps"),
        ("Own()", ""),
    ],
)
def test_the_length_of_an_episode_from_a_time_limit_and_silence_otherwise(tmp_path, env, told):
    script = f"""\
        import gymnasium as gym
        import numpy as np
        from stable_baselines3 import PPO
        class Own(gym.Env):
            observation_space = gym.spaces.Box(-1, 1, (3,), dtype=np.float32)
            action_space = gym.spaces.Discrete(2)
        model = PPO("MlpPolicy", {env}, n_steps=1024)
        """
    found = only(findings(tmp_path, script, name="train.py"), "episode-shorter-than-rollout")
    assert [f.line for f in found] == ([7] if told else [])
    assert all(told in f.message for f in found)
