"""The robot's model: what it is made of, and what is said about a file that is no such robot."""

import subprocess
import sys

import mujoco
import numpy as np
import pytest

from legroom.errors import BadInput
from legroom_workloads.robot.biped import BIPED_XML, read_biped

OURS = BIPED_XML.read_text()


@pytest.fixture
def altered(tmp_path):
    """Our model with some text replaced, as a file."""

    def write(old, new, *, keyframe=True):
        assert old in OURS
        path = tmp_path / "mine.xml"
        text = OURS if keyframe else OURS[: OURS.index("  <keyframe>")] + "</mujoco>"
        path.write_text(text.replace(old, new))
        return path

    return write


def test_the_robot_has_eleven_servos_a_free_joint_and_a_plausible_weight():
    biped = read_biped()
    assert (biped.model.nu, biped.model.nq, biped.model.nv) == (11, 18, 17)
    assert 3 < biped.model.body_mass.sum() < 4
    assert len(biped.sensors) == 24 and len(set(biped.sensors)) == 24
    assert biped.substeps == 10  # 500 Hz of physics, 50 Hz of control


def test_gravity_is_up_as_the_pelvis_feels_it():
    biped = read_biped()
    data = mujoco.MjData(biped.model)
    data.qpos[:] = biped.stand
    data.qpos[3:7] = np.cos(0.25), 0, np.sin(0.25), 0  # half a radian forward, about y
    mujoco.mj_forward(biped.model, data)
    # Leaning forward, up lies behind: x of it is -sin 0.5.
    assert data.sensordata[biped.sensors[:3]] == pytest.approx([-np.sin(0.5), 0, np.cos(0.5)], abs=1e-6)


def test_only_the_soles_touch_the_ground():
    biped = read_biped()
    names = {biped.model.geom(int(each)).name for each in biped.soles}
    assert len(names) == 8 and all("toe" in name or "heel" in name for name in names)
    lowest = biped.stand[2] + biped.sole_points[:, 2] - biped.model.geom_size[biped.soles, 0]
    assert lowest == pytest.approx(np.zeros(8), abs=0.005)  # it stands on the ground, neither above nor in it


def test_a_file_that_is_not_there_is_one_line(tmp_path):
    with pytest.raises(BadInput, match="no such model file") as caught:
        read_biped(tmp_path / "nowhere.xml")
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("old", "new", "says"),
    [
        ('<freejoint name="root"/>', '<freejoint nome="root"/>', "nome"),
        ('<freejoint name="root"/>', '<freejoint name="root">', "mismatch|Mismatch|MISMATCH"),
    ],
)
def test_xml_errors_name_file_and_line(altered, old, new, says):
    path = altered(old, new)
    with pytest.raises(BadInput, match=says) as caught:
        read_biped(path)
    line = 1 + OURS[: OURS.index(old)].count("\n")
    assert str(caught.value).startswith(f"{path}:") and "\n" not in str(caught.value)
    if new.endswith("/>"):  # of a tag that is never closed, the line is wherever that was noticed
        assert caught.value.line == line
    else:
        assert caught.value.line is not None


@pytest.mark.parametrize(
    ("old", "new", "says"),
    [
        ('joint="waist_yaw" ctrlrange="-0.8 0.8"', 'joint="waist_yaw"', "ctrlrange"),
        ('key name="stand"', 'key name="sit"', "stand"),
        ('timestep="0.002"', 'timestep="0.003"', "0.003"),
        ('<gyro name="gyro_chest" site="chest_imu" cutoff="35"/>', "", "2 gyros"),
        ('frameangvel name="angvel"', 'frameangvel name="turning"', "angvel"),
    ],
)
def test_a_robot_of_another_build_is_refused_by_what_is_missing(altered, old, new, says):
    with pytest.raises(BadInput, match=says):
        read_biped(altered(old, new))


def test_importing_the_workload_imports_no_simulator():
    code = "import sys, legroom_workloads.robot as r; print({'jax', 'mujoco', 'brax', 'gymnasium'} & set(sys.modules))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "set()"
