"""The ground that the robot walks on: a plane, or gentle waves that differ from episode to episode.

Rough terrain is a height field in most simulators. MJX collides a sphere with every triangle that a height field has
below it, for every one of thousands of robots, so here the ground is a smooth function of x and y instead: a sum of
waves with random phases, `roughness` metres high at most. Under each point of the soles lies a plane of its own, a
MuJoCo mocap body, which is moved every two milliseconds to touch that function from above at the point's x and y. The
waves are long against the soles' spheres (0.4 m and more against 12 mm), so a tangent plane is what such a sphere would
touch anyway, to a tenth of a millimetre. A step, a stair or a stone cannot be had this way.

All functions take the array module, `numpy` or `jax.numpy`, so that both simulators have the same ground.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

TERRAINS = ("flat", "rough")
# Wave vectors in rad/m: four directions that no symmetry of the robot favours, 0.4 to 1.1 m from crest to crest.
_WAVES = tuple(
    (2 * math.pi / length_m, direction) for length_m, direction in ((1.1, 0.3), (0.8, 1.2), (0.55, 2.2), (0.4, 2.9))
)
WAVE_VECTORS = np.array([(k * math.cos(a), k * math.sin(a)) for k, a in _WAVES], np.float32)
N_WAVES = len(WAVE_VECTORS)


def height(xp: Any, phases: Any, roughness: float, points: Any) -> Any:
    """Return the height of the ground [...] at points [..., 2 or more], in metres, within ±roughness."""
    return roughness / N_WAVES * xp.sin(points[..., :2] @ WAVE_VECTORS.T + phases).sum(-1)


def tangent_planes(xp: Any, phases: Any, roughness: float, points: Any) -> tuple[Any, Any]:
    """Return the planes that touch the ground at the x and y of points [P, 3]: places [P, 3], quaternions [P, 4]."""
    slopes = roughness / N_WAVES * (xp.cos(points[..., :2] @ WAVE_VECTORS.T + phases) @ WAVE_VECTORS)
    normal = _unit(xp, xp.concatenate([-slopes, xp.ones_like(slopes[..., :1])], -1))
    # The shortest turn from z to the normal has its axis along z × normal = (-ny, nx, 0).
    turn = [1 + normal[..., 2:], -normal[..., 1:2], normal[..., :1], xp.zeros_like(normal[..., :1])]
    place = xp.concatenate([points[..., :2], height(xp, phases, roughness, points)[..., None]], -1)
    return place, _unit(xp, xp.concatenate(turn, -1))


def _unit(xp: Any, vectors: Any) -> Any:
    return vectors / xp.sqrt((vectors * vectors).sum(-1, keepdims=True))
