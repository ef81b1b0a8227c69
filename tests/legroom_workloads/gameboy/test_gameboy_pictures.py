"""`--visualization` draws rounds of the Game Boy, from what was pressed, played again."""

from __future__ import annotations

import numpy as np
from PIL import Image

from cli.in_process import legroom
from legroom_workloads.gameboy.env import GameBoyEnv
from legroom_workloads.gameboy.pictures import frames_of


def play(env: GameBoyEnv, seed: int, most: int | None = None) -> np.ndarray | None:
    """Play at random; return the screen at the end of the round."""
    rng, count = np.random.default_rng(seed), 0
    while count != most:
        _, _, terminated, truncated, _ = env.step(int(rng.integers(6)))
        count += 1
        if terminated or truncated:
            return env.render()
    return None


def test_a_round_played_again_shows_the_same_screens() -> None:
    env = GameBoyEnv(render_mode="rgb_array", grey=True, downsample=2)
    env.reset(seed=5)
    began = env.render()
    assert env.last_episode is None
    ended = play(env, 1)
    env.reset()
    shown = frames_of(env.last_episode)
    assert len(shown) == 12 and shown[0][0] == 0
    np.testing.assert_array_equal(shown[0][1], began)
    np.testing.assert_array_equal(shown[-1][1], ended)
    assert shown[-1][0] == env.last_episode["frames"] and shown[0][2]["player_health"] == 48


def test_a_training_leaves_pictures(tmp_path) -> None:
    done = legroom(
        *("train", "gameboy:learn", "--timesteps", 2048, "--visualization", "--out", tmp_path / "out"),
        *("--set", "env.n_envs=2", "--plain"),
    )
    assert done.returncode == 0, done.stderr
    assert "nothing will be drawn" not in done.stdout + done.stderr
    pictures = list((tmp_path / "out/pictures").glob("*.png"))
    assert pictures and all(min(Image.open(picture).size) > 300 for picture in pictures)
