"""Archives: SB3 loads what is exported, and what SB3 wrote can be gone on with, if one trusts it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import sb3_contrib
import stable_baselines3
from resume_envs import CASES, envs
from stable_baselines3 import DDPG, DQN, PPO
from stable_baselines3.common.vec_env import VecNormalize

from legroom.backends.sb3.archives_zip import _describe, _telltale, export_sb3, import_sb3
from legroom.backends.sb3.making import make_model
from legroom.backends.sb3.state import capture, continue_learning, policy_arrays, restore
from legroom.cli.main import main
from legroom.errors import BadInput
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
    (folder / "run.json").write_text(json.dumps(run.model_dump()))
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
    (tmp_path / "run.json").write_text(json.dumps(run))
    export_sb3(tmp_path, tmp_path / "model.zip")
    described = _describe(tmp_path / "model.zip")
    assert described["n_steps"] == 200_000_000
    assert "LeanRolloutBuffer" in json.dumps(described["rollout_buffer_class"])


@pytest.mark.parametrize("name", ["ppo", "maskable", "a2c", "trpo", "dqn", "qrdqn", "sac", "td3", "tqc", "crossq"])
def test_the_algorithm_of_an_archive_is_told_from_what_is_in_it(tmp_path: Path, name: str) -> None:
    model = CASES[name][0]()
    model.save(tmp_path / "model.zip")
    assert _telltale(_describe(tmp_path / "model.zip")) == type(model).__name__


def test_ddpg_is_not_taken_for_td3(tmp_path: Path) -> None:
    DDPG("MlpPolicy", envs(discrete=False), buffer_size=10, device="cpu").save(tmp_path / "model.zip")
    assert _telltale(_describe(tmp_path / "model.zip")) == "DDPG"


@pytest.mark.parametrize("name", ["ppo", "dqn", "dqn_n_steps", "sac", "td3", "maskable"])
def test_what_sb3_wrote_is_gone_on_with(tmp_path: Path, name: str) -> None:
    make, total, cut = CASES[name]
    model = make()
    continue_learning(model, cut)
    model.save(tmp_path / "model.zip")
    imported = import_sb3(tmp_path / "model.zip", tmp_path / "run", trust=True)
    assert imported.step == model.num_timesteps
    assert imported.parameters_sha256 == parameters_sha256(policy_arrays(model))
    again = make()
    assert "no environments" in restore(again, Checkpoints(tmp_path / "run").latest())
    assert parameters_sha256(policy_arrays(again)) == imported.parameters_sha256
    for mine, theirs in zip(model.get_parameters().items(), again.get_parameters().items(), strict=True):
        assert str(mine) == str(theirs)
    continue_learning(again, total)
    assert again.num_timesteps >= total
    assert not list(tmp_path.glob(".tmp-*"))
    # and there and back
    export_sb3(tmp_path / "run", tmp_path / "back.zip")
    back = type(model).load(tmp_path / "back.zip", device="cpu")
    assert parameters_sha256(policy_arrays(back)) == imported.parameters_sha256


def legroom(capsys: Any, *arguments: str) -> tuple[int, str, str]:
    """Run a command in this process: importing torch takes longer than all of them."""
    with pytest.raises(SystemExit) as ended:
        main(list(arguments))
    out, err = capsys.readouterr()
    return ended.value.code, out, err


class Loud:
    """Says so when it is unpickled."""

    def __reduce__(self) -> Any:
        return (Path("pwned").touch, ())


def test_the_commands(tmp_path: Path, monkeypatch, capsys) -> None:
    model = CASES["ppo"][0]()
    continue_learning(model, 64)
    monkeypatch.chdir(tmp_path)
    model.secret = Loud()
    model.save("model.zip")
    assert legroom(capsys, "import", "model.zip", "run") == (
        2, "", "legroom: model.zip: archives can execute code (--trust, for files you trust)\n",
    )  # fmt: skip
    assert not Path("pwned").exists() and not Path("run").exists()
    code, out, _ = legroom(capsys, "import", "model.zip", "run", "--trust", "--json")
    assert code == 0 and Path("pwned").exists()
    said = json.loads(out)
    assert (said["legroom"], said["algo"], said["timesteps"], said["resume"]) == (1, "PPO", 64, "approximate")
    code, out, _ = legroom(capsys, "export", "run", "back.zip")
    assert code == 0 and out.startswith("back.zip: PPO after 64 steps")
    refused = "legroom: back.zip: already exists (--force overwrites it)\n"
    assert legroom(capsys, "export", "run", "back.zip") == (2, "", refused)
    code, out, _ = legroom(capsys, "export", "run", "back.zip", "--force", "--json")
    assert json.loads(out)["timesteps"] == 64


def test_bad_input_is_one_line_each(tmp_path: Path) -> None:
    (tmp_path / "no.zip").write_bytes(b"PK nothing")
    (tmp_path / "empty").mkdir()
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "thesis.tex").write_text("precious")
    DQN("MlpPolicy", envs(), buffer_size=10, device="cpu").save(tmp_path / "dqn.zip")
    zipped = tmp_path / "dqn.zip"
    for call, words in (
        (lambda: export_sb3(tmp_path / "gone", tmp_path / "a.zip"), "no such directory"),
        (lambda: export_sb3(tmp_path / "empty", tmp_path / "a.zip"), "no good checkpoint"),
        (lambda: export_sb3(tmp_path, tmp_path / "no" / "such" / "a.zip"), "cannot hold a file"),
        (lambda: import_sb3(tmp_path / "gone.zip", tmp_path / "r", True), "cannot be read: No such file"),
        (lambda: import_sb3(tmp_path / "no.zip", tmp_path / "r", True), "not an archive of a Stable-Baselines3 model"),
        (lambda: import_sb3(zipped, tmp_path / "mine", True), "is not empty"),
        (lambda: import_sb3(zipped, tmp_path / "mine", True, force=True), "is left alone"),
        (lambda: import_sb3(zipped, tmp_path / "r", True, algorithm="PPO"), "cannot be loaded as PPO"),
        (lambda: import_sb3(zipped, tmp_path / "r", True, algorithm="PPPO"), "'PPPO' is unknown"),
    ):
        with pytest.raises(BadInput, match=words) as error:
            call()
        assert "\n" not in str(error.value)
    assert (tmp_path / "mine" / "thesis.tex").read_text() == "precious"
    assert not (tmp_path / "r").exists()
    import_sb3(zipped, tmp_path / "r", True)
    import_sb3(zipped, tmp_path / "r", True, force=True)
    import_sb3(zipped, tmp_path / "empty", True)
