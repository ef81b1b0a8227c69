"""`legroom fit`, `train --fit`, `check` and `explain` as people and scripts call them."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
from tests.cli.in_process import legroom

from legroom.installing import install_command

GIB = 1 << 30
CARTPOLE = """
algo: PPO
env: {id: CartPole-v1, n_envs: 4, workers: subproc}
hyperparams: {n_steps: 64, batch_size: 64, n_epochs: 1}
total_timesteps: 512
"""


def fit_json(*arguments: str, code: int = 0) -> dict:
    done = legroom("fit", *arguments, "--json", "--mode", "arithmetic")
    assert done.returncode == code, done.stderr
    return json.loads(done.stdout)


def test_fit_says_what_was_turned_at_which_price_and_what_came_out() -> None:
    plan = fit_json("mine:full", "--ram", "8GiB", "--vram", "6GiB")
    assert (plan["legroom"], plan["fits"]) == (1, True)
    assert (plan["budget"]["ram"], plan["budget"]["vram"]) == (8 * GIB, 6 * GIB)
    assert plan["before"]["host"]["peak"] > 200 * GIB
    assert plan["after"]["host"]["band"][1] <= 8 * GIB
    assert plan["after"]["gpu"]["band"][1] <= 6 * GIB
    assert {knob["price"] for knob in plan["knobs"]} <= {"free", "slower", "changes-learning"}
    assert plan["run"]["memory"]["rollout"] == "lean"


def test_a_fitted_file_is_predicted_to_fit(tmp_path: Path) -> None:
    fitted = tmp_path / "fitted.yaml"
    done = legroom("fit", "gameboy:default", "--ram", "4GiB", "--mode", "arithmetic", "-o", str(fitted))
    assert done.returncode == 0, done.stderr
    assert f"legroom train {fitted}" in done.stdout
    assert "# slower: was left out" in fitted.read_text()
    assert legroom("predict", str(fitted), "--ram", "4GiB", "--mode", "arithmetic").returncode == 0


def test_nothing_fits_is_exit_code_1_says_what_is_needed_and_writes_no_file(tmp_path: Path) -> None:
    done = legroom("fit", "mine:full", "--ram", "100MiB", "--mode", "arithmetic", "-o", str(tmp_path / "fitted.yaml"))
    assert done.returncode == 1
    assert done.stdout.startswith("Does not fit 100.0 MiB of RAM: needs ")
    assert not (tmp_path / "fitted.yaml").exists()
    assert fit_json("mine:full", "--ram", "100MiB", code=1)["needed"]["host"] > 100 << 20


def test_a_bare_workload_recommends_one_of_its_named_runs_first() -> None:
    plan = fit_json("mine", "--ram", "8GiB")
    assert plan["recommended"] == plan["run"]["name"] == "mine:full"  # by what leaves its learning alone
    assert {knob["price"] for knob in plan["knobs"]} <= {"free", "slower"}
    assert plan["command"] == "legroom train mine:full --fit --ram 8GiB"
    assert [named["fits"] for named in plan["named"]] == [False, False, True, True]


def test_what_a_smaller_run_costs_in_learning_is_said_and_how_to_train_the_full_one() -> None:
    plan = fit_json("mine", "--ram", "600MiB")
    assert plan["recommended"] in ("mine:memory_optimized", "mine:ultra_light")
    why, cost = plan["why"]
    assert "mine:full would have to learn otherwise" in why or "mine:full, " in why
    assert (
        cost.startswith("what it costs beside mine:full: ")
        and "env.grid data -> [" in cost
        and "n_steps 2048 -> " in cost
    )
    assert plan["instead"]["run"]["name"] == "mine:full"
    done = legroom("fit", "mine", "--ram", "600MiB", "--mode", "arithmetic")
    text = " ".join(done.stdout.split())  # however it is wrapped
    assert f"Recommended: {plan['command']}" in text
    assert "to train mine:full in the same memory: legroom train mine:full --fit --ram 600MiB" in text


def test_a_table_by_host_memory_says_what_a_single_size_would() -> None:
    """As --tiers for GPUs; a row is the recommendation of its size."""
    rows = fit_json("mine", "--ram", "8GiB,600MiB")["tiers"]
    assert [row["ram"] for row in rows] == [600 << 20, 8 << 30]
    for row, size in zip(rows, ("600MiB", "8GiB"), strict=True):
        one = fit_json("mine", "--ram", size)
        assert (row["name"], row["after"], row["knobs"]) == (one["recommended"], one["after"], one["knobs"])
    text = legroom("fit", "gameboy:default", "--ram", "1GiB,4GiB,16GiB", "--mode", "arithmetic").stdout
    assert "gameboy:default by host memory" in text and "16.0 GiB" in text
    refused = legroom("fit", "mine", "--ram", "8GiB,16GiB", "-o", "x.yaml")
    assert refused.returncode == 2 and "--ram 8GiB,16GiB is a table" in refused.stderr


def test_tiers_alone_are_the_usual_cards_and_what_binds_on_each() -> None:
    rows = fit_json("robot:default", "--ram", "32GiB", "--tiers")["tiers"]
    assert len(rows) == 7 and {row["bound_by"] for row in rows} == {"env steps per update"}
    by_memory = {row["card"]: row["num_envs_by_memory_alone"] for row in rows}
    assert by_memory["GeForce RTX 4060"] < by_memory["Tesla T4"] < by_memory["H100 80GB"]


def test_tiers_are_a_table_by_gpu_memory() -> None:
    rows = fit_json("gameboy:default", "--tiers", "2,8,24", "--ram", "32GiB")["tiers"]
    assert [row["vram"] // GIB for row in rows] == [2, 8, 24]
    assert all(row["fits"] and row["after"]["gpu"]["band"][1] <= row["vram"] for row in rows)
    assert rows[0]["micro_batch"] < 2048
    assert rows[2]["micro_batch"] is None


def test_grow_uses_what_is_free() -> None:
    plan = fit_json("gameboy:default", "--ram", "32GiB", "--grow")
    assert plan["run"]["env"]["n_envs"] > 2
    assert 0.85 * 32 * GIB < plan["after"]["host"]["band"][1] <= 32 * GIB


@pytest.mark.slow
def test_train_fit_trains_the_plan_without_a_file_in_between(tmp_path: Path) -> None:
    (tmp_path / "run.yaml").write_text(CARTPOLE)
    need = json.loads(legroom("predict", str(tmp_path / "run.yaml"), "--json").stdout)["runs"][0]
    ram = str(need["with_free_savings"]["host"]["band"][1] - (1 << 20))

    def train(*arguments: str) -> subprocess.CompletedProcess[str]:  # a process of its own: what it takes counts
        command = [sys.executable, "-m", "legroom", "train", "run.yaml", *arguments, "--ram", ram]
        return subprocess.run(command, capture_output=True, text=True, check=False, cwd=tmp_path)

    refused = train("--out", "no")
    assert refused.returncode == 1
    assert "--fit" in refused.stderr
    done = train("--fit", "--out", "out", "--json")
    assert done.returncode == 0, done.stderr
    assert "fitted with" in done.stderr
    outcome = json.loads(done.stdout)
    assert outcome["status"] == "finished"
    assert outcome["attempts"][0]["knobs"]


def test_explain_reads_standard_input_and_says_when_it_knows_nothing() -> None:
    text = (
        "numpy._core._exceptions._ArrayMemoryError: Unable to allocate 105. GiB for an array with shape "
        "(2048, 4, 17, 49, 71, 58) and data type float32"
    )
    told = json.loads(legroom("explain", "-", "--json", stdin=text).stdout)
    assert (told["kind"], told["shape"], told["dtype"]) == ("host-array", [2048, 4, 17, 49, 71, 58], "float32")
    assert told["requested"] == 105 * GIB
    assert legroom("explain", "-", stdin="all is well\n").returncode == 1


def test_check_finds_what_the_five_documents_got_wrong(tmp_path: Path) -> None:
    (tmp_path / "constants.py").write_text(
        "NUM_ENVS = 2\nEP_LENGTH = 8192\nBATCH_SIZE = 2048\nSAVE_REPLAY_BUFFER = True\n"
    )
    done = legroom("check", str(tmp_path / "constants.py"), "--like", "gameboy:default", "--json")
    names = {finding["name"] for finding in json.loads(done.stdout)["findings"]}
    assert "no-effect" in names
    assert "minibatch-exceeds-rollout" not in names  # 2048 of 16,384
    robot = json.loads(legroom("check", "robot:gpu_8gb", "--json").stdout)["findings"]
    assert [f["severity"] for f in robot if f["name"] == "brax-divisibility"] == ["error"]


SCRIPT = """
import gymnasium as gym
import numpy as np
from stable_baselines3 import PPO


class Line(gym.Env):
    observation_space = gym.spaces.Box(-1, 1, (3,), np.float32)
    action_space = gym.spaces.Discrete(2)


PPO("MlpPolicy", Line(), n_steps=64, batch_size=64).learn(512)
"""


def test_a_fitted_script_names_its_environment_by_the_scripts_file(tmp_path: Path) -> None:
    script, fitted = tmp_path / "mine.py", tmp_path / "fitted.yaml"
    script.write_text(SCRIPT)
    done = legroom("fit", str(script), "--ram", "2GiB", "--trust", "-o", str(fitted))
    assert done.returncode == 0, done.stderr
    assert f"train it with: legroom train {fitted}" in done.stdout
    assert f"id: {script}:Line" in fitted.read_text()


def test_a_run_without_an_environment_is_refused_at_once_with_the_way(tmp_path: Path) -> None:
    run = tmp_path / "run.yaml"
    spaces = "{observation: {type: box, shape: [3]}, action: {type: discrete, n: 2}}"
    run.write_text(f"algo: PPO\nenv: {{spaces: {spaces}}}\ntotal_timesteps: 512\n")
    done = legroom("train", str(run), "--out", str(tmp_path / "run"))
    assert (done.returncode, len(done.stderr.splitlines())) == (2, 1)
    assert "names no environment (set env.id to package.module:Class, or run your own program" in done.stderr
    assert not (tmp_path / "run").exists()
    done = legroom("fit", str(run), "--ram", "2GiB", "--mode", "arithmetic")
    assert "legroom fit --ram 2GiB -- python train.py" in done.stdout and "legroom train" not in done.stdout


@pytest.mark.parametrize("command", ["train", "sweep"])
def test_a_package_of_the_workload_that_is_missing_is_told_before_anything_is_done(
    command: str, tmp_path: Path, monkeypatch
) -> None:
    monkeypatch.setattr("legroom.extras.find_spec", lambda name: None if name == "scipy" else object())
    more = ["--param", "seed=1,2"] if command == "sweep" else []
    done = legroom(command, "mine:ultra_light", *more, "--timesteps", "64", "--out", str(tmp_path / "run"))
    assert done.returncode == 3
    assert done.stderr.splitlines()[-1] == (
        f"legroom: training mine:ultra_light needs scipy, which is not installed ({install_command('mine', 'scipy')})"
    )
    assert command == "sweep" or not (tmp_path / "run").exists()


def test_fit_says_which_package_training_will_need(monkeypatch) -> None:
    monkeypatch.setattr("legroom.extras.find_spec", lambda name: None if name == "scipy" else object())
    done = legroom("fit", "mine:ultra_light", "--ram", "8GiB", "--mode", "arithmetic")
    assert done.returncode == 0 and "needs scipy, which is not installed" in done.stdout.splitlines()[-1]
