"""The one interpreter of Python source: what an expression comes to, and what only running could tell."""

import ast
from pathlib import Path
from typing import Any

import pytest

from legroom.backends.sb3.script_models import drafts
from legroom.reading.interpreter.evaluator import fold_text
from legroom.reading.interpreter.known_values import integer_of, value_of
from legroom.reading.interpreter.script import read_script
from legroom.reading.interpreter.values import Unfoldable


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("dict(net_arch=[64] * 2, activation_fn=nn.ReLU)", {"net_arch": [64, 64], "activation_fn": "nn.ReLU"}),
        ("[1, *[2, 3]]", [1, 2, 3]),
        ("{'a': 1, **{'b': 2}}['b'] if not False else 0", 2),
        ("0 or max(3, 4) and 5", 5),
        ("-len('abc')", -3),
    ],
)
def test_source_strings_are_folded(text: str, value: Any) -> None:
    assert fold_text(text) == value


@pytest.mark.parametrize(
    "text", ["sys.argv[1]", "len(NAMES)", "[*names]", "str(path)", "9 ** 9 ** 9", "'%s' % 1", "f(1)", "b'x'"]
)
def test_a_name_is_not_taken_for_the_letters_it_is_written_with(text: str) -> None:
    with pytest.raises(Unfoldable):
        fold_text(text)


def last_argument(folder: Path, text: str) -> tuple[Any, ast.expr]:
    """Return the script, and the argument of its call of `f`."""
    script = read_script(text, str(folder / "train.py"))
    (call,) = script.calls_of("f")
    return script, call.args[0]


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("import tyro\nclass Args:\n    n: int = 4\nargs = None\nargs = tyro.cli(Args)\nf(args.n * 2)", 8),
        ("class Args:\n    n: int = 4\ndef main(args: Args):\n    f(args.n)", 4),
        ("def main(n, m=2):\n    f(n + m)\nmain(3)\nmain(n=3)", 5),
        ("def main(n):\n    f(n)\nmain(3)\nmain(4)", None),
        ("n = 1\nif a:\n    n = 2\nf(n)", None),
        ("from config import *\nf(N // 2)", 16),
        ("import config as c\nf(c.N)", 32),
    ],
)
def test_a_value_is_known_where_every_way_to_it_agrees(tmp_path: Path, text: str, value: int | None) -> None:
    (tmp_path / "config.py").write_text("N = 32\n")
    assert integer_of(*last_argument(tmp_path, text)) == value


def test_a_list_of_unknown_things_has_no_value(tmp_path: Path) -> None:
    made = last_argument(tmp_path, "n = 3\nf([make(i) for i in range(n)] * 2)")
    with pytest.raises(Unfoldable):
        value_of(*made)


def test_conditions_on_parsed_arguments_are_decided_by_their_defaults(tmp_path: Path) -> None:
    text = """\
import argparse
from stable_baselines3 import PPO
from stable_baselines3.common.env_util import make_vec_env
parser = argparse.ArgumentParser()
parser.add_argument("--n-envs", type=int, default=1)
args = parser.parse_args()
if args.n_envs > 1:
    n_steps = 64
else:
    n_steps = 128
PPO("MlpPolicy", make_vec_env("CartPole-v1", args.n_envs), n_steps=n_steps)
"""
    (draft,) = drafts(text, str(tmp_path / "train.py"))
    assert draft.data["hyperparams"] == {"n_steps": 128}


def test_models_of_the_branch_that_the_defaults_do_not_take_are_read_too(tmp_path: Path) -> None:
    text = """\
import argparse
from stable_baselines3 import PPO, SAC
parser = argparse.ArgumentParser()
parser.add_argument("--algo", default="ppo")
args = parser.parse_args()
if args.algo == "ppo":
    batch_size = 64
    model = PPO("MlpPolicy", "Pendulum-v1", batch_size=batch_size)
else:
    batch_size = 256
    model = SAC("MlpPolicy", "Pendulum-v1", batch_size=batch_size)
model.learn(1000)
"""
    ppo, sac = drafts(text, str(tmp_path / "train.py"))
    assert [ppo.data["algo"], sac.data["algo"]] == ["PPO", "SAC"]
    assert (ppo.data["total_timesteps"], sac.data.get("total_timesteps")) == (1000, None)
