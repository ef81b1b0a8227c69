"""What a check must not claim: cases in which it was wrong about files of other people."""

from pathlib import Path

from legroom.checking.check import check
from legroom.model.checked import Checked
from legroom.model.machine import Machine
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


def test_arguments_that_a_function_hands_on_under_another_name_may_be_read_there(tmp_path: Path) -> None:
    script = """
import argparse
from stable_baselines3 import PPO
from elsewhere import get_paths

def run(cfg):
    folder = get_paths(cfg)
    PPO("MlpPolicy", "CartPole-v1").learn(cfg.steps)

parser = argparse.ArgumentParser()
parser.add_argument("--steps", type=int, default=2048)
parser.add_argument("--model-name", default="a")
config = parser.parse_args()
run(config)
"""
    assert "unused-key" not in names(look(tmp_path / "train.py", script))
    assert "unused-key" in names(look(tmp_path / "seen.py", script.replace("get_paths(cfg)", "cfg.steps")))
