"""Read the robot's MJCF and find in it what the environments need.

Anybody's model of a biped will do (`model=` of both environments) if it is made like `biped.xml` beside this file: a
free joint and then eleven joints, each with one position actuator in the same order; sensors; a pose to stand in. What
is missing is said by name before anything is compiled, as a wrong index would show only in a robot that never learns.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from legroom.extend import BadInput, MissingExtra

try:
    import mujoco
except ImportError:
    raise MissingExtra("jax", "mujoco", what="the robot") from None

BIPED_XML = Path(__file__).with_name("biped.xml")
N_JOINTS = 11
CONTROL_S = 0.02  # 50 Hz
N_IMUS = 3  # gyros and accelerometers: one in the chest, one in each foot
N_SENSED = 6 + 6 * N_IMUS  # gravity and angvel of the pelvis, and of each imu gyro and accelerometer
LIKE_OURS = f"legroom's own is {BIPED_XML}"
_GYRO, _ACCELEROMETER = int(mujoco.mjtSensor.mjSENS_GYRO), int(mujoco.mjtSensor.mjSENS_ACCELEROMETER)


@dataclass(frozen=True)
class Biped:
    """A compiled model and where things are in it.

    `stand` is the pose [18] of the keyframe "stand", the free joint first; `low` and `high` the servos' ranges [11];
    `sensors` the addresses [24] of gravity, angvel, gyros and accelerometers in `sensordata`; `soles` the geoms [P]
    that touch the ground and `sole_points` where they are in the stand pose [P, 3], in the frame of the pelvis;
    `substeps` of physics per step of control.
    """

    model: Any
    stand: NDArray[np.float64]
    low: NDArray[np.float64]
    high: NDArray[np.float64]
    sensors: NDArray[np.int32]
    soles: NDArray[np.int32]
    sole_points: NDArray[np.float64]
    substeps: int


def read_biped(path: str | Path | None = None, *, rough: bool = False) -> Biped:
    """Return the robot of an MJCF file, legroom's own by default; `rough`: with a ground of its own per sole point.

    Raises:
        BadInput: no such file, XML that MuJoCo refuses (with the line where it says one), or a model of another build.
    """
    path = BIPED_XML if path is None else Path(path)
    if not path.is_file():
        raise BadInput("no such model file", path=path, hint=LIKE_OURS)
    try:
        spec = mujoco.MjSpec.from_file(str(path))
        if rough:
            _split_floor(spec, path)
        model = spec.compile()
    except (ValueError, mujoco.FatalError) as error:
        raise _xml_error(error, path) from error
    return _find_parts(model, path)


def _split_floor(spec: Any, path: Path) -> None:
    """Give each pair of the floor and a sole point a ground of its own, to be moved while the robot walks."""
    pairs = [pair for pair in spec.pairs if pair.geomname1 == "floor"]
    if not pairs:
        raise BadInput(
            'no <pair geom1="floor" …>, which rough terrain needs to know the soles by', path=path, hint=LIKE_OURS
        )
    for number, pair in enumerate(pairs):
        name = f"ground_{number}"
        ground = spec.worldbody.add_body(name=name, mocap=True)
        # Planes cannot be seen: pictures draw the waves instead.
        ground.add_geom(
            name=name, type=mujoco.mjtGeom.mjGEOM_PLANE, size=[0, 0, 1], rgba=[0, 0, 0, 0], contype=0, conaffinity=0
        )
        pair.geomname1 = name
    floor = spec.geom("floor")
    floor.material, floor.rgba = "", [0, 0, 0, 0]


def _xml_error(error: Exception, path: Path) -> BadInput:
    """Return MuJoCo's complaint as one line that begins with the file and, where it is told, the line in it."""
    text = " ".join(str(error).split())
    line = re.search(r"[Ll]ine(?: number)?[ =:]+(\d+)", text)
    what = re.sub(r"^(XML|Schema)?\s*[Ee]rror:?\s*", "", text)
    return BadInput(f"not a model: {what}", path=path, line=int(line[1]) if line else None)


def _find_parts(model: Any, path: Path) -> Biped:
    def refuse(message: str) -> BadInput:
        return BadInput(message, path=path, hint=LIKE_OURS)

    joints = N_JOINTS + 1
    if model.njnt != joints or model.jnt_type[0] != mujoco.mjtJoint.mjJNT_FREE or model.nv != 6 + N_JOINTS:
        raise refuse(
            f"{model.njnt} joints, {model.nv} degrees of freedom; the robot has a free joint and {N_JOINTS} hinges"
        )
    driven = [int(model.actuator_trnid[each, 0]) for each in range(model.nu)]
    if driven != list(range(1, joints)) or not (model.actuator_trntype == mujoco.mjtTrn.mjTRN_JOINT).all():
        raise refuse(f"{model.nu} actuators; the robot has {N_JOINTS}, one per hinge and in the same order")
    if not model.actuator_ctrllimited.all():
        raise refuse("an actuator without a ctrlrange, which is all that keeps a joint from turning too far")
    key = mujoco.mj_name2id(model, mujoco.mjtObj.mjOBJ_KEY, "stand")
    if key < 0:
        raise refuse('no keyframe "stand", the pose that an action of zero asks for')
    substeps = CONTROL_S / model.opt.timestep
    if abs(substeps - round(substeps)) > 1e-6 or substeps < 1:
        raise refuse(f"a timestep of {model.opt.timestep:g} s does not divide the {CONTROL_S} s of a control step")
    sensors = np.concatenate(
        [
            _named_sensor(model, "gravity", refuse),
            _named_sensor(model, "angvel", refuse),
            _sensors_of(model, _GYRO, "gyros", refuse),
            _sensors_of(model, _ACCELEROMETER, "accelerometers", refuse),
        ]
    )
    stand = np.array(model.key_qpos[key])
    soles, points = _sole_points(model, stand)
    if not len(soles):
        raise refuse('no <contact> with a <pair geom1="floor" geom2="…">: nothing would touch the ground')
    low, high = model.actuator_ctrlrange.T.copy()
    return Biped(model, stand, low, high, sensors.astype(np.int32), soles, points, round(substeps))


def _named_sensor(model: Any, name: str, refuse: Any) -> NDArray[np.int32]:
    number = mujoco.mj_name2id(model, mujoco.mjtObj.mjOBJ_SENSOR, name)
    if number < 0 or model.sensor_dim[number] != 3:
        raise refuse(f'no sensor "{name}" of three numbers')
    return model.sensor_adr[number] + np.arange(3)


def _sensors_of(model: Any, kind: int, what: str, refuse: Any) -> NDArray[np.int32]:
    found = np.flatnonzero(model.sensor_type == kind)
    if len(found) != N_IMUS:
        raise refuse(f"{len(found)} {what}; the robot has {N_IMUS}")
    return (model.sensor_adr[found][:, None] + np.arange(3)).reshape(-1)


def _sole_points(model: Any, stand: NDArray[np.float64]) -> tuple[NDArray[np.int32], NDArray[np.float64]]:
    """Return the geoms that touch the ground, and their places under a pelvis at the origin."""
    # The compiler orders a pair by its bodies, so the ground may be either of the two.
    first, second = model.pair_geom1, model.pair_geom2
    first_is_ground = model.geom_type[first] == mujoco.mjtGeom.mjGEOM_PLANE
    soles = np.where(first_is_ground, second, first).astype(np.int32)
    data = mujoco.MjData(model)
    data.qpos[:] = stand
    data.qpos[:3] = 0
    mujoco.mj_kinematics(model, data)
    return soles, np.array(data.geom_xpos[soles])
