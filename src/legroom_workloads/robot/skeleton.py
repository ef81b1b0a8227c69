"""The robot as a skeleton, drawn with matplotlib from the places of its bodies, where there is no OpenGL."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from legroom_workloads.robot.ground import height

if TYPE_CHECKING:
    from legroom_workloads.robot.gym_env import RobotGymEnv

_DPI = 80
_VIEW_M = 0.45  # from the robot to the edge of the picture


class Skeleton:
    """Draws bones from each body to its parent, and the soles."""

    def __init__(self, env: RobotGymEnv, rows: int, columns: int) -> None:
        from matplotlib.backends.backend_agg import FigureCanvasAgg
        from matplotlib.figure import Figure

        self._env = env
        figure = Figure((columns / _DPI, rows / _DPI), _DPI)
        self._canvas = FigureCanvasAgg(figure)
        self._axes: Any = figure.add_axes((0, 0, 1, 1), projection="3d")

    def picture(self) -> NDArray[np.uint8]:
        """Return the robot as it stands, uint8 [rows, columns, 3]."""
        axes, env = self._axes, self._env
        model, data = env.biped.model, env.data
        axes.clear()
        x, y = data.qpos[:2]
        self._draw_ground(x, y)
        for body in range(2, model.nbody):
            parent = model.body_parentid[body]
            if parent == 0:
                continue  # a ground, or the pelvis: nothing to hang from
            colour = _colour(model.body(body).name)
            self._line(data.xpos[parent], data.xpos[body], colour, 4)
        soles = data.geom_xpos[env.biped.soles]
        for foot in np.split(soles, range(4, len(soles), 4)):
            for i, j in ((0, 1), (1, 3), (3, 2), (2, 0)) if len(foot) == 4 else ():
                self._line(foot[i], foot[j], "0.1", 2)
        chest = data.geom_xpos[_bodies(model, "chest")[model.geom_bodyid]]
        heads = np.concatenate([data.qpos[None, :3], chest])
        self._line(data.qpos[:3], heads[np.argmax(heads[:, 2])], "0.2", 6)
        axes.set_xlim(x - _VIEW_M, x + _VIEW_M)
        axes.set_ylim(y - _VIEW_M, y + _VIEW_M)
        axes.set_zlim(0, 2 * _VIEW_M)
        axes.set_box_aspect((1, 1, 1), zoom=1.6)
        axes.view_init(elev=12, azim=-55)
        axes.set_axis_off()
        self._canvas.draw()
        return np.asarray(self._canvas.buffer_rgba())[..., :3].copy()

    def _draw_ground(self, x: float, y: float) -> None:
        spots = np.linspace(-_VIEW_M, _VIEW_M, 13)
        grid = np.stack(np.meshgrid(x + spots, y + spots), -1)
        task = self._env.task
        top = height(np, self._env.phases, task.roughness_m, grid) if task.rough else np.zeros(grid.shape[:2])
        self._axes.plot_wireframe(grid[..., 0], grid[..., 1], top, color="0.8", linewidth=0.7)

    def _line(self, start: Any, end: Any, colour: str, width: float) -> None:
        self._axes.plot(*zip(start, end, strict=True), color=colour, linewidth=width, solid_capstyle="round")


def _colour(body: str) -> str:
    return "tab:blue" if "left" in body else "tab:red" if "right" in body else "0.2"


def _bodies(model: Any, name: str) -> NDArray[np.bool_]:
    return np.array([model.body(each).name == name for each in range(model.nbody)])
