"""MuJoCo's pictures without a window.

`mujoco.Renderer` takes the OpenGL that `MUJOCO_GL` named when mujoco was first imported, which without that variable is
the one that needs a display: there it fails, and at the second try it aborts the whole process. So the steps that it
makes are made here, on EGL (or OSMesa, where `MUJOCO_GL` says so), whenever mujoco was imported.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from importlib import import_module
from typing import Any

import mujoco
import numpy as np
from numpy.typing import NDArray

MAX_GEOMS = 2000


class OpenGl:
    """A picture of so many rows and columns, drawn off the screen."""

    def __init__(self, model: Any, rows: int, columns: int, context: Any) -> None:
        self._model, self._rows, self._columns, self._context = model, rows, columns, context
        context.make_current()
        self.scene = mujoco.MjvScene(model, MAX_GEOMS)
        self._mjr = mujoco.MjrContext(model, mujoco.mjtFontScale.mjFONTSCALE_100)
        mujoco.mjr_resizeOffscreen(columns, rows, self._mjr)
        mujoco.mjr_setBuffer(mujoco.mjtFramebuffer.mjFB_OFFSCREEN, self._mjr)
        self._option, self._perturb = mujoco.MjvOption(), mujoco.MjvPerturb()

    def picture(self, data: Any, camera: Any, add: Callable[[Any], None] | None = None) -> NDArray[np.uint8]:
        """Return uint8 [rows, columns, 3] of the model as `data` has it; `add` puts more into the scene."""
        self._context.make_current()
        mujoco.mjv_updateScene(
            self._model, data, self._option, self._perturb, camera, mujoco.mjtCatBit.mjCAT_ALL, self.scene
        )
        if add is not None:
            add(self.scene)
        whole = mujoco.MjrRect(0, 0, self._columns, self._rows)
        mujoco.mjr_render(whole, self.scene, self._mjr)
        pixels = np.empty((self._rows, self._columns, 3), np.uint8)
        mujoco.mjr_readPixels(pixels, None, whole, self._mjr)
        return pixels[::-1].copy()  # OpenGL begins at the bottom

    def close(self) -> None:
        """Let go of the context."""
        self._mjr.free()
        self._context.free()


def open_gl(model: Any, rows: int, columns: int) -> OpenGl | None:
    """Return what draws off the screen, None where no OpenGL can."""
    library = "osmesa" if os.environ.get("MUJOCO_GL", "").lower() == "osmesa" else "egl"
    try:
        context = import_module(f"mujoco.{library}").GLContext(columns, rows)
        return OpenGl(model, rows, columns, context)
    except Exception:  # each fails in a way of its own, down to AttributeError from a library that is not there
        return None
