"""Archives: SB3 loads what is exported, and what SB3 wrote can be gone on with, if one trusts it."""

from __future__ import annotations

import json
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import sb3_contrib
import stable_baselines3
from resume_envs import envs
from stable_baselines3 import PPO
from stable_baselines3.common.vec_env import VecNormalize

from legroom.backends.sb3.archives_zip import export_sb3
from legroom.backends.sb3.making import make_model
from legroom.backends.sb3.state import capture, continue_learning, policy_arrays
from legroom.cli.main import main
from legroom.errors import BadInput
from legroom.model.files import seal
from legroom.model.run import Run
from legroom.training.checkpoint import Checkpoints, parameters_sha256

OFF = {"buffer_size": 200, "learning_starts": 20, "batch_size": 8}


def trained(folder: Path, algo: str, env: Any = None, policy: str = "MlpPolicy", **hyperparams: Any) -> Any:
    """Train a little, leave behind what `legroom train` does, and return the model."""
    env = envs(discrete=algo not in ("SAC", "TD3")) if env is None else env
    run = Run.model_validate({
        "algo": algo, "env": {"id": "elsewhere:Env", "n_envs": env.num_envs}, "seed": 1, "hyperparams": hyperparams,
        "policy": {"name": policy, "kwargs": {"net_arch": [16]}}, "memory": {"rollout": "lean", "replay": "lean"},
    })  # fmt: skip
    model = make_model(run, env, "cpu")
    continue_learning(model, 64)
    state = capture(model)
    Checkpoints(folder).write(model.num_timesteps, state.tensors, state.data, files=state.files)
    (folder / "run.json").write_bytes(seal(run.model_dump()))
    return model


@pytest.mark.parametrize(
    ("algo", "more"),
    [
        ("PPO", {"n_steps": 16, "batch_size": 8, "learning_rate": "lin_1e-3", "gamma": 0.9}),
        ("MaskablePPO", {"n_steps": 16, "batch_size": 8}),
        ("A2C", {}),
        ("DQN", OFF),
        ("SAC", OFF),
        ("TD3", {**OFF, "action_noise": {"normal": 0.1}}),
    ],
)
def test_sb3_loads_what_is_exported_and_goes_on_with_it(tmp_path: Path, algo: str, more: dict) -> None:
    model = trained(tmp_path, algo, **more)
    exported = export_sb3(tmp_path, tmp_path / "model.zip")
    assert (exported.algorithm, exported.step, exported.notes) == (algo, 64 if algo != "A2C" else 70, ())
    kind = getattr(stable_baselines3, algo, None) or getattr(sb3_contrib, algo)
    loaded = kind.load(tmp_path / "model.zip", device="cpu")
    assert parameters_sha256(policy_arrays(loaded)) == parameters_sha256(policy_arrays(model))
    for name, value in more.items():
        if isinstance(value, int | float):
            assert getattr(loaded, name) == value
    assert (loaded.num_timesteps, loaded.n_envs) == (model.num_timesteps, 2)
    for mine, theirs in zip(model.get_parameters().items(), loaded.get_parameters().items(), strict=True):
        assert str(mine) == str(theirs)  # optimizers too
    assert "Lean" not in str(
        getattr(loaded, "rollout_buffer_class", None) or loaded.__dict__.get("replay_buffer_class")
    )
    observations = np.linspace(-1, 1, 8, dtype=np.float32).reshape(2, 4)
    np.testing.assert_array_equal(*(each.predict(observations, deterministic=True)[0] for each in (model, loaded)))
    loaded.set_env(envs(discrete=algo not in ("SAC", "TD3")))
    loaded.learn(40, reset_num_timesteps=False)


def test_one_checkpoint_can_be_exported_and_pictures_are_turned_once(tmp_path: Path) -> None:
    trained(tmp_path, "PPO", envs(picture=True), n_steps=16, batch_size=8)
    (path,) = (tmp_path / "checkpoints").iterdir()
    export_sb3(path, tmp_path / "one.zip")
    assert PPO.load(tmp_path / "one.zip", device="cpu").observation_space.shape == (1, 36, 36)


def test_an_archive_does_not_hold_the_statistics_of_normalized_observations_and_says_so(tmp_path: Path) -> None:
    trained(tmp_path, "PPO", VecNormalize(envs()), n_steps=16, batch_size=8)
    (note,) = export_sb3(tmp_path, tmp_path / "model.zip").notes
    assert "normalized" in note


def test_buffers_that_sb3_could_not_allocate_stay_lean(tmp_path: Path) -> None:
    trained(tmp_path, "PPO", n_steps=16, batch_size=8)
    run = json.loads((tmp_path / "run.json").read_text())
    run["hyperparams"]["n_steps"] = 200_000_000  # 5 GiB of observations alone
    (tmp_path / "run.json").write_bytes(seal(run))
    export_sb3(tmp_path, tmp_path / "model.zip")
    with zipfile.ZipFile(tmp_path / "model.zip") as archive:
        described = json.loads(archive.read("data"))
    assert described["n_steps"] == 200_000_000
    assert "LeanRolloutBuffer" in json.dumps(described["rollout_buffer_class"])


def legroom(capsys: Any, *arguments: str) -> tuple[int, str, str]:
    """Run a command in this process: importing torch takes longer than all of them."""
    with pytest.raises(SystemExit) as ended:
        main(list(arguments))
    out, err = capsys.readouterr()
    return ended.value.code, out, err


def test_the_command(tmp_path: Path, monkeypatch, capsys) -> None:
    model = trained(tmp_path / "run", "PPO", n_steps=16, batch_size=8)
    monkeypatch.chdir(tmp_path)
    code, out, _ = legroom(capsys, "export", "run", "back.zip")
    assert code == 0 and out.startswith(f"back.zip: PPO after {model.num_timesteps} steps")
    refused = "legroom: back.zip: already exists (--force overwrites it)\n"
    assert legroom(capsys, "export", "run", "back.zip") == (2, "", refused)
    code, out, _ = legroom(capsys, "export", "run", "back.zip", "--force", "--json")
    assert json.loads(out)["timesteps"] == model.num_timesteps


def test_bad_input_is_one_line_each(tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    for call, words in (
        (lambda: export_sb3(tmp_path / "gone", tmp_path / "a.zip"), "no such directory"),
        (lambda: export_sb3(tmp_path / "empty", tmp_path / "a.zip"), "no good checkpoint"),
        (lambda: export_sb3(tmp_path, tmp_path / "no" / "such" / "a.zip"), "cannot hold a file"),
    ):
        with pytest.raises(BadInput, match=words) as error:
            call()
        assert "\n" not in str(error.value)
