"""The robot in MJX, as brax trains it: pure functions of a state, for thousands of robots at once.

What is carried from step to step is only what physics needs to go on (`Physics`, some hundred numbers), not MJX's whole
`Data` with its matrices and contacts (several thousand): brax keeps a second copy of it per robot for its automatic
reset, and every buffer of it is there for as long as the training is. The rest is made again within each step.

brax resets a robot to the state that it began with, not to a new one, and leaves `info` alone: each robot keeps its
command and its ground for a whole training, and the variety is in the number of robots.
"""

from __future__ import annotations

import contextlib
import io
from dataclasses import replace
from typing import Any

import jax
import jax.numpy as jnp
from brax.envs.base import Env, State
from flax import struct

from legroom.extend import BadInput
from legroom_workloads.robot import task as rules
from legroom_workloads.robot.biped import read_biped
from legroom_workloads.robot.ground import tangent_planes
from legroom_workloads.robot.task import ACTION_SIZE, OBSERVATION_SIZE, Task

with contextlib.redirect_stdout(io.StringIO()):  # it prints that it was installed without its Warp
    from mujoco import mjx


@struct.dataclass
class Physics:
    """All that the next step depends on; the grounds below the soles [P, 3 and 4] only where terrain is rough."""

    qpos: jax.Array
    qvel: jax.Array
    warmstart: jax.Array
    action: jax.Array
    ground_pos: jax.Array
    ground_quat: jax.Array


class RobotEnv(Env):
    """Walk at a commanded speed; see `Task` for the arguments, and `RobotGymEnv` for the same in plain MuJoCo.

    Metrics, summed over an episode by brax: `forward_speed` and `speed_error` in m/s.

    Raises:
        BadInput: an argument or a model that cannot be used.
    """

    score = "legroom_workloads.robot.score:score_policy"  # who judges a policy of this environment
    picture = "legroom_workloads.robot.pictures:save_gif"  # and who films it

    def __init__(self, terrain: str = "flat", **arguments: Any) -> None:
        self.task = Task.of({"terrain": terrain, **arguments})
        self.biped = read_biped(self.task.model, rough=self.task.rough)
        try:
            self._model = mjx.put_model(self.biped.model, impl="jax")
        except NotImplementedError as error:
            raise BadInput(f"MJX cannot simulate it: {error}", path=self.task.model) from error
        self._blank = mjx.make_data(self.biped.model, impl="jax")
        # Following MJX through a step takes seconds, and a training asks for it many times: training, evaluation, and
        # every scan around them. jit remembers what it has followed.
        self._advance = jax.jit(self._substeps)

    # -- as brax wants it ---------------------------------------------------------------------------------------------

    def reset(self, rng: jax.Array) -> State:
        """Begin an episode from a random pose, with a random command and ground."""
        uniform = jax.random.uniform(rng, (rules.START_SIZE,))
        qpos, qvel, command, phases = rules.start(jnp, self.task, self.biped, uniform)
        return self.begin(qpos, qvel, command=command, phases=phases)

    def begin(self, qpos: jax.Array, qvel: jax.Array, *, command: jax.Array, phases: jax.Array) -> State:
        """Begin an episode from this pose [18] and velocity [17]."""
        qpos, qvel, command, phases = (jnp.asarray(each, jnp.float32) for each in (qpos, qvel, command, phases))
        physics = Physics(
            qpos, qvel, jnp.zeros_like(qvel), jnp.zeros(ACTION_SIZE), self._blank.mocap_pos, self._blank.mocap_quat
        )
        physics = self._on_ground(physics, qpos[:3] + rules.sole_points(jnp, self.biped, qpos[3:7]), phases)
        sensors = rules.first_sensors(jnp, self.biped, qpos)
        zero = jnp.zeros(())
        metrics = {"forward_speed": zero, "speed_error": zero}
        info = {"command": command, "phases": phases}
        return State(physics, self._observe(physics, sensors, command), zero, zero, metrics, info)

    def step(self, state: State, action: jax.Array) -> State:
        """Let 20 ms pass with the servos' targets as `action` [11], within ±1, says."""
        before: Any = state.pipeline_state
        command, phases = state.info["command"], state.info["phases"]
        action = jnp.clip(action, -1, 1)
        physics, sensors = self._advance(replace(before, action=action), phases)
        outcome = rules.judge(
            jnp,
            self.task,
            self.biped,
            physics.qpos,
            physics.qvel,
            action=action,
            before=before.action,
            command=command,
            phases=phases,
        )
        metrics = dict(
            state.metrics,
            forward_speed=outcome.forward_speed,
            speed_error=jnp.abs(outcome.forward_speed - command),
        )
        return state.replace(
            pipeline_state=physics,
            obs=self._observe(physics, sensors, command),
            reward=outcome.reward,
            done=outcome.fallen.astype(jnp.float32),
            metrics=metrics,
        )

    @property
    def observation_size(self) -> int:
        """58, see `task`."""
        return OBSERVATION_SIZE

    @property
    def action_size(self) -> int:
        """11, one per servo."""
        return ACTION_SIZE

    @property
    def backend(self) -> str:
        """Who simulates, in brax's words."""
        return "mjx"

    @property
    def dt(self) -> float:
        """Seconds per step."""
        return float(self.biped.substeps * self.biped.model.opt.timestep)

    # -- physics ------------------------------------------------------------------------------------------------------

    def _substeps(self, physics: Physics, phases: jax.Array) -> tuple[Physics, jax.Array]:
        """Return physics after 20 ms, and what the sensors said as the last substep began."""

        def substep(carried: tuple[Physics, jax.Array], _: None) -> tuple[tuple[Physics, jax.Array], None]:
            physics, _sensors = carried
            data = mjx.step(self._model, self._data(physics))
            physics = replace(physics, qpos=data.qpos, qvel=data.qvel, warmstart=data.qacc_warmstart)
            return (self._on_ground(physics, data.geom_xpos[self.biped.soles], phases), data.sensordata), None

        first = (physics, self._blank.sensordata)
        (physics, sensors), _ = jax.lax.scan(substep, first, None, length=self.biped.substeps)
        return physics, sensors

    def _data(self, physics: Physics) -> Any:
        return self._blank.replace(
            qpos=physics.qpos,
            qvel=physics.qvel,
            qacc_warmstart=physics.warmstart,
            ctrl=rules.targets(jnp, self.task, self.biped, physics.action),
            mocap_pos=physics.ground_pos,
            mocap_quat=physics.ground_quat,
        )

    def _on_ground(self, physics: Physics, points: jax.Array, phases: jax.Array) -> Physics:
        """Put the grounds below these points of the soles [P, 3]."""
        if not self.task.rough:
            return physics
        pos, quat = tangent_planes(jnp, phases, self.task.roughness_m, points)
        return replace(physics, ground_pos=pos, ground_quat=quat)

    def _observe(self, physics: Physics, sensors: jax.Array, command: jax.Array) -> jax.Array:
        return rules.observe(
            jnp, self.biped, physics.qpos, physics.qvel, sensors=sensors, action=physics.action, command=command
        )
