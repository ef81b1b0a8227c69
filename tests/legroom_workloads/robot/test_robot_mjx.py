"""The robot in MJX: as brax wants it, and the same robot as in plain MuJoCo."""

import numpy as np
import pytest

jax = pytest.importorskip("jax")

from legroom.errors import BadInput  # noqa: E402
from legroom_workloads.robot.biped import BIPED_XML  # noqa: E402
from legroom_workloads.robot.env import RobotEnv  # noqa: E402
from legroom_workloads.robot.gym_env import RobotGymEnv  # noqa: E402

# The robot is to be right here, not fast: a third of the time to compile.
QUICKLY = {"xla_backend_optimization_level": 0, "xla_llvm_disable_expensive_passes": True}


@pytest.fixture(scope="module")
def env():
    """One for all: what jax has followed once it knows."""
    return RobotEnv("rough")


@pytest.mark.slow
def test_brax_gets_the_shapes_that_it_asks_for(env):
    """Wrapped as for training, a step returns exactly the shapes and types that it was given: brax scans over it."""
    from brax.envs.wrappers.training import wrap

    assert (env.observation_size, env.action_size, env.dt) == (58, 11, pytest.approx(0.02))
    many = wrap(env, episode_length=100)
    state = jax.eval_shape(many.reset, jax.ShapeDtypeStruct((5, 2), np.uint32))
    after = jax.eval_shape(many.step, state, jax.ShapeDtypeStruct((5, 11), np.float32))
    assert state.obs.shape == (5, 58) and state.pipeline_state.qpos.shape == (5, 18)
    described = [jax.tree.map(lambda each: (each.shape, each.dtype), tree) for tree in (state, after)]
    assert described[0] == described[1]


@pytest.mark.slow
def test_the_robot_is_the_same_as_in_plain_mujoco(env):
    """On rough ground, from one state and with the same actions: observation, reward and fall, step by step."""
    gym_env = RobotGymEnv("rough")
    rng = np.random.default_rng(0)
    first, _ = gym_env.reset(seed=4)
    state = env.begin(gym_env.data.qpos, gym_env.data.qvel, command=gym_env.command, phases=gym_env.phases)
    assert np.asarray(state.obs) == pytest.approx(first, abs=1e-6)
    step = jax.jit(env.step).lower(state, np.zeros(11, np.float32)).compile(QUICKLY)
    for number in range(8):
        action = (0.5 * rng.standard_normal(11)).astype(np.float32)
        state = step(state, action)
        observation, reward, fallen, _, info = gym_env.step(action)
        # Accelerometers jump by g as a sole lands, and two steps of solver end a little apart: they are compared last.
        loose = 10.0**number
        exact = np.r_[0:37, 46:58]
        assert np.asarray(state.obs)[exact] == pytest.approx(observation[exact], abs=min(2e-4 * loose, 2e-2))
        assert np.median(np.abs(np.asarray(state.obs)[37:46] - observation[37:46])) < min(0.02 * loose, 2.0)
        assert float(state.reward) == pytest.approx(reward, abs=min(1e-4 * loose, 1e-2))
        assert bool(state.done) == fallen
        assert float(state.metrics["forward_speed"]) == pytest.approx(info["forward_speed"], abs=5e-3)


def test_a_start_in_mjx_is_made_as_in_mujoco():
    env = RobotEnv("rough", speeds=[0.1, 0.3])
    states = [env.reset(jax.random.PRNGKey(seed)) for seed in range(3)]
    commands = [float(state.obs[-1]) for state in states]
    assert all(0.1 <= each <= 0.3 for each in commands) and len(set(commands)) == 3
    assert all(abs(float(state.pipeline_state.qpos[2]) - 0.383) <= 0.02 for state in states)


def test_what_mjx_cannot_simulate_is_one_line(tmp_path):
    path = tmp_path / "mine.xml"
    path.write_text(BIPED_XML.read_text().replace('solver="Newton"', 'solver="PGS"'))
    with pytest.raises(BadInput, match="MJX cannot simulate it") as caught:
        RobotEnv(model=str(path))
    assert str(caught.value).startswith(str(path))


def test_bad_arguments_are_one_clear_line():
    with pytest.raises(BadInput, match="flat or rough"):
        RobotEnv("lunar")
    with pytest.raises(BadInput, match="did you mean speeds"):
        RobotEnv(speed=1)
