"""An environment is built elsewhere: its spaces and memory come back, its prints, crashes and hangs do not."""

import os
import subprocess
import sys
import textwrap
import time
from pathlib import Path

import pytest

from legroom.backends.sb3.stored import LOADED
from legroom.environments.env_look import look_at_env
from legroom.errors import BadInput
from legroom.model.evidence import EnvTask
from legroom.model.run import EnvSpec, Run, Spaces
from legroom.model.spaces import BoxSpace, DictSpace, DiscreteSpace


def build_spaces(run, **timeouts):
    look = look_at_env(run, EnvTask(LOADED), trust=True, **timeouts)
    return look.spaces, look.nbytes


ENVS = """
import os, sys, time
import numpy as np
import gymnasium
from gymnasium import spaces

print("imported with a print")

class Grid(gymnasium.Env):
    def __init__(self, size=4, megabytes=0):
        print("built with a print"); os.write(1, b"and with a raw write")
        self.observation_space = spaces.Dict({
            "view": spaces.Box(0, 255, (size, size, 3), np.uint8), "speed": spaces.Box(-1, 1, (2,), np.float32)})
        self.action_space = spaces.Discrete(5)
        self.data = np.ones(megabytes * 1_000_000, np.uint8)
    def reset(self, *, seed=None, options=None):
        return self.observation_space.sample(), {}

class Shared(Grid):
    level = None
    def __init__(self):
        super().__init__(megabytes=5)
        if Shared.level is None:
            Shared.level = np.ones(60_000_000, np.uint8)

def make_grid(size):
    return Grid(size)

def refuse(**kwargs):
    raise ValueError("no ROM at 'game.gb',\\n  see the README")

class BadReset(Grid):
    def reset(self, **kwargs):
        raise RuntimeError("level 7 is broken")

class Pair(Grid):
    def __init__(self):
        super().__init__()
        self.observation_space = spaces.Tuple((spaces.Discrete(2), spaces.Discrete(2)))

class Stubborn(Grid):
    def close(self):
        time.sleep(300)

def crash():
    print("segmentation ahead", file=sys.stderr)
    os.kill(os.getpid(), 11)

def leave():
    os._exit(7)

def hang(pid_file):
    import subprocess
    helper = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(300)"])
    open(pid_file, "w").write(f"{os.getpid()} {helper.pid}")
    time.sleep(300)

number = 3

gymnasium.register("Beside-v0", entry_point=Grid)

class Half(gymnasium.ObservationWrapper):
    def __init__(self, env, keep=2):
        super().__init__(env)
        self.observation_space = spaces.Box(0, 255, (keep, keep, 3), np.uint8)
    def observation(self, observation):
        return observation["view"][: self.observation_space.shape[0], : self.observation_space.shape[0]]

class NoWrapper(gymnasium.Wrapper):
    def __init__(self, env):
        raise TypeError("cannot wrap that")
"""


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "my_envs.py").write_text(ENVS)
    (tmp_path / "run.yaml").touch()
    (tmp_path / "json.py").write_text("raise RuntimeError('a module of the user must not shadow the library')")
    return tmp_path


def make_run(folder, env_id, **env):
    return Run(algo="PPO", env=EnvSpec(id=env_id, **env), source=str(folder / "run.yaml"))


def test_an_env_beside_the_run_file(folder, capfd):
    spaces, nbytes = build_spaces(make_run(folder, "my_envs:Grid", kwargs={"size": 6, "megabytes": 30}))
    assert spaces == Spaces(
        DictSpace({"speed": BoxSpace((2,), low=-1, high=1), "view": BoxSpace((6, 6, 3), "uint8", low=0, high=255)}),
        DiscreteSpace(5),
    )
    assert 30_000_000 <= nbytes <= 36_000_000
    assert capfd.readouterr().out == ""  # the environment prints, legroom does not


def test_instances_share_what_they_share(folder):
    # 60 MB of level data once, 5 MB each: (60 + 4 * 5) / 4 = 20 in one process, 65 in a process of its own
    _, together = build_spaces(make_run(folder, "my_envs:Shared", n_envs=4))
    _, apart = build_spaces(make_run(folder, "my_envs:Shared", n_envs=4, workers="subproc"))
    assert 20_000_000 <= together <= 23_000_000
    assert 65_000_000 <= apart <= 69_000_000


def test_a_gymnasium_id():
    spaces, nbytes = build_spaces(Run(algo="PPO", env=EnvSpec(id="CartPole-v1")))
    assert spaces == Spaces(BoxSpace((4,)), DiscreteSpace(2))
    assert 0 <= nbytes < 10_000_000


def test_an_id_that_a_module_registers(folder):
    spaces, _ = build_spaces(make_run(folder, "my_envs:Beside-v0"))
    assert spaces.action == DiscreteSpace(5)


def test_wrappers_by_name_and_with_arguments(folder):
    plain, _ = build_spaces(make_run(folder, "my_envs:Grid", wrappers=("my_envs:Half",)))
    assert plain.observation.shape == (2, 2, 3)
    wrappers = ({"my_envs.Half": {"keep": 3}}, "gymnasium.wrappers.FlattenObservation")
    flat, _ = build_spaces(make_run(folder, "my_envs:Grid", wrappers=wrappers))
    assert flat.observation.shape == (27,)


def test_what_training_has_loaded_anyway_is_not_the_environments():
    # AtariWrapper's family imports torch, hundreds of MB that every SB3 process has; the envs themselves are tiny
    wrapper = {"stable_baselines3.common.atari_wrappers.ClipRewardEnv": {}}
    _, nbytes = build_spaces(Run(algo="PPO", env=EnvSpec(id="CartPole-v1", wrappers=(wrapper,))))
    assert nbytes < 10_000_000


@pytest.mark.parametrize(
    ("env", "says"),
    [
        (
            {"env_id": "my_envs:refuse"},
            "run.yaml: env 'my_envs:refuse' raised: ValueError: no ROM at 'game.gb', see the README",
        ),
        ({"env_id": "my_envs:BadReset"}, "env 'my_envs:BadReset' raised in reset(): RuntimeError: level 7 is broken"),
        ({"env_id": "my_envs:Pair"}, "env 'my_envs:Pair', observation space: a Tuple space is not supported"),
        ({"env_id": "my_envs:number"}, "is of type int, not a class or function"),
        ({"env_id": "builtins:dict"}, "is builtins's dict, which is not called, not a class or function"),
        ({"env_id": "my_envs:Gird"}, "my_envs has no 'Gird' (did you mean 'Grid'?)"),
        ({"env_id": "no_such_envs:Grid"}, "env 'no_such_envs:Grid' cannot be imported: ModuleNotFoundError"),
        ({"env_id": "CartPol-v1"}, "env 'CartPol-v1': Environment `CartPol` doesn't exist. Did you mean: `CartPole`?"),
        ({"env_id": "NoSuchPlace/Pong-v5"}, "Namespace NoSuchPlace not found"),
        (
            {"env_id": "my_envs:Grid", "kwargs": {"sise": 4}},
            "TypeError: Grid.__init__() got an unexpected keyword argument 'sise'",
        ),
        ({"env_id": "my_envs:Grid", "kwargs": {"size": object()}}, "env.kwargs of 'my_envs:Grid' are not plain data"),
        ({"env_id": "my_envs:Grid", "wrappers": ("my_envs:Haf",)}, "env.wrappers: 'my_envs:Haf': my_envs has no 'Haf'"),
        (
            {"env_id": "my_envs:Grid", "wrappers": ("my_envs:NoWrapper",)},
            "env.wrappers: my_envs:NoWrapper raised: TypeError: cannot wrap that",
        ),
        ({"env_id": "my_envs:Grid", "wrappers": ({"a": {}, "b": {}},)}, "must have one key"),
        ({"env_id": "my_envs:crash"}, "ended its process while being built (killed by SIGSEGV): segmentation ahead"),
        ({"env_id": "my_envs:leave"}, "ended its process while being built (exit code 7)"),
    ],
)
def test_its_own_words_in_one_line(folder, env, says):
    with pytest.raises(BadInput) as refused:
        build_spaces(make_run(folder, **env))
    assert says in str(refused.value)
    assert "\n" not in str(refused.value)


def test_one_that_hangs_is_ended_with_all_it_started(folder):
    pid_file = folder / "pids"
    with pytest.raises(BadInput, match="was not ready after 6 s"):  # a busy machine needs three to get there
        build_spaces(make_run(folder, "my_envs:hang", kwargs={"pid_file": str(pid_file)}), timeout_s=6)
    until = time.monotonic() + 5  # a signal takes a moment to arrive
    for pid in map(int, pid_file.read_text().split()):
        while _alive(pid) and time.monotonic() < until:
            time.sleep(0.05)
        assert not _alive(pid)


def test_the_parent_imports_neither_gymnasium_nor_torch_for_it(folder):
    code = textwrap.dedent(f"""
        import sys
        from legroom.backends.sb3.stored import env_task
        from legroom.environments.env_look import look_at_env
        from legroom.model.run import EnvSpec, Run
        run = Run(algo="PPO", env=EnvSpec(id="my_envs:Grid"), source={str(folder / "run.yaml")!r})
        look_at_env(run, env_task(run), trust=True)
        sys.exit("torch" in sys.modules or "gymnasium" in sys.modules)
    """)
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def _alive(pid):
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    status = Path(f"/proc/{pid}/stat")  # a zombie that its new parent has not yet reaped counts as ended
    return not (status.exists() and status.read_text().rpartition(")")[2].split()[0] in "ZX")
