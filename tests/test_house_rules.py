"""The check of the house itself: it sees what it is there for, and finds nothing in the tree as it is."""

import ast

import pytest

import house_rules


def test_the_tree_keeps_the_rules():
    assert house_rules.violations() == []


@pytest.mark.parametrize(
    "source",
    [
        'if run.backend == "sb3": pass',
        "from legroom.backends.brax import facts",
        "def f():\n    import legroom.backends.rllib.items",
        'TABLE = {"rllib": 1}',
        "def is_brax(run): ...",
        "run.is_sb3()",
    ],
)
def test_a_backends_name_in_the_core_is_seen(source):
    assert list(house_rules._names_backend(ast.parse(source), ("sb3", "brax", "rllib")))


@pytest.mark.parametrize(
    "source",
    [
        "from legroom.fitting import search",
        "def f():\n    from legroom.fitting import search",
        "if TYPE_CHECKING:\n    from legroom.cli import main",
        'CHILD = "legroom.backends.sb3.evidence_child"',
        "import torch",
    ],
)
def test_an_import_that_points_up_is_seen_lazy_or_not(source):
    assert list(house_rules._wrong_way(ast.parse(source), "predicting"))


def test_what_is_fine_is_not_reported():
    fine = "from legroom.model.run import Run\n"
    fine += "from legroom.backends.base import backend_of\nwith needs('sb3', what=''): ...\n"
    assert not list(house_rules._wrong_way(ast.parse(fine), "predicting"))
    assert not list(house_rules._names_backend(ast.parse(fine), ("sb3", "brax", "rllib")))


def test_a_room_above_its_ceiling_is_seen(monkeypatch):
    most = house_rules.measured()["fitting"]
    monkeypatch.setitem(house_rules.CEILINGS, "fitting", most - 1)
    assert house_rules.violations() == [f"fitting: {most:,} with a ceiling of {most - 1:,}"]
