"""What the robot is asked to do, and what it gets for it: walk forward at a commanded speed and do not fall.

Everything here is written once for both simulators: each function takes the array module, `numpy` (one robot, plain
MuJoCo) or `jax.numpy` (thousands, MJX), and nothing in it depends on which. So a policy that was trained in MJX is
judged by the very same observation, reward and fall.

The observation, 58 numbers: the joints' angles against the stand pose (11) and their speeds (11); up, as the pelvis
feels it (3); the turning of the pelvis (3); three gyros (9) and three accelerometers (9), in the chest and the feet;
the last action (11); the commanded speed (1). Sensors are read as the last substep began, 2 ms ago, as MuJoCo has it.
There is no forward speed among them, nor a place or a heading: a robot has no such sensor.
"""

from __future__ import annotations

import difflib
import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from legroom.extend import BadInput
from legroom_workloads.robot.biped import N_JOINTS, N_SENSED, Biped
from legroom_workloads.robot.ground import N_WAVES, TERRAINS, height

OBSERVATION_SIZE = 3 * N_JOINTS + N_SENSED + 1  # 58
ACTION_SIZE = N_JOINTS
# A start is made of so many uniform numbers: heading, joints, the push of the pelvis (x, y), the command, the waves.
START_SIZE = 1 + N_JOINTS + 2 + 1 + N_WAVES
FALLEN_HEIGHT = 0.65  # of the pelvis, as a share of its height when standing
FALLEN_UP = 0.6  # the cosine of 53 degrees
# What a step of 20 ms pays. Standing still at a command of zero pays nearly all of it; falling ends the income.
PAY_ALIVE, PAY_SPEED, PAY_UPRIGHT = 1.0, 1.5, 0.5
SPEED_SCALE = 0.25  # m/s off the command that leave exp(-1) of its pay
UPRIGHT_SCALE = 0.1  # of squared sine of the tilt
COST_SIDEWAYS, COST_TURNING, COST_JERK = 0.5, 0.05, 0.02


@dataclass(frozen=True)
class Task:
    """What can be chosen, checked once.

    Args:
        terrain: "flat" or "rough" (see `ground`).
        roughness_m: how high the waves of rough terrain are at most; the lowest trough is as far below zero.
        speeds: the slowest and the fastest command, in m/s; each episode has one between them.
        reach_rad: how far from the stand pose an action of ±1 moves a servo's target.
        start_noise: 0 to 1; how much of the random start there is: joints off by up to 0.1 rad, and a push of up to
            0.3 m/s in either direction.
        model: a MJCF file of your own (see `biped`).

    Raises:
        BadInput: an argument that is out of its range.
    """

    terrain: str = "flat"
    roughness_m: float = 0.02
    speeds: tuple[float, float] = (0.0, 0.5)
    reach_rad: float = 0.5
    start_noise: float = 1.0
    model: str | Path | None = None

    def __post_init__(self) -> None:
        if self.terrain not in TERRAINS:
            raise BadInput(f"terrain is {self.terrain!r}", hint=" or ".join(TERRAINS))
        _within("roughness_m", self.roughness_m, 0, 0.1)
        _within("reach_rad", self.reach_rad, 0.01, 2)
        _within("start_noise", self.start_noise, 0, 1)
        if not isinstance(self.speeds, list | tuple) or len(self.speeds) != 2:
            raise BadInput(f"speeds is {self.speeds!r}", hint="two numbers: the slowest and the fastest command in m/s")
        for speed in self.speeds:
            _within("speeds", speed, -2, 2)
        if self.speeds[0] > self.speeds[1]:
            raise BadInput(f"speeds is {list(self.speeds)}", hint="the slower one first")
        if self.model is not None and not isinstance(self.model, str | Path):
            raise BadInput(f"model is {self.model!r}", hint="the name of a MJCF file")

    @classmethod
    def of(cls, arguments: Mapping[str, Any]) -> Task:
        """Return the task of these arguments.

        Raises:
            BadInput: an argument that there is not, or a value out of its range.
        """
        known = list(cls.__dataclass_fields__)
        for name in arguments:
            if name not in known:
                close = difflib.get_close_matches(name, known, 1)
                raise BadInput(f"no argument {name!r}", hint=f"did you mean {close[0]}?" if close else ", ".join(known))
        return cls(**arguments)

    @property
    def rough(self) -> bool:
        """Whether the ground has waves."""
        return self.terrain == "rough"


@dataclass(frozen=True)
class Outcome:
    """What a step led to: the reward, whether the robot fell, and how fast it walks (m/s, in its own direction)."""

    reward: Any
    fallen: Any
    forward_speed: Any


def start(xp: Any, task: Task, biped: Biped, uniform: Any) -> tuple[Any, Any, Any, Any]:
    """Return pose [18], velocity [17], command [] and phases of the waves [4] of an episode.

    Args:
        uniform: [START_SIZE], each from 0 to 1.
    """
    heading = 2 * math.pi * uniform[0]
    around = 2 * uniform[1 : 3 + N_JOINTS] - 1
    low, high = task.speeds
    command = low + (high - low) * uniform[3 + N_JOINTS]
    phases = 2 * math.pi * uniform[4 + N_JOINTS :]
    zeros = xp.zeros_like(uniform)
    turn = xp.stack([xp.cos(heading / 2), zeros[0], zeros[0], xp.sin(heading / 2)])
    lift = zeros[0]
    if task.rough:  # the highest ground below a sole decides how high the robot is put
        lift = height(xp, phases, task.roughness_m, sole_points(xp, biped, turn)).max()
    place = xp.stack([zeros[0], zeros[0], biped.stand[2] + lift])
    joints = biped.stand[7:] + 0.1 * task.start_noise * around[:N_JOINTS]
    push = 0.3 * task.start_noise * around[N_JOINTS:]
    return xp.concatenate([place, turn, joints]), xp.concatenate([push, zeros[: 4 + N_JOINTS]]), command, phases


def first_sensors(xp: Any, biped: Biped, qpos: Any) -> Any:
    """Return `sensordata` as an episode begins: up is known, nothing turns, and no acceleration has been measured yet.

    MuJoCo would make one step of physics for it, which in MJX is a second program to compile, as large as a step.
    """
    sensors = xp.zeros_like(qpos, shape=(biped.model.nsensordata,))
    up = rotation(xp, qpos[3:7])[2]  # the third row: the world's z in the pelvis' own axes
    first = int(biped.sensors[0])  # three in a row
    return xp.concatenate([sensors[:first], up, sensors[first + 3 :]])


def sole_points(xp: Any, biped: Biped, turn: Any) -> Any:
    """Return where the soles are in the stand pose with the pelvis at the origin and turned [P, 3]."""
    return biped.sole_points @ rotation(xp, turn).T


def rotation(xp: Any, quaternion: Any) -> Any:
    """Return the matrix [3, 3] whose columns are the turned axes."""
    w, x, y, z = quaternion[0], quaternion[1], quaternion[2], quaternion[3]
    return xp.stack(
        [
            xp.stack([1 - 2 * (y * y + z * z), 2 * (x * y - w * z), 2 * (x * z + w * y)]),
            xp.stack([2 * (x * y + w * z), 1 - 2 * (x * x + z * z), 2 * (y * z - w * x)]),
            xp.stack([2 * (x * z - w * y), 2 * (y * z + w * x), 1 - 2 * (x * x + y * y)]),
        ]
    )


def targets(xp: Any, task: Task, biped: Biped, action: Any) -> Any:
    """Return what the servos are told [11], in rad, for an action [11] within ±1."""
    return xp.clip(biped.stand[7:] + task.reach_rad * action, biped.low, biped.high)


def observe(xp: Any, biped: Biped, qpos: Any, qvel: Any, *, sensors: Any, action: Any, command: Any) -> Any:
    """Return the observation [58]; `sensors` is MuJoCo's `sensordata`."""
    read = sensors[biped.sensors]
    return xp.concatenate([qpos[7:] - biped.stand[7:], qvel[6:], read, action, xp.reshape(command, (1,))])


def judge(
    xp: Any, task: Task, biped: Biped, qpos: Any, qvel: Any, *, action: Any, before: Any, command: Any, phases: Any
) -> Outcome:
    """Return what a step led to; `before` is the action of the step before."""
    axes = rotation(xp, qpos[3:7])
    up = axes[2, 2]
    # The pelvis' own x axis, laid flat, is where the robot is going.
    ahead_x, ahead_y = axes[0, 0], axes[1, 0]
    length = xp.sqrt(ahead_x * ahead_x + ahead_y * ahead_y) + 1e-6
    forward = (qvel[0] * ahead_x + qvel[1] * ahead_y) / length
    sideways = (qvel[1] * ahead_x - qvel[0] * ahead_y) / length
    ground = height(xp, phases, task.roughness_m, qpos) if task.rough else 0.0
    # Asked this way round, a robot whose simulation broke down (NaN) has fallen too, and begins again.
    fallen = ~((qpos[2] - ground >= FALLEN_HEIGHT * biped.stand[2]) & (up >= FALLEN_UP))
    reward = (
        PAY_ALIVE
        + PAY_SPEED * xp.exp(-(((forward - command) / SPEED_SCALE) ** 2))
        + PAY_UPRIGHT * xp.exp(-(1 - up * up) / UPRIGHT_SCALE)
        - COST_SIDEWAYS * sideways**2
        - COST_TURNING * qvel[5] ** 2
        - COST_JERK * ((action - before) ** 2).sum()
    )
    return Outcome(xp.where(fallen, 0.0, reward), fallen, xp.nan_to_num(forward))


def _within(name: str, value: Any, low: float, high: float) -> None:
    if isinstance(value, bool) or not isinstance(value, int | float) or not low <= value <= high:
        raise BadInput(f"{name} is {value!r}", hint=f"a number from {low:g} to {high:g}")
