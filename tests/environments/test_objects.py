"""Names for classes: what is written is found again, and what cannot be imported still works in this process."""

import collections

import pytest
import torch

from legroom.environments.objects import name_object, register, resolve_object
from legroom.errors import BadInput


class Importable:
    class Inner:
        pass


def make_local():
    class Local:
        pass

    return Local


@pytest.mark.parametrize(
    ("obj", "name"),
    [
        (torch.nn.ReLU, "torch.nn.ReLU"),
        (torch.optim.Adam, "torch.optim.Adam"),
        (collections.OrderedDict, "collections:OrderedDict"),
        (Importable, f"{__name__}:Importable"),
        (Importable.Inner, f"{__name__}:Importable.Inner"),
    ],
)
def test_what_can_be_imported_is_named_so(obj, name):
    assert name_object(obj) == name
    assert resolve_object(name) is obj


def test_what_cannot_be_imported_lives_in_this_process():
    in_main = type("Extractor", (), {"__module__": "__main__"})
    shadowed = type("Importable", (), {"__module__": __name__})  # another class has that name by now
    for obj in (make_local(), in_main, shadowed, lambda x: x, object()):
        name = name_object(obj)
        assert name.startswith("live:")
        assert resolve_object(name) is obj
        assert name_object(obj) == name == register(obj)


@pytest.mark.parametrize(
    ("text", "obj"),
    [("nn.Tanh", torch.nn.Tanh), ("th.nn.Tanh", torch.nn.Tanh), ("collections.Counter", collections.Counter)],
)
def test_the_usual_abbreviations(text, obj):
    assert resolve_object(text) is obj


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("live:987654", "another process"),
        ("live:x", "another process"),
        ("no_such_module:Thing", "ModuleNotFoundError: No module named 'no_such_module'"),
        ("collections:OrderedDct", "did you mean 'OrderedDict'?"),
        ("Thing", "write it as module:Name"),
        ("", "write it as module:Name"),
        (":x", "write it as module:Name"),
    ],
)
def test_what_is_not_there_is_said_in_one_line(text, says):
    with pytest.raises(BadInput) as refused:
        resolve_object(text)
    assert says in str(refused.value)
    assert "\n" not in str(refused.value)
