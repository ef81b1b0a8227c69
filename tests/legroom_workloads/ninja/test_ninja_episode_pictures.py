"""`--visualization` draws the ninja's episodes, from what was pressed, played again."""

from __future__ import annotations

import json

import numpy as np
import pytest
from PIL import Image

from cli.in_process import legroom
from legroom_workloads.ninja.env import NinjaEnv
from legroom_workloads.ninja.pictures import play_again

ARGUMENTS = {"level_size": "small", "observation": "vector", "levels": 5, "max_frames": 300, "action_repeat": 8}


def play(env: NinjaEnv, seed: int, most: int | None = None) -> bool:
    rng, count = np.random.default_rng(seed), 0
    while count != most:
        _, _, terminated, truncated, _ = env.step(rng.integers(6))
        count += 1
        if terminated or truncated:
            return True
    return False


@pytest.mark.parametrize("press_again", [True, False])
def test_an_episode_played_again_ends_where_it_ended(press_again: bool) -> None:
    env = NinjaEnv(**ARGUMENTS, press_again=press_again)
    env.reset(seed=3)
    assert env.last_episode is None
    for seed in range(3):
        assert play(env, seed)
        game, way = play_again(env.last_episode)
        assert game.get_state().keys() == env.game.get_state().keys()
        assert (game.x, game.y, game.frame, game.dead) == (env.game.x, env.game.y, env.game.frame, env.game.dead)
        assert len(way) == game.frame + 1
        env.reset()


def test_a_training_leaves_pictures(tmp_path) -> None:
    done = legroom(
        *("train", "ninja:learn", "--timesteps", 4096, "--visualization", "--out", tmp_path / "out"),
        *("--set", "env.kwargs.max_frames=300", "--plain"),
    )
    assert done.returncode == 0, done.stderr
    assert "nothing will be drawn" not in done.stdout + done.stderr
    assert json.loads((tmp_path / "out/outcome.json").read_text())["status"] == "finished"
    pictures = list((tmp_path / "out/pictures").glob("*.png"))
    assert pictures and all(min(Image.open(picture).size) > 300 for picture in pictures)
