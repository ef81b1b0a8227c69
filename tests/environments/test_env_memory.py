"""If these fail, an environment's own data and imports are missing from a bill, or counted where they are not."""

from pathlib import Path
from textwrap import dedent

import pytest

from legroom.backends.sb3.base_figures import BaseFigures
from legroom.backends.sb3.bill.processes import envs_items, evaluation_items
from legroom.environments import env_look
from legroom.model.evidence import EnvMemory, EnvTask, Evidence
from legroom.model.footprint import Footprint, Known, Place
from legroom.model.machine import Machine
from legroom.model.run import Run
from legroom.model.verdict import Budget, fits
from legroom.predicting.predict import predict
from legroom.reading import read

MACHINE = Machine(ram=1, limit=None, available=1, swap=0, shm=0)
MEMORY = EnvMemory(imports=20, first=10, more=4, mapped=100, script=7, script_mapped=50)
SCRIPT = """
    import gymnasium as gym
    import numpy as np
    from stable_baselines3 import PPO

    class Room(gym.Env):
        observation_space = gym.spaces.Box(0, 1, (6,), np.float32)
        action_space = gym.spaces.Discrete(2)

        def __init__(self, megabytes, late=0):
            self.maps, self.late = np.ones(megabytes * 1_000_000, np.uint8), late

        def reset(self, *, seed=None, options=None):
            return np.zeros(6, np.float32), {}

        def step(self, action):
            if self.late:
                self.found, self.late = np.ones(self.late * 1_000_000, np.uint8), 0
            return np.zeros(6, np.float32), 0.0, False, False, {}

    if __name__ == "__main__":
        raise RuntimeError("a prediction trains nothing")

    PPO("MlpPolicy", Room(40, late=25)).learn(1000)
"""


def bill(memory: EnvMemory | None = MEMORY, not_built: str = "", evaluation: object = None, **env: object) -> dict:
    spaces = {"observation": {"type": "box", "shape": [6]}, "action": {"type": "discrete", "n": 2}}
    run = Run.model_validate({"algo": "PPO", "env": {"spaces": spaces, **env}, "eval": evaluation})
    base = BaseFigures(0, 0, 0, {}, Known.DEFAULT)
    evidence = Evidence(MACHINE, "cpu", base, env=memory, env_not_built=not_built)
    return {item.name: item for part in (envs_items, evaluation_items) for item in part(run, evidence)}


def test_in_one_process_modules_count_once_and_instances_share():
    found = bill(n_envs=4)
    assert (found["env.imports"].total, found["env.mapped files"].total) == (20, 100)
    assert found["env.instance"].nbytes == (10 + 3 * 4) // 4
    assert found["env.instance"].count == 4
    assert found["env.instance"].place is Place.HOST
    assert found["runtime.script"].total == 57
    assert "runtime.script in a worker" not in found


def test_each_worker_imports_for_itself_and_maps_what_others_map():
    found = bill(n_envs=4, workers="subproc")
    assert (found["env.imports"].nbytes, found["env.imports"].count) == (20, 4)
    assert (found["env.mapped files"].total, found["env.instance"].total) == (100, 40)
    assert (found["runtime.script in a worker"].nbytes, found["runtime.script in a worker"].count) == (7, 4)
    assert "runtime.script in a worker" not in bill(n_envs=4, workers="subproc", start_method="fork")


def test_light_workers_are_forked_from_one_that_has_imported():
    found = bill(n_envs=4, workers="light")
    assert (found["env.imports"].count, found["env.instance"].count) == (1, 4)
    assert found["env.imports"].place is Place.WORKER
    assert bill(n_envs=1, workers="light")["env.imports"].count == 1


def test_an_evaluation_beside_has_its_own():
    found = bill(n_envs=4, evaluation={"n_envs": 2, "workers": "subproc"})
    assert (found["eval.imports"].count, found["eval.instance"].total) == (2, 20)
    assert found["runtime.script in a worker"].count == 2


def test_what_was_not_built_widens_the_band():
    found = bill(None, "not installed", n_envs=3, workers="subproc")["env.not seen"]
    assert (found.nbytes, found.count, found.error) == (0, 3, 60_000_000)


@pytest.fixture
def script(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    path = tmp_path / "train.py"
    path.write_text(dedent(SCRIPT))
    return str(path)


def items(footprint: Footprint) -> dict:
    return {item.name: item for item in footprint.items}


def test_an_environment_of_a_script_is_built_with_its_arguments_where_it_is_trusted(
    script: str,
) -> None:
    run = read(script)
    assert run.env.spaces is not None  # which are read from the class, and do not tell the 40 MB
    assert run.env.kwargs == {"megabytes": 40, "late": 25}
    found = items(predict(run, mode="auto", trust=True, device="cpu"))["env.instance"]
    assert 65_000_000 <= found.nbytes <= 70_000_000  # 40 when it is made, 25 once it has taken a step


@pytest.mark.parametrize(
    ("env", "kept"),
    [
        ({"id": "CartPole-v1"}, True),
        (
            {
                "id": "CartPole-v1",
                "kwargs": {"render_mode": "rgb_array"},
                "wrappers": ["gymnasium.wrappers.TimeAwareObservation"],
            },
            True,
        ),
        ({"id": "legroom_workloads.ninja:NinjaEnv", "kwargs": {}}, True),
        ({"id": "sized:Sized"}, False),  # the user's own may read a file or a variable that differs tomorrow
        ({"id": "CartPole-v1", "wrappers": ["sized.Wrapper"]}, False),
        ({"id": "CartPole-v1", "kwargs": {"data": "map.csv"}}, False),
    ],
)
def test_only_looks_that_depend_on_nothing_but_what_is_installed_are_kept(env: dict[str, object], kept: bool) -> None:
    run = Run.model_validate({"algo": "PPO", "env": env})
    task = env_look._task(run, EnvTask(), trust=True, probe_timeout_s=1)
    assert (env_look._cache_path(run, task, EnvTask()) is not None) == kept


def test_without_trust_it_says_what_it_has_not_seen(script: str) -> None:
    footprint = predict(read(script), mode="auto", device="cpu")
    assert "env.instance" not in items(footprint)
    assert items(footprint)["env.not seen"].error == 60_000_000
    assert any("was not built" in note and "Room" in note for note in footprint.notes)
    # whatever is left: its constructor may allocate it
    assert fits(footprint, Budget(ram=footprint.host.high * 100)) is None
    assert fits(footprint, Budget(ram=footprint.host.high - 1)) is False


@pytest.mark.parametrize(("steps", "said"), [(100_000, 1), (1_000, 0), (15, 0)])
def test_a_long_rollout_is_compared_with_the_episodes_that_were_seen(
    steps: int, said: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    (tmp_path / "short.py").write_text(
        dedent("""
            import gymnasium as gym, numpy as np
            class Short(gym.Env):
                observation_space, action_space = gym.spaces.Box(0, 255, (4096,), np.uint8), gym.spaces.Discrete(2)
                def reset(self, **_):
                    self.steps = 0
                    return np.zeros(4096, np.uint8), {}
                def step(self, action):
                    self.steps += 1
                    return np.zeros(4096, np.uint8), 0.0, self.steps == 10, False, {}
        """)
    )
    (tmp_path / "run.yaml").touch()
    run = Run.model_validate(
        {"algo": "PPO", "env": {"id": "short:Short"}, "hyperparams": {"n_steps": steps},
         "source": str(tmp_path / "run.yaml")}
    )  # fmt: skip
    notes = [note for note in predict(run, trust=True, device="cpu").notes if "episodes" in note]
    assert len(notes) == said and all("100,000 steps" in note and "lasted about 10." in note for note in notes)
