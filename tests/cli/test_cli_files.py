"""Files as people wrote them, at the command line: what cannot be read is named, and the rest is answered."""

import json
from pathlib import Path

from tests.cli.in_process import legroom

ZOO = """\
CartPole-v1:
  n_envs: 8
  n_timesteps: !!float 1e5
  policy: MlpPolicy
Broken-v1:
  n_timesteps: 100
  policy: MlpPolicy
  policy_kwargs: "dict(net_arch=[64, make_net()])"
Acrobot-v1:
  n_envs: 16
  n_timesteps: !!float 1e6
  policy: MlpPolicy
Own-v0:
  n_timesteps: 100
  policy: MlpPolicy
"""


def test_an_entry_that_cannot_be_read_is_a_row_with_its_reason(tmp_path: Path) -> None:
    (tmp_path / "ppo.yml").write_text(ZOO)
    done = legroom("predict", "ppo.yml", "--mode", "arithmetic", "--ram", "8GiB", cwd=tmp_path)
    assert done.returncode == 1  # of two it is unknown
    first, *rows = done.stdout.splitlines()
    assert first == "2 of 4 runs fit: CartPole-v1, Acrobot-v1; unknown for 2."
    for name in ("Broken-v1", "Own-v0"):
        assert any(row.startswith(name) and row.endswith("not read") for row in rows)
    text = " ".join(done.stdout.split())
    assert "Broken-v1: ppo.yml:8: policy_kwargs:" in text and "Own-v0: ppo.yml" in text
    told = json.loads(legroom("predict", "ppo.yml", "--mode", "arithmetic", "--json", cwd=tmp_path).stdout)
    assert {run["name"]: run["fits"] is None for run in told["runs"]} == {
        "CartPole-v1": False, "Acrobot-v1": False, "Broken-v1": True, "Own-v0": True,
    }  # fmt: skip
    alone = legroom("predict", "ppo.yml:Broken-v1", "--mode", "arithmetic", cwd=tmp_path)
    assert alone.returncode == 2 and "make_net()" in alone.stderr


def test_a_log_with_an_out_of_memory_error_points_to_explain(tmp_path: Path) -> None:
    (tmp_path / "error.txt").write_text("step 3\ntorch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2 GiB\n")
    for command in ("predict", "fit", "check"):
        done = legroom(command, "error.txt", cwd=tmp_path)
        assert done.returncode == 2
        assert done.stderr.endswith("ran out of memory, not a run (legroom explain error.txt)\n")


def test_what_was_filled_in_is_told_by_fit_and_in_documents(tmp_path: Path) -> None:
    (tmp_path / "constants.py").write_text("NUM_ENVS = 2\nEP_LENGTH = 256\nBATCH_SIZE = 64\n")
    given = ("constants.py", "--like", "gameboy:default", "--mode", "arithmetic", "--ram", "16GiB")
    says = "taken from gameboy:default because constants.py does not set it: the environment ("
    fitted = legroom("fit", *given, cwd=tmp_path)
    assert fitted.returncode == 0 and says in fitted.stderr
    for command in ("fit", "predict"):
        notes = json.loads(legroom(command, *given, "--json", cwd=tmp_path).stdout)["notes"]
        assert any(note.startswith(says) for note in notes)


def test_fix_shows_what_it_would_change_and_names_what_only_you_can_decide(tmp_path: Path) -> None:
    script = tmp_path / "train.py"
    script.write_text(
        "from stable_baselines3 import PPO\n"
        "from stable_baselines3.common.callbacks import CheckpointCallback\n"
        'model = PPO("MlpPolicy", "CartPole-v1", n_steps=100, batch_size=256)\n'
        'saved = CheckpointCallback(save_freq=1000, save_path="saved")\n'
        "model.learn(1000)\n"
    )
    before = script.read_text()
    shown = legroom("check", "train.py", "--fix", "--dry-run", cwd=tmp_path)
    assert script.read_text() == before
    assert "would fix train.py:3: batch_size 256 -> 100, which is what runs now" in shown.stdout
    assert "n_steps=100, batch_size=256)\n+model" in shown.stdout
    assert "not fixed: 1 finding that only you can decide (LR050 callback-not-used)" in shown.stdout
    fixed = legroom("check", "train.py", "--fix", cwd=tmp_path)
    assert "batch_size=100" in script.read_text()
    assert "minibatch-exceeds-rollout" not in fixed.stdout
