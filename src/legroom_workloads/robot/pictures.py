"""Pictures of the robot, and films of a walk.

They are MuJoCo's where there is an OpenGL that draws without a window (`opengl`); elsewhere the same walk is drawn as a
skeleton.

    python -m legroom_workloads.robot.pictures robot.gif --terrain rough --seed 3
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import mujoco
import numpy as np
from numpy.typing import NDArray

from legroom.extend import BadInput
from legroom_workloads.robot.ground import height
from legroom_workloads.robot.gym_env import RobotGymEnv
from legroom_workloads.robot.opengl import open_gl
from legroom_workloads.robot.skeleton import Skeleton

HEIGHT, WIDTH = 240, 320
FILM_STEPS, FRAME_EVERY = 250, 2  # five seconds at 25 frames per second
_TILE_M, _TILES = 0.1, 24  # the ground that is drawn around the robot, where it has waves
Predict = Callable[[Any, None], Any]


class Pictures:
    """Draws one environment, with MuJoCo's renderer or as a skeleton."""

    def __init__(self, env: RobotGymEnv) -> None:
        self._env = env
        self._gl = open_gl(env.biped.model, HEIGHT, WIDTH)
        self._skeleton = Skeleton(env, HEIGHT, WIDTH) if self._gl is None else None

    @property
    def kind(self) -> str:
        """By whom pictures are drawn: "mujoco" or "skeleton"."""
        return "mujoco" if self._gl is not None else "skeleton"

    def picture(self) -> NDArray[np.uint8]:
        """Return the robot as it stands, uint8 [240, 320, 3]."""
        if self._gl is None:
            assert self._skeleton is not None
            return self._skeleton.picture()
        camera = mujoco.MjvCamera()
        camera.lookat[:] = *self._env.data.qpos[:2], 0.22
        camera.distance, camera.azimuth, camera.elevation = 1.25, 125, -14
        return self._gl.picture(self._env.data, camera, self._add_waves if self._env.task.rough else None)

    def _add_waves(self, scene: Any) -> None:
        """Draw the ground as tiles on a grid that stays where it is while the robot walks over it."""
        corner = np.floor(self._env.data.qpos[:2] / _TILE_M) - _TILES // 2
        for i in range(_TILES):
            for j in range(_TILES):
                if scene.ngeom >= scene.maxgeom:
                    return
                cell = corner + np.array([i, j])
                centre = (cell + 0.5) * _TILE_M
                top = float(height(np, self._env.phases, self._env.task.roughness_m, centre))
                shade = 0.58 + 0.05 * ((cell[0] + cell[1]) % 2) + 4 * top
                mujoco.mjv_initGeom(
                    scene.geoms[scene.ngeom],
                    mujoco.mjtGeom.mjGEOM_BOX,
                    np.array([_TILE_M / 2, _TILE_M / 2, 0.05]),
                    np.array([*centre, top - 0.05]),
                    np.eye(3).reshape(-1),
                    np.array([shade, shade, shade, 1], np.float32),
                )
                scene.ngeom += 1

    def close(self) -> None:
        """Let go of OpenGL."""
        if self._gl is not None:
            self._gl.close()
            self._gl = None


def save_gif(
    predict: Predict | None,
    env_kwargs: Mapping[str, Any] | None = None,
    path: str | Path = "robot.gif",
    *,
    seed: int = 0,
    steps: int = FILM_STEPS,
) -> dict[str, Any]:
    """Film an episode of a policy as a GIF; None for a policy keeps the stand pose. The film ends with a fall.

    Returns:
        `steps` walked, whether it `fell`, and by whom it was `drawn`.

    Raises:
        BadInput: arguments that the environment refuses, or a place that cannot be written to.
    """
    from PIL import Image

    env = RobotGymEnv(**{**(env_kwargs or {}), "render_mode": "rgb_array", "episode_steps": steps})
    observation, _ = env.reset(seed=seed)
    frames, done, fallen, walked = [_frame(env)], False, False, 0
    while not done:
        action = np.zeros(env.action_space.shape or (), np.float32) if predict is None else predict(observation, None)
        observation, _, fallen, truncated, _ = env.step(action)
        walked += 1
        done = fallen or truncated
        if walked % FRAME_EVERY == 0 or done:
            frames.append(_frame(env))
    kind = env._pictures.kind
    env.close()
    images = [Image.fromarray(each).quantize(64) for each in frames]
    frame_ms = round(1000 / env.metadata["render_fps"] * FRAME_EVERY)
    try:
        images[0].save(path, format="GIF", save_all=True, append_images=images[1:], duration=frame_ms, loop=0)
    except OSError as error:
        raise BadInput(f"cannot be written: {error.strerror or error}", path=path) from error
    return {"steps": walked, "fell": fallen, "drawn": kind}


def _frame(env: RobotGymEnv) -> NDArray[np.uint8]:
    picture = env.render()
    assert picture is not None
    return picture


def main(arguments: list[str] | None = None) -> None:
    """Write a GIF of the robot keeping its pose, or moving at random."""
    parser = argparse.ArgumentParser(description="A film of the robot without a policy.")
    parser.add_argument("path")
    parser.add_argument("--terrain", default="flat")
    parser.add_argument("--model", help="a MJCF file of your own")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--random", action="store_true", help="random actions, instead of keeping the pose")
    asked = parser.parse_args(arguments)
    rng = np.random.default_rng(asked.seed)
    predict = (lambda *_: np.tanh(0.7 * rng.standard_normal(11))) if asked.random else None
    try:
        made = save_gif(predict, {"terrain": asked.terrain, "model": asked.model}, asked.path, seed=asked.seed)
    except BadInput as error:
        sys.exit(f"error: {error}")
    sys.stdout.write(
        f"{asked.path}: {made['steps']} steps, drawn by {made['drawn']}{', fell' if made['fell'] else ''}\n"
    )


if __name__ == "__main__":
    main()
