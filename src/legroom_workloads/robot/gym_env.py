"""The robot in plain MuJoCo as a gymnasium environment: one at a time, for judging a policy and for pictures.

The same observation, reward and fall as `RobotEnv`, from the same functions (`task`); what differs is the simulator and
its precision, 64 bits here and 32 there. Two runs from one state agree to about four digits for a step, and then drift
apart, as every robot does that is about to fall.
"""

from __future__ import annotations

from typing import Any

import gymnasium as gym
import mujoco
import numpy as np
from gymnasium import spaces
from numpy.typing import NDArray

from legroom.extend import BadInput
from legroom_workloads.robot import task as rules
from legroom_workloads.robot.biped import CONTROL_S, read_biped
from legroom_workloads.robot.ground import N_WAVES, tangent_planes
from legroom_workloads.robot.task import ACTION_SIZE, OBSERVATION_SIZE, START_SIZE, Task

# What physics depends on, apart from the grounds below the soles and the command.
_PHYSICS = mujoco.mjtState.mjSTATE_INTEGRATION


class RobotGymEnv(gym.Env[NDArray[np.float32], NDArray[np.float32]]):
    """Walk at a commanded speed; see `Task` for the arguments. `info` has `forward_speed` and `command`, in m/s.

    Args:
        episode_steps: after which an episode is truncated.
        render_mode: None or "rgb_array".

    Raises:
        BadInput: an argument or a model that cannot be used.
    """

    metadata: dict[str, Any] = {"render_modes": ["rgb_array"], "render_fps": round(1 / CONTROL_S)}  # noqa: RUF012
    score = "legroom_workloads.robot.score:score_policy"  # who judges a policy of this environment
    picture = "legroom_workloads.robot.pictures:save_gif"  # and who films it

    def __init__(
        self,
        terrain: str = "flat",
        *,
        episode_steps: int = 1000,
        render_mode: str | None = None,
        **arguments: Any,
    ) -> None:
        if isinstance(episode_steps, bool) or not isinstance(episode_steps, int) or episode_steps < 1:
            raise BadInput(f"episode_steps is {episode_steps!r}", hint="a whole number from 1")
        if render_mode not in (None, "rgb_array"):
            raise BadInput(f"render_mode is {render_mode!r}", hint="rgb_array, or leave it out")
        self.task = Task.of({"terrain": terrain, **arguments})
        self.biped = read_biped(self.task.model, rough=self.task.rough)
        self.episode_steps, self.render_mode = episode_steps, render_mode
        self.observation_space = spaces.Box(-np.inf, np.inf, (OBSERVATION_SIZE,), np.float32)
        self.action_space = spaces.Box(-1, 1, (ACTION_SIZE,), np.float32)
        self.data = mujoco.MjData(self.biped.model)
        self.command, self.phases = 0.0, np.zeros(N_WAVES)
        self._action = np.zeros(ACTION_SIZE)
        self._steps = 0
        self._pictures: Any = None

    # -- episodes -----------------------------------------------------------------------------------------------------

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[NDArray[np.float32], dict[str, Any]]:
        """Begin an episode; options {"command": 0.4} sets the speed to walk at.

        Raises:
            BadInput: a command that is no number.
        """
        super().reset(seed=seed)
        qpos, qvel, command, self.phases = rules.start(
            np, self.task, self.biped, self.np_random.uniform(size=START_SIZE)
        )
        wanted = (options or {}).get("command", float(command))
        if isinstance(wanted, bool) or not isinstance(wanted, int | float) or not np.isfinite(wanted):
            raise BadInput(f"command is {wanted!r}", hint="a speed in m/s")
        self.command = float(wanted)
        mujoco.mj_resetData(self.biped.model, self.data)
        self.data.qpos[:], self.data.qvel[:] = qpos, qvel
        self._action, self._steps = np.zeros(ACTION_SIZE), 0
        self._put_ground(qpos[:3] + rules.sole_points(np, self.biped, qpos[3:7]))
        self._place_bodies()
        self.data.sensordata[:] = rules.first_sensors(np, self.biped, qpos)
        return self._observe(), self._info(0.0)

    def step(self, action: NDArray[np.float32]) -> tuple[NDArray[np.float32], float, bool, bool, dict[str, Any]]:
        """Let 20 ms pass with the servos' targets as `action` [11], within ±1, says."""
        before, self._action = self._action, np.clip(np.asarray(action, np.float64).reshape(ACTION_SIZE), -1, 1)
        model, data = self.biped.model, self.data
        data.ctrl[:] = rules.targets(np, self.task, self.biped, self._action)
        if self.task.rough:
            for _ in range(self.biped.substeps):
                mujoco.mj_step(model, data)
                self._put_ground(data.geom_xpos[self.biped.soles])
        else:
            mujoco.mj_step(model, data, self.biped.substeps)
        self._steps += 1
        outcome = rules.judge(
            np,
            self.task,
            self.biped,
            data.qpos,
            data.qvel,
            action=self._action,
            before=before,
            command=self.command,
            phases=self.phases,
        )
        truncated = self._steps >= self.episode_steps and not outcome.fallen
        info = self._info(float(outcome.forward_speed))
        return self._observe(), float(outcome.reward), bool(outcome.fallen), bool(truncated), info

    def _observe(self) -> NDArray[np.float32]:
        data = self.data
        seen = rules.observe(
            np,
            self.biped,
            data.qpos,
            data.qvel,
            sensors=data.sensordata,
            action=self._action,
            command=np.float64(self.command),
        )
        return seen.astype(np.float32)

    def _info(self, forward_speed: float) -> dict[str, Any]:
        return {"forward_speed": forward_speed, "command": self.command}

    def _place_bodies(self) -> None:
        """Put bodies and lights where the pose has them, for pictures and whoever reads `data.xpos`."""
        mujoco.mj_kinematics(self.biped.model, self.data)
        mujoco.mj_camlight(self.biped.model, self.data)

    def _put_ground(self, points: NDArray[np.float64]) -> None:
        if self.task.rough:
            pos, quat = tangent_planes(np, self.phases, self.task.roughness_m, points)
            self.data.mocap_pos[:], self.data.mocap_quat[:] = pos, quat

    # -- state, so that a training or a film can go on where it was ---------------------------------------------------

    def get_state(self) -> dict[str, Any]:
        """Return all that the rest of the episode depends on, as arrays and plain numbers."""
        size = mujoco.mj_stateSize(self.biped.model, _PHYSICS)
        physics = np.empty(size)
        mujoco.mj_getState(self.biped.model, self.data, physics, _PHYSICS)
        return {
            "physics": physics,
            "sensors": self.data.sensordata.copy(),
            "action": self._action.copy(),
            "phases": self.phases.copy(),
            "command": self.command,
            "steps": self._steps,
            "rng": self.np_random.bit_generator.state,
        }

    def set_state(self, state: dict[str, Any]) -> None:
        """Go on from a state that `get_state` returned, of an environment with the same arguments.

        Raises:
            BadInput: a state of another model.
        """
        size = mujoco.mj_stateSize(self.biped.model, _PHYSICS)
        if np.shape(state["physics"]) != (size,):
            raise BadInput(f"a state of {np.size(state['physics'])} numbers, where this robot has {size}")
        mujoco.mj_setState(self.biped.model, self.data, np.asarray(state["physics"], np.float64), _PHYSICS)
        self._place_bodies()
        self.data.sensordata[:] = state["sensors"]
        self._action, self.phases = np.array(state["action"], np.float64), np.array(state["phases"], np.float64)
        self.command, self._steps = float(state["command"]), int(state["steps"])
        self.np_random.bit_generator.state = state["rng"]

    # -- pictures -----------------------------------------------------------------------------------------------------

    def render(self) -> NDArray[np.uint8] | None:  # type: ignore[override]
        """Return a picture [240, 320, 3] as the robot stands, None without a render mode."""
        if self.render_mode is None:
            return None
        if self._pictures is None:
            from legroom_workloads.robot.pictures import Pictures

            self._pictures = Pictures(self)
        return self._pictures.picture()

    def close(self) -> None:
        """Let go of the renderer."""
        if self._pictures is not None:
            self._pictures.close()
            self._pictures = None
