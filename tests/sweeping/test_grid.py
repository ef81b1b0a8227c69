"""Grids as people write them: which trials there are, and what is said about those that cannot be."""

import pytest

from legroom.errors import BadInput
from legroom.sweeping.grid import parse_parameter, parse_parameters, points


@pytest.mark.parametrize(
    ("text", "values"),
    [
        ("hyperparams.learning_rate=1e-4,3e-4", ("1e-4", "3e-4")),
        ("seed=0..3", ("0", "1", "2", "3")),
        ("seed=-1..1", ("-1", "0", "1")),
        ("seed=7..7", ("7",)),
        ("n_envs=4", ("4",)),
        ("policy.kwargs.net_arch=[64,64],[32]", ("[64,64]", "[32]")),
        ("policy.kwargs.net_arch={pi: [8, 8], vf: [8]}, [4]", ("{pi: [8, 8], vf: [8]}", "[4]")),
        ("env.id=CartPole-v1, Acrobot-v1", ("CartPole-v1", "Acrobot-v1")),
    ],
)
def test_lists_and_ranges(text: str, values: tuple[str, ...]) -> None:
    assert parse_parameter(text).values == values


def test_every_combination_with_the_last_changing_fastest() -> None:
    grid = parse_parameters(["learning_rate=1e-4,3e-4", "seed=0..2"])
    assert points(grid) == [
        (("learning_rate", "1e-4"), ("seed", "0")),
        (("learning_rate", "1e-4"), ("seed", "1")),
        (("learning_rate", "1e-4"), ("seed", "2")),
        (("learning_rate", "3e-4"), ("seed", "0")),
        (("learning_rate", "3e-4"), ("seed", "1")),
        (("learning_rate", "3e-4"), ("seed", "2")),
    ]


@pytest.mark.parametrize(
    ("texts", "said"),
    [
        ([], "something to vary"),
        (["seed"], "not KEY=VALUES"),
        (["=1,2"], "not KEY=VALUES"),
        (["seed="], "no values"),
        (["seed=1,,2"], "empty value"),
        (["seed=1,2,1"], "value 1 twice"),
        (["seed=3..0"], "empty range"),
        (["seed=0..x"], "from one integer to another"),
        (["lr=1e-4..3e-4"], "from one integer to another"),
        (["seed=0..", "lr=1"], "from one integer to another"),
        (["seed=0..3", "seed=4..5"], "given 2 times"),
        (["n-envs=1,2", "n_envs=3"], "given 2 times"),
        (["seed=0..99999"], "more than 10,000"),
        (["seed=0..999", "n_envs=1..11"], "1000 x 11 = 11,000 trials"),
    ],
)
def test_what_is_no_grid_is_one_line(texts: list[str], said: str) -> None:
    with pytest.raises(BadInput, match=said) as raised:
        parse_parameters(texts)
    assert "\n" not in str(raised.value)
