"""Films of the robot: as long as the walk, with the robot in them, with and without OpenGL."""

import numpy as np
import pytest
from PIL import Image

from legroom_workloads.robot import pictures
from legroom_workloads.robot.pictures import save_gif


@pytest.mark.parametrize("opengl", [True, False])
def test_a_film_is_written(tmp_path, monkeypatch, opengl):
    if not opengl:
        monkeypatch.setattr(pictures, "open_gl", lambda *_: None)
    made = save_gif(None, {"terrain": "rough"}, tmp_path / "walk.gif", steps=4)
    assert made["steps"] == 4 and not made["fell"]
    with Image.open(tmp_path / "walk.gif") as film:
        assert film.n_frames == 3 and film.size == (320, 240)  # the start, and every second step
        assert np.asarray(film.convert("L")).std() > 5  # and it is no empty picture
    if not opengl:
        assert made["drawn"] == "skeleton"
