"""If these fail, arithmetic leaves out what environments import, or what was measured of them before."""

import pytest

from legroom.model.footprint import Known
from legroom.model.run import Run
from legroom.predicting.predict import predict
from legroom.predicting.typical_envs import MUJOCO, OWN_DATA, OWN_STATE, PACKAGES, typical_memory

SPACES = {"observation": {"type": "box", "shape": [4]}, "action": {"type": "discrete", "n": 2}}


def make(source=None, **env):
    return Run.model_validate({"algo": "PPO", "env": {"spaces": SPACES, **env}, "source": source})


def test_well_known_environments_import_their_engine():
    found = typical_memory(make(id="Hopper-v5"), own=False)
    assert (found.imports, found.more, found.mapped) == tuple(int(1e6 * MUJOCO[n]) for n in (0, 2, 3))
    assert found.known is Known.DEFAULT
    assert typical_memory(make(id="ALE/Pong-v5"), own=False).imports > 0
    assert typical_memory(make(id="CartPole-v1"), own=False) is None


def test_what_a_script_and_its_modules_import_counts(tmp_path):
    (tmp_path / "market.py").write_text("import pandas as pd\n")
    script = tmp_path / "train.py"
    script.write_text("import numpy\nfrom market import Env\ndef later():\n    import scipy\n")
    found = typical_memory(make(str(script), id="market:Env"), own=True)
    assert (found.script, found.script_mapped) == tuple(1_000_000 * n for n in PACKAGES["pandas"])
    assert found.doubt == OWN_DATA  # tables may be large
    (tmp_path / "market.py").write_text("import numpy as np\n")
    script.write_text("from market import Env\n")
    found = typical_memory(make(str(script), id="market:Env"), own=True)
    assert (found.script, found.doubt) == (0, OWN_STATE)


def test_every_worker_imports_it(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    run = make(id="Hopper-v5", n_envs=3, workers="subproc")
    items = {item.name: item for item in predict(run, mode="arithmetic", device="cpu").items}
    assert items["env.imports"].count == 3
    assert items["env.mapped files"].count == 1
    assert items["env.imports"].error == items["env.imports"].nbytes // 2


@pytest.mark.parametrize("trust", [False, True])
def test_an_environment_of_ones_own_may_take_anything(tmp_path, monkeypatch, trust):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    run = make(str(tmp_path / "train.py"), id="market:Env")
    found = predict(run, mode="arithmetic", device="cpu", trust=trust)
    assert found.not_built  # so that there is no verdict
    assert not predict(make(id="CartPole-v1"), mode="arithmetic", device="cpu").not_built


def test_arithmetic_knows_what_was_measured_before(tmp_path, monkeypatch):
    pytest.importorskip("gymnasium")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    run = Run.model_validate({"algo": "PPO", "env": {"id": "Acrobot-v1"}})
    from legroom.environments.env_look import kept_look, look_at_env
    from legroom.model.evidence import EnvTask

    how = EnvTask()
    assert kept_look(run, how) is None
    seen = look_at_env(run, how, trust=False)
    kept = kept_look(run, how)
    assert (kept.memory, kept.spaces) == (seen.memory, seen.spaces)
    assert kept.memory.known is Known.MEASURED


SHORT = """
import gymnasium as gym
import numpy as np

class Short(gym.Env):
    observation_space = gym.spaces.Box(-1, 1, (4,), np.float32)
    action_space = gym.spaces.Discrete(2)

    def reset(self, *, seed=None, options=None):
        self.t = 0
        return np.zeros(4, np.float32), {}

    def step(self, action):
        self.t += 1
        return np.zeros(4, np.float32), 0.0, self.t >= ENDED, self.t >= 30, {}
"""


@pytest.mark.parametrize(("ended", "limit"), [(99, 30), (20, None)])
def test_where_episodes_are_cut_off_is_seen(tmp_path, monkeypatch, ended, limit):
    from legroom.environments.env_look import look_at_env
    from legroom.model.evidence import EnvTask

    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    (tmp_path / "short_env.py").write_text(SHORT.replace("ENDED", str(ended)))
    (tmp_path / "train.py").write_text("")
    run = Run.model_validate({"algo": "PPO", "env": {"id": "short_env:Short"}, "source": str(tmp_path / "train.py")})
    assert look_at_env(run, EnvTask(), trust=True).memory.time_limit == limit
