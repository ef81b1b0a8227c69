"""Run files, zoo files and brax files in the forms people have them."""

from pathlib import Path
from textwrap import dedent

import pytest

from legroom.errors import BadInput
from legroom.model.run import REMOVED_MEMORY, Run, kept_run
from legroom.named_runs import run_names, workloads
from legroom.reading import override_names, read, read_all, run_from_dict


def write(folder: Path, name: str, text: str) -> str:
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(dedent(text))
    return str(path)


NATIVE = """\
backend: sb3
algo: ppo
env:
  id: my.module:Env
  n_envs: 4
  spaces:
    observation: {type: box, shape: [4, 84, 84], dtype: uint8}
    action: {type: discrete, n: 6}
policy: {name: CnnPolicy, kwargs: {net_arch: {pi: [64], vf: [64]}}}
hyperparams: {n_steps: 1e3, batch_size: 250, learning_rate: 3e-4}
total_timesteps: 1e6
"""


def test_native_run(tmp_path: Path) -> None:
    path = write(tmp_path, "pixels.yaml", NATIVE)
    run = read(path)
    assert (run.name, run.source, run.algo) == ("pixels", path, "PPO")
    assert run.hyperparams == {"n_steps": 1000, "batch_size": 250, "learning_rate": 3e-4}
    assert isinstance(run.hyperparams["n_steps"], int)
    assert run.total_timesteps == 1_000_000


@pytest.mark.parametrize(
    ("env_id", "shape", "actions"),
    [
        ("ALE/Pong-v5", (210, 160, 3), 6),
        ("BreakoutNoFrameskip-v4", (210, 160, 3), 4),
        ("ALE/Adventure-v5", (250, 160, 3), 18),
        ("Pong-ram-v4", (128,), 6),
        ("CartPole-v1", (4,), 2),
        ("LunarLander-v2", (8,), 4),
        ("MiniGrid-Empty-5x5-v0", None, None),  # its mission is a text
        ("Nobody-v0", None, None),
    ],
)
def test_table_of_spaces(tmp_path: Path, env_id: str, shape: tuple[int, ...] | None, actions: int | None) -> None:
    spaces = run_from_dict({"algo": "DQN", "env": {"id": env_id}}).env.spaces
    if shape is None:
        assert spaces is None
    else:
        assert spaces is not None
        assert (spaces.observation.shape, spaces.action.n) == (shape, actions)


# --- overrides


def test_overrides_in_every_spelling(tmp_path: Path) -> None:
    path = write(tmp_path, "run.yaml", NATIVE)
    run = read(
        path,
        overrides=[
            ("n-envs", "8"), ("batch_size", "512"), ("hyperparams.n_steps", "1_024"), ("timesteps", "2e6"),
            ("policy.kwargs.net_arch", "[256,256]"), ("workers", "subproc"), ("frame-stack", "4"), ("seed", "3"),
            ("micro_batch", "64"), ("grid", "[10, 12]"), ("eval.n_envs", "2"),
        ],
    )  # fmt: skip
    assert (run.env.n_envs, run.env.workers, run.env.frame_stack, run.env.grid) == (8, "subproc", 4, (10, 12))
    assert (run.hyperparams["batch_size"], run.hyperparams["n_steps"]) == (512, 1024)
    assert run.policy.kwargs["net_arch"] == [256, 256]
    assert (run.total_timesteps, run.seed, run.memory.micro_batch) == (2_000_000, 3, 64)
    assert run.eval is not None
    assert run.eval.n_envs == 2


@pytest.mark.parametrize(
    "text",
    [
        "{observation: {type: box, shape: [3, 64, 64], dtype: uint8}, action: {type: discrete, n: 3}}",
        '{"observation":{"type":"box","shape":[3,64,64],"dtype":"uint8"},"action":{"type":"discrete","n":3}}',
        "{observation:{type:box,shape:[3,64,64],dtype:uint8},action:{type:discrete,n:3}}",
    ],
)
def test_spaces_as_an_override(tmp_path: Path, text: str) -> None:
    path = write(tmp_path, "run.yaml", NATIVE)
    run = read(path, overrides=[("env.spaces", text)])
    assert run.env.spaces is not None
    assert (run.env.spaces.observation.shape, run.env.spaces.action.n) == ((3, 64, 64), 3)


def test_another_env_brings_its_own_spaces(tmp_path: Path) -> None:
    run = read(write(tmp_path, "run.yaml", NATIVE), overrides=[("env", "CartPole-v1")])
    assert run.env.spaces is not None
    assert run.env.spaces.observation.shape == (4,)


def test_names_of_the_backend_and_of_single_file_implementations(tmp_path: Path) -> None:
    brax = read("robot:default", overrides=[("num_envs", "512"), ("num-eval-envs", "16"), ("num_minibatches", "8")])
    assert brax.eval is not None
    assert (brax.env.n_envs, brax.eval.n_envs, brax.hyperparams["num_minibatches"]) == (512, 16, 8)
    path = write(tmp_path, "run.yaml", NATIVE)
    run = read(
        path, overrides=[("num_envs", "8"), ("num_steps", "128"), ("num_minibatches", "4"), ("update_epochs", "3")]
    )
    assert (run.hyperparams["batch_size"], run.hyperparams["n_epochs"]) == (256, 3)  # 8 x 128 / 4


def test_override_names_follow_the_algorithm() -> None:
    assert {"n_envs", "num_envs", "n_steps", "batch_size", "frame_stack", "timesteps"} <= override_names("sb3", "PPO")
    assert {"num_envs", "unroll_length", "policy_hidden_layers"} <= override_names("brax", "PPO")
    assert "num_env_runners" in override_names("rllib", "PPO")


# --- named runs


def test_bare_workload_is_its_default_or_all(tmp_path: Path) -> None:
    assert read("mine").name == "mine:full"
    assert read("fire").name == "fire:original"
    names = [run.name for run in read_all("mine")]
    assert names == ["mine:full", "mine:memory_optimized", "mine:ultra_light", "mine:small"]


@pytest.mark.parametrize("name", run_names())
def test_shipped_runs_pass_the_checks_that_users_files_get(name: str) -> None:
    trusted = read(name)
    checked = read(name, overrides=[("device", "auto")])
    assert checked == trusted
    assert isinstance(checked, Run)


def test_every_workload_has_its_default() -> None:
    for workload in workloads():
        assert f"{workload.name}:{workload.default}" in run_names()


def test_an_existing_file_comes_before_a_named_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "mine").mkdir()  # a folder does not hide the workload
    assert read("mine").name == "mine:full"
    (tmp_path / "mine:full").write_text("algo: A2C\nenv: CartPole-v1\n")
    assert read("mine:full").algo == "A2C"


# --- the zoo

ZOO = """\
default:
  n_timesteps: !!float 1e6
  policy: 'MlpPolicy'

atari:
  env_wrapper:
    - stable_baselines3.common.atari_wrappers.AtariWrapper
  frame_stack: 4
  policy: 'CnnPolicy'
  n_envs: 8
  n_steps: 128
  n_timesteps: !!float 1e7
  learning_rate: lin_2.5e-4
  clip_range: lin_0.1

HopperBulletEnv-v0: &bullet
  normalize: "dict(norm_obs=True, norm_reward=False)"
  n_envs: 16
  n_timesteps: !!float 2e6
  n_steps: "8 * 64"
  policy: 'MlpPolicy'
  policy_kwargs: "dict(log_std_init=-2,
                       ortho_init=False,
                       activation_fn=nn.ReLU,
                       net_arch=dict(pi=[256, 256], vf=[256, 256])
                       )"

AntBulletEnv-v0:
  <<: *bullet
  n_envs: 2
  env_wrapper:
    - sb3_contrib.common.wrappers.TimeFeatureWrapper
  callback:
    - rl_zoo3.callbacks.ParallelTrainCallback

Own-v0:
  n_timesteps: 1000
  policy: MlpPolicy
  env_kwargs: {size: 3}
"""


def test_zoo_entry(tmp_path: Path) -> None:
    path = write(tmp_path, "ppo.yml", ZOO)
    run = read(f"{path}:atari")
    assert (run.name, run.algo, run.env.n_envs, run.env.frame_stack) == ("atari", "PPO", 8, 4)
    assert run.hyperparams == {"n_steps": 128, "learning_rate": "lin_2.5e-4", "clip_range": "lin_0.1"}
    assert run.env.spaces is not None
    assert (run.env.spaces.observation.shape, run.env.spaces.action.n) == ((84, 84, 1), 18)
    assert run.total_timesteps == 10_000_000


def test_zoo_source_strings_merges_and_wrappers(tmp_path: Path) -> None:
    path = write(tmp_path, "ppo.yml", ZOO)
    run = read(f"{path}:AntBulletEnv-v0")
    assert (run.env.n_envs, run.hyperparams["n_steps"]) == (2, 512)
    assert run.env.normalize == {"norm_obs": True, "norm_reward": False}
    assert run.policy.kwargs == {
        "log_std_init": -2, "ortho_init": False, "activation_fn": "nn.ReLU",
        "net_arch": {"pi": [256, 256], "vf": [256, 256]},
    }  # fmt: skip
    assert run.env.spaces is not None
    assert run.env.spaces.observation.shape == (29,)  # 28 + time


def test_zoo_entry_for_a_game_or_env_without_its_own(tmp_path: Path) -> None:
    path = write(tmp_path, "ppo.yml", ZOO)
    game = read(f"{path}:PongNoFrameskip-v4")
    assert (game.env.id, game.env.frame_stack) == ("PongNoFrameskip-v4", 4)
    assert game.env.spaces is not None
    assert game.env.spaces.action.n == 6
    assert read(f"{path}:CartPole-v1").policy.name == "MlpPolicy"  # the entry `default`
    with pytest.raises(BadInput, match="did you mean 'Own-v0'"):
        read(f"{path}:Owm-v0")


def test_zoo_file_is_all_its_entries(tmp_path: Path) -> None:
    path = write(tmp_path, "ppo.yml", ZOO)
    names = [run.name for run in read_all(path)]
    assert names == ["default", "atari", "HopperBulletEnv-v0", "AntBulletEnv-v0", "Own-v0"]
    with pytest.raises(BadInput, match=r"holds 5 runs: .*ppo.yml:default"):
        read(path)
    assert read(f"{path}:Own-v0").env.kwargs == {"size": 3}
    spaces = "{observation: {type: box, shape: [7]}, action: {type: box, shape: [2]}}"
    own = read(f"{path}:Own-v0", overrides=[("env.spaces", spaces)])
    assert own.env.spaces is not None


def test_zoo_algorithms_by_file_name(tmp_path: Path) -> None:
    entry = "CartPole-v1: {n_timesteps: 1000, policy: MlpPolicy}\n"
    for stem, algo in {
        "ppo_lstm": "RecurrentPPO",
        "qrdqn": "QRDQN",
        "maskable_ppo": "MaskablePPO",
        "ars": "ARS",
    }.items():
        assert read(write(tmp_path, f"{stem}.yml", entry)).algo == algo
    path = write(tmp_path, "mine_of_all.yml", entry)
    assert read(path, overrides=[("algo", "A2C")]).algo == "A2C"
    with pytest.raises(BadInput, match="--set algo="):
        read(path)


# --- brax


def test_brax_style(tmp_path: Path) -> None:
    path = write(
        tmp_path,
        "gpu_8gb.yaml",
        """\
        ppo:
          num_envs: 512
          num_eval_envs: 32
          batch_size: 128
          unroll_length: 5
          num_minibatches: 2
          num_timesteps: 30_000_000
        network:
          policy_hidden_layers: [128, 128]
          value_hidden_layers: [128, 64]
        """,
    )
    run = read(path)
    assert (run.name, run.backend, run.algo, run.env.n_envs) == ("gpu_8gb", "brax", "PPO", 512)
    assert run.eval is not None
    assert (run.eval.n_envs, run.total_timesteps) == (32, 30_000_000)
    assert run.hyperparams == {"batch_size": 128, "unroll_length": 5, "num_minibatches": 2}
    assert run.policy.kwargs == {"policy_hidden_layer_sizes": [128, 128], "value_hidden_layer_sizes": [128, 64]}
    robot = read(path, like="robot:default")
    assert robot.env.spaces == read("robot:default").env.spaces
    assert robot.hyperparams["num_minibatches"] == 2


@pytest.mark.parametrize("key", REMOVED_MEMORY)
def test_a_removed_saving_is_named_with_the_way_out(tmp_path: Path, key: str) -> None:
    path = write(tmp_path, "run.yaml", NATIVE + f"memory: {{{key}: 1}}\n")
    with pytest.raises(BadInput) as refused:
        read(path)
    assert str(refused.value) == f"{path}:12: memory.{key} was removed: it saved next to nothing (delete the line)"


def test_a_folder_that_names_a_removed_saving_is_still_read() -> None:
    data = run_from_dict({"algo": "PPO", "env": {"id": "CartPole-v1"}}).model_dump()
    before = data | {"memory": data["memory"] | {"foreach": False, "jemalloc": None}}
    assert kept_run(before).model_dump() == data
