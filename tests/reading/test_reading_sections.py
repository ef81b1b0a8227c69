"""Settings of people's own programs: read by SB3's words in them, with what was left out said; runs without a file."""

import pytest
from tests.cli import in_process

from legroom.errors import BadInput
from legroom.reading import read, read_all
from legroom.reading.reading_notes import collected_notes
from legroom.units import parse_size

NESTED = """\
training:
  algorithm: "MaskablePPO"
  hyperparameters: {n_steps: 512, batch_size: 32, n_epochs: 4, learning_rate: 0.0003}
  policy:
    net_arch: {pi: [256, 256], vf: [256, 256]}
  feature_extractor: {type: CNN3D, channels: [32, 64], output_dim: 512}
env_settings: {n_envs: 4, max_episode_steps: 1000}
schedule: {total_timesteps: 1000000, save_freq: 50000}
logging: {tensorboard: true}
"""


def test_nested_sections_are_read_and_what_is_left_is_named(tmp_path):
    file = tmp_path / "train.yaml"
    file.write_text(NESTED)
    with collected_notes() as notes:
        run = read(str(file), like="mine:full")
    assert (run.algo, run.env.n_envs, run.total_timesteps) == ("MaskablePPO", 4, 1_000_000)
    assert run.hyperparams["n_steps"] == 512 and run.hyperparams["batch_size"] == 32
    assert run.policy.kwargs["net_arch"] == {"pi": [256, 256], "vf": [256, 256]}
    assert notes[:3] == [
        "sections not read: logging",
        "not used, though they look like sizes: training.feature_extractor.channels, "
        "training.feature_extractor.output_dim",
        "WARNING: predicted with the network of mine:full (legroom_workloads.mine:Cnn3d), not with "
        "training.feature_extractor.type CNN3D",
    ]
    assert "taken from mine:full" in notes[3] and "legroom_workloads.mine:MineEnv" in notes[3]
    assert "policy.features_extractor" in notes[3]  # the network is not the file's own


def test_the_grid_in_a_file_beside_it_and_the_size_of_the_network_are_read(tmp_path):
    text = NESTED.replace("CNN3D", "CNN3DTiny")
    (tmp_path / "train_small.yaml").write_text(text)
    (tmp_path / "train_large.yaml").write_text(text)
    (tmp_path / "env_small.yaml").write_text("environment: {grid_size: {nx: 50, ny: 40, nz: 30}, block: {x: 20}}\n")
    (tmp_path / "env.yaml").write_text("world: {grid: [9, 8, 7]}\nstate: {features: 17}\n")
    for name, grid in (("small", [50, 40, 30]), ("large", [9, 8, 7])):
        with collected_notes() as notes:
            run = read(str(tmp_path / f"train_{name}.yaml"), like="mine:full")
        assert list(run.env.grid) == grid and run.env.spaces.observation.shape == (17, *grid)  # not those of mine:full
        assert run.policy.features_extractor_kwargs == {"size": "tiny"}
        said = "\n".join(notes)
        assert "CNN3DTiny is counted as legroom_workloads.mine:Cnn3d of size tiny" in said
        assert ("grid_size of env_small.yaml" if name == "small" else "world.grid of env.yaml") in notes[-1]
    with collected_notes() as notes:
        assert read(str(tmp_path / "train_small.yaml"), like="gameboy:default").env.spaces is not None
    assert "not used: training.feature_extractor.type, environment.grid_size of env_small.yaml" in notes
    (tmp_path / "env_small.yaml").write_text("grid_size: [20, 20]\n")
    with collected_notes() as notes:
        assert read(str(tmp_path / "train_small.yaml"), like="mine:full").env.grid == "data"
    assert "WARNING: predicted with a grid of data, not with grid_size of env_small.yaml [20, 20]" in notes


@pytest.mark.parametrize(
    "text",
    [
        "ppo: {rollout_steps: 128, epochs: 4}\nnetwork: {hidden: 64}\nreward: {a: 1}\nversion: 1\n",
        "raster_dir: x\ngrid_size: 50\nnum_episodes: 10\nbuffer_size: 20000\nbatch_size: 32\n",
        "agent: PPO\nlr: 0.1\nhidden: 64\nworkers: 3\n",  # nothing says whose PPO
        "unroll_length: 80\nentropy_cost: 0.01\ndiscounting: 0.99\nbatch_size: 8\nnum_actors: 4\n",  # IMPALA
    ],
)
def test_settings_of_another_program_are_not_taken_for_a_run(tmp_path, text):
    file = tmp_path / "config.yaml"
    file.write_text(text)
    with pytest.raises(BadInput, match="no algorithm and no spaces found"):
        read(str(file))


def test_a_constant_that_looks_like_a_size_and_is_not_read_is_named(tmp_path):
    file = tmp_path / "constants.py"
    file.write_text("NUM_ENVS = 2\nEP_LENGTH = 64\nOBS_SHAPE = (72, 80, 3)\nTITLE = 'x'\n")
    with collected_notes() as notes:
        read(str(file), like="gameboy:default")
    assert "the environment (legroom_workloads.gameboy:GameBoyEnv)" in notes[0]
    assert "n_envs" not in notes[0] and "n_steps" not in notes[0]  # those are the file's own, by EP_LENGTH
    assert notes[1:] == [f"read from {file}: NUM_ENVS, EP_LENGTH; not used: OBS_SHAPE (line 3), TITLE (line 4)"]


def test_constants_that_change_nothing_in_the_bill_are_listed_once(tmp_path):
    file = tmp_path / "Train.py"
    file.write_text(
        "def main():\n    N_ENVS = 4\n    BATCH_SIZE = 16\n    SIMS = 7\n    USE_ENHANCED_MODEL = True\n"
        "    MEMORY_EFFICIENT = True\n    GRADIENT_ACCUMULATION_STEPS = 2\n    N_ENVS = reset().shape[0]\n"
    )
    with collected_notes() as notes:
        run = read(str(file), like="fire:original")
    assert (run.env.n_envs, run.env.kwargs["sims"]) == (4, 7)
    unused = "USE_ENHANCED_MODEL (line 5), MEMORY_EFFICIENT (line 6), GRADIENT_ACCUMULATION_STEPS (line 7)"
    assert notes[-1] == f"read from {file}: N_ENVS, BATCH_SIZE, SIMS; not used: {unused}"
    said = "\n".join(notes)
    assert "env.n_envs is 4 by line 2; line 8 sets it at run time: reset().shape[0]" in said
    assert "32" not in said.replace(str(file), "") and said.count("MEMORY_EFFICIENT") == 1
    with pytest.raises(BadInput, match="known only when the script runs"):
        read(str(file), overrides=[("algo", "PPO")])  # nothing supplies the rest: not even a likely value is taken


def test_settings_with_one_number_for_the_grid_have_it_in_every_direction(tmp_path):
    file = tmp_path / "parallel.json"
    file.write_text('{"grid_size": 30, "num_parallel_envs": 3, "buffer_size": 900, "batch_size": 8}')
    run = read(str(file), like="fire:medium")
    assert list(run.env.grid) == [30, 30] and run.env.spaces.observation.shape == (8, 30, 30)  # fire:medium has 50x50
    file.write_text(file.read_text().replace("30", "50"))
    assert read(str(file), like="fire:medium").env.spaces.observation.shape == (8, 50, 50)


OWN_LOOP = """\
seed: 1
ppo: {num_envs: 1024, rollout_steps: 20, epochs: 4, num_minibatches: 8, gamma: 0.97, eval: {num_envs: 4}}
networks: {actor: {hidden_sizes: [512, 128]}, critic: {hidden_sizes: [64]}}
reward_weights: {alive: 1.0}
quick_verify: {ppo: {num_envs: 2}}
video: {width: 640}
"""


def test_settings_of_an_own_loop_are_read_in_the_words_of_the_run_that_completes_them(tmp_path):
    file = tmp_path / "ppo.yaml"
    file.write_text(OWN_LOOP)
    with collected_notes() as notes:
        run = read(str(file), like="robot:default")
    assert (run.backend, run.env.n_envs) == ("brax", 1024)  # the outermost: not that of the evaluation
    # 1,024 environments in 8 minibatches: 128 whole unrolls in each
    wanted = {"unroll_length": 20, "num_updates_per_batch": 4, "num_minibatches": 8, "batch_size": 128}
    assert {name: run.hyperparams[name] for name in wanted} == wanted
    assert run.policy.kwargs == {"policy_hidden_layer_sizes": [512, 128], "value_hidden_layer_sizes": [64]}
    said = "\n".join(notes)
    assert "sections not read: reward_weights, quick_verify, video" in said and "video.width" in said
    filled = next(text for text in notes if text.startswith("taken from"))
    assert "the environment (legroom_workloads.robot:RobotEnv)" in filled and "batch_size" not in filled


def test_a_file_without_settings_of_a_training_is_said_to_be_none(tmp_path):
    file = tmp_path / "compose.yaml"
    file.write_text("version: '3'\nservices: {web: {image: nginx, ports: [80]}}\nvolumes: {}\n")
    with pytest.raises(BadInput, match="no training settings found"):
        read(str(file))


def test_an_environment_of_the_files_own_does_not_get_the_spaces_of_another(tmp_path):
    file = tmp_path / "constants.py"
    file.write_text("ENV_ID = 'CartPole-v1'\nNUM_ENVS = 2\n")
    run = read(str(file), like="gameboy:default")
    assert run.env.id == "CartPole-v1" and run.env.spaces.observation.shape == (4,)


def test_settings_that_other_files_complete_are_refused(tmp_path):
    file = tmp_path / "config.yaml"
    file.write_text("defaults: [_self_, {agent: small}]\nn_envs: 3\nlogger: y\n")
    with pytest.raises(BadInput, match="name other files"):
        read(str(file), like="gameboy:default")


def test_constants_of_main_and_entries_of_a_dict_are_read(tmp_path):
    file = tmp_path / "train.py"
    file.write_text("def main():\n    N_ENVS = 16\n    BUFFER_CAP = 1_000\n    step = 0\n")
    run = read(str(file), like="fire:low")
    assert (run.env.n_envs, run.hyperparams["buffer_size"]) == (16, 1000)
    file.write_text("TIERS = {'low': {'N_ENVS': 2, 'BATCH_SIZE': 8}, 'high': {'N_ENVS': 4, 'BATCH_SIZE': 16}}\n")
    assert [one.env.n_envs for one in read_all(str(file), like="fire:low")] == [2, 4]
    assert read(f"{file}:high", like="fire:low").hyperparams["batch_size"] == 16


def test_the_program_that_reads_the_settings_is_pointed_at(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "configs").mkdir()
    (tmp_path / "configs" / "ppo.yaml").write_text(OWN_LOOP)
    (tmp_path / "train.py").write_text(
        "import argparse\nparser = argparse.ArgumentParser()\nparser.add_argument('--config', required=True)\n"
    )
    done = in_process.legroom("predict", "configs/ppo.yaml", "--ram", "8GiB")
    assert done.returncode == 2
    assert "legroom predict --ram 8GiB -- python train.py --config configs/ppo.yaml" in done.stderr
    done = in_process.legroom("predict", "train.py")
    assert "legroom predict -- python train.py --config CONFIG" in done.stderr


def test_an_algorithm_and_an_environment_are_a_run():
    run = read("PPO CartPole-v1", overrides=[("n_envs", "8")])
    assert (run.algo, run.env.id, run.env.n_envs, run.policy.name) == ("PPO", "CartPole-v1", 8, "MlpPolicy")
    assert read("dqn ALE/Pong-v5").policy.name == "CnnPolicy"
    with pytest.raises(BadInput, match="environment missing"):
        read("PPO")


@pytest.mark.parametrize("command", ["predict", "fit", "check"])
def test_every_command_takes_an_algorithm_and_an_environment(command):
    arguments = ["--mode", "arithmetic"] if command == "predict" else []
    done = in_process.legroom(command, "PPO", "CartPole-v1", "--n-envs", "8", "--ram", "16GiB", *arguments)
    assert "PPO-CartPole-v1" in done.stdout and done.returncode == 0


def test_a_size_without_a_unit_asks_for_one():
    with pytest.raises(BadInput, match="write 16GiB, or 16MiB"):
        parse_size("16", what="--ram")
    assert parse_size("17179869184") == 16 << 30
    assert parse_size(512) == 512


def test_a_number_of_environments_that_the_file_does_not_give_is_asked_for(tmp_path):
    file = tmp_path / "train.yaml"
    file.write_text(NESTED.replace("n_envs: 4, ", ""))
    with pytest.raises(BadInput, match="n_envs"):
        read(str(file))


GUIDE = {  # the sections that a guide to GPU memory shows, as they stand there
    "quick": "ppo:\n  num_envs: 256\n  batch_size: 128\n  num_timesteps: 100000\n",
    "fixed": "ppo:\n  num_envs: 512\n  batch_size: 128\n  num_minibatches: 4\n",
    "broken": "ppo: {num_envs: 1024, batch_size: 256, num_minibatches: 2}\n",
}
AS_PEOPLE_WRITE_IT = {
    "sections": (
        "env: {ctrl_dt: 0.02, terrain: flat}\ntraining: {num_timesteps: 5000, save_every: 7}\n"
        "ppo: {num_envs: 64, batch_size: 32, unroll_length: 5, entropy_cost: 0.01, discounting: 0.99,"
        " reward_scaling: 1.0, keep: 3}\nnetwork: {policy_hidden_layers: [32, 32], init: zeros}\n"
        "logging: {wandb: true}\n"
    ),
    "flat": (
        "env: ant\nnum_timesteps: 5000\nnum_envs: 64\nbatch_size: 32\nunroll_length: 5\nentropy_cost: 0.01\n"
        "discounting: 0.99\nreward_scaling: 1.0\nkeep: 3\nnetwork_factory: {policy_hidden_layer_sizes: [32, 32]}\n"
    ),
    "playground": (
        "env_name: ant\nbrax_config:\n  num_timesteps: 5000\n  num_envs: 64\n  batch_size: 32\n  unroll_length: 5\n"
        "  entropy_cost: 0.01\n  discounting: 0.99\n  reward_scaling: 1.0\n  keep: 3\n"
        "  network_factory: {policy_hidden_layer_sizes: [32, 32]}\n"
    ),
}


@pytest.mark.parametrize("form", AS_PEOPLE_WRITE_IT)
def test_a_brax_configuration_is_known_by_its_keys_and_nothing_of_it_is_replaced_in_silence(form, tmp_path):
    file = tmp_path / "ant.yaml"
    file.write_text(AS_PEOPLE_WRITE_IT[form])
    with collected_notes() as notes:
        run = read(str(file), like="robot:default")
    assert (run.backend, run.algo, run.env.n_envs, run.total_timesteps) == ("brax", "PPO", 64, 5000)
    wanted = {"batch_size": 32, "unroll_length": 5, "entropy_cost": 0.01, "discounting": 0.99, "reward_scaling": 1.0}
    assert {name: run.hyperparams[name] for name in wanted} == wanted
    assert run.policy.kwargs["policy_hidden_layer_sizes"] == [32, 32]
    filled = next(text for text in notes if text.startswith("taken from robot:default"))
    assert "entropy_cost" not in filled and "policy_hidden" not in filled
    for name in ("policy.kwargs.value_hidden_layer_sizes", "hyperparams.num_minibatches", "eval.n_envs"):
        assert name in filled
    assert "keep" in next(text for text in notes if text.startswith("not used, as brax"))


def test_keys_of_another_programs_environment_are_listed_and_left_out(tmp_path):
    file = tmp_path / "default.yaml"
    file.write_text(AS_PEOPLE_WRITE_IT["sections"])
    with collected_notes() as notes:
        run = read(str(file), like="robot:default", overrides=[("num_envs", "512")])
    assert (run.env.id, run.env.kwargs, run.env.n_envs) == ("legroom_workloads.robot:RobotEnv", {}, 512)
    said = "\n".join(notes)
    assert "ctrl_dt, terrain" in said and "sections not read: logging" in said
    assert "training.save_every, network.init, ppo.keep" in said


def test_what_brax_fills_in_is_listed_where_no_other_run_does(tmp_path):
    file = tmp_path / "quick.yaml"
    file.write_text(GUIDE["quick"] + "env: ant\n")
    with collected_notes() as notes:
        read(str(file))
    assert "unroll_length 10, num_minibatches 16, num_updates_per_batch 2" in notes[-1]


def test_a_slip_of_the_pen_in_a_flat_brax_file_is_no_foreign_key(tmp_path):
    file = tmp_path / "ant.yaml"
    file.write_text(AS_PEOPLE_WRITE_IT["flat"].replace("num_envs", "num_env"))
    with pytest.raises(BadInput, match=r"unknown key 'num_env' .did you mean 'num_envs'"):
        read(str(file))


def test_a_mapping_of_brax_runs_is_one_run_each(tmp_path):
    file = tmp_path / "zoo.yaml"
    flat = AS_PEOPLE_WRITE_IT["flat"].replace("\n", "\n  ").rstrip()
    file.write_text(f"ant:\n  {flat}\nhopper:\n  {flat.replace('entropy_cost: 0.01', 'max_replay_size: 9')}\n")
    found = read_all(str(file))
    assert [(run.name, run.algo) for run in found] == [("zoo:ant", "PPO"), ("zoo:hopper", "SAC")]


@pytest.mark.parametrize("name", ["num_minibatches", "batch_size"])
def test_a_file_that_counts_minibatches_gets_no_batch_size_of_another_run(name, tmp_path):
    file = tmp_path / "constants.py"
    file.write_text(f"NUM_ENVS = 8\nNUM_STEPS = 128\n{name.upper()} = 4\nENTROPY_COEF = 0.02\nCLIP_COEF = 0.1\n")
    with collected_notes() as notes:
        run = read(str(file), like="gameboy:default")
    assert run.hyperparams["batch_size"] == (256 if name == "num_minibatches" else 4)
    assert (run.hyperparams["ent_coef"], run.hyperparams["clip_range"]) == (0.02, 0.1)
    assert "batch_size" not in "\n".join(notes)
