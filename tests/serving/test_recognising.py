"""What is pasted or dropped on the page is taken for what it is, and no file beside it is read."""

from __future__ import annotations

from pathlib import Path

import pytest

from legroom.errors import BadInput
from legroom.serving.asked import command_in, recognise, with_spaces

SCRIPT = "from stable_baselines3 import PPO\nPPO('MlpPolicy', 'CartPole-v1', n_steps=512).learn(1_000)\n"
YAML = "algo: DQN\nenv: {id: CartPole-v1}\n"
ERROR = "RuntimeError: [enforce fail at alloc_cpu.cpp:114] data. DefaultCPUAllocator: can't allocate memory: you tried to allocate 8589934592 bytes."  # noqa: E501
CUDA = "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.10 GiB. GPU 0 has a total capacity of 7.79 GiB"


@pytest.mark.parametrize("name", ["", "train.py"])
def test_a_script_is_read(name: str) -> None:
    ((run, unknown),) = recognise(SCRIPT, name).runs
    assert (run.algo, run.hyperparams["n_steps"], unknown) == ("PPO", 512, [])


@pytest.mark.parametrize("name", ["", "run.yaml", "run.json"])
def test_a_config_is_read(name: str) -> None:
    text = '{"algo": "DQN", "env": {"id": "CartPole-v1"}}' if name.endswith("json") else YAML
    ((run, _),) = recognise(text, name).runs
    assert (run.algo, run.env.id) == ("DQN", "CartPole-v1")


@pytest.mark.parametrize("text", [ERROR, CUDA, f"Traceback (most recent call last):\n  File 'a.py', line 3\n{CUDA}"])
def test_an_error_is_explained(text: str) -> None:
    found = recognise(text).explanation
    assert found is not None and found.recognised


@pytest.mark.parametrize(
    ("text", "command"),
    [
        ("$ python train.py --lr 1e-3\n", ("python", "train.py", "--lr", "1e-3")),
        ("legroom predict --gpu T4 -- uv run train.py", ("uv", "run", "train.py")),
        (
            "X=1 torchrun \\\n  --nproc-per-node 1 train.py",
            ("env", "X=1", "torchrun", "--nproc-per-node", "1", "train.py"),
        ),
        ("rm -rf /", ()),
        ("python train.py\nKilled", ()),
    ],
)
def test_a_command_is_known_by_what_starts_it(text: str, command: tuple[str, ...]) -> None:
    assert command_in(text) == command


@pytest.mark.parametrize(
    ("text", "name", "said"),
    [("hello", "", "no script, run file or"), ("", "", "is empty"), ("def", "a.py", "a.py:1: "),
     ("import torch\ntorch.zeros(3)\n", "", "legroom predict -- python train.py"),
     ("algo: [", "run.yaml", "run.yaml:2: not valid YAML")],
)  # fmt: skip
def test_what_is_none_of_them_is_refused_with_the_way_out(text: str, name: str, said: str) -> None:
    with pytest.raises(BadInput, match=r".") as wrong:
        recognise(text, name)
    assert said in str(wrong.value) and "/dev/null" not in str(wrong.value)


def test_settings_that_only_running_tells_have_their_defaults_and_are_named() -> None:
    text = (
        "import sys\nfrom envs import make\nfrom stable_baselines3 import SAC\n"
        "SAC('MlpPolicy', make(), batch_size=int(sys.argv[1])).learn(9)\n"
    )
    ((run, unknown),) = recognise(text).runs
    assert "hyperparams.batch_size" in unknown and "env.n_envs" in unknown and "total_timesteps" not in unknown
    with_some, assumed = with_spaces(run)
    assert assumed == "64 float32" and with_some.env.spaces is not None
    assert with_some.env.spaces.action.type == "box"  # SAC takes no other


def test_no_module_beside_the_page_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A pasted script may name anything: what lies in the folder that legroom ui was started in stays unread."""
    (tmp_path / "secrets_here.py").write_text("N = 4096\n")
    monkeypatch.chdir(tmp_path)
    text = "from secrets_here import N\n" + SCRIPT.replace("512", "N")
    ((run, unknown),) = recognise(text).runs
    assert "n_steps" not in run.hyperparams and unknown == ["hyperparams.n_steps"]
