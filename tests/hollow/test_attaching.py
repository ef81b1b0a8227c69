"""The hooks that a program run for real gets: calls of a class make something else, and nothing else changes."""

import copy
import pickle
import sys

from legroom.hollow import attaching
from legroom.hollow.attaching import _Package, substitute, user_line


class Base:
    def __init__(self, size: int, name: str = "") -> None:
        self.size, self.name = size, name


class Derived(Base):
    pass


class Lean(Base):
    made: bool

    def __init__(self, *_args: object, **_kwargs: object) -> None:
        pass


def make(args: tuple, kwargs: dict) -> Lean | None:
    if args[0] < 10:
        return None
    made = Lean.__new__(Lean)
    Base.__init__(made, *args, **kwargs)
    made.made = True
    return made


def test_only_calls_of_the_very_class_make_another() -> None:
    kept = pickle.dumps(Base(20, "kept"))
    others: list[type] = []
    substitute(Base, make, others.append)
    try:
        made = Base(20, name="large")
        assert (type(made), made.size, made.name) == (Lean, 20, "large")
        assert isinstance(made, Base)
        assert type(Base(5)) is Base and Base(5, "small").name == "small"  # what `make` leaves alone
        assert type(Derived(20)) is Derived and Derived(20).size == 20
        assert others == [Derived, Derived]
        assert type(pickle.loads(kept)) is Base and pickle.loads(kept).name == "kept"
        assert type(copy.copy(Derived(20, "x"))) is Derived
        assert type(Lean(3)) is Lean
    finally:
        del Base.__new__


def test_legroom_is_found_and_nothing_else() -> None:
    finder = _Package("/somewhere/legroom")
    assert finder.find_spec("legroom").submodule_search_locations == ["/somewhere/legroom"]  # type: ignore[attr-defined]
    assert finder.find_spec("numpy") is None and finder.find_spec("legroom.errors") is None


def test_a_line_of_the_program_is_found_beneath_its_libraries() -> None:
    assert user_line(()).startswith("tests/hollow/test_attaching.py:")
    assert not user_line(("/test_attaching.py",)).startswith("tests/hollow/test_attaching.py")


def test_an_old_python_is_named_once(monkeypatch, capfd) -> None:
    plan = '{"with": {}, "package": "/x", "journal": "/x", "hooks": {"a": {"lean": "x:y"}, "b": {"lean": "x:z"}}}'
    monkeypatch.setenv(attaching.VARIABLE, plan)
    monkeypatch.setattr(sys, "version_info", (3, 9, 1))
    waiting = attaching.waiting()
    assert sorted(waiting) == ["a", "b"]
    waiting["a"](None)
    waiting["a"](None)
    said = capfd.readouterr().err
    assert said == "legroom train: lean not attached: this program runs on Python 3.9, legroom needs 3.11\n"


def test_what_fails_in_a_hook_is_said_and_the_program_goes_on(monkeypatch, capfd) -> None:
    plan = '{"with": {"lean": null}, "package": "/x", "hooks": {"a": {"lean": "legroom.nowhere:y"}}}'
    monkeypatch.setenv(attaching.VARIABLE, plan)
    before = list(sys.meta_path)
    try:
        attaching.waiting()["a"](None)
    finally:
        sys.meta_path[:] = before
    assert capfd.readouterr().err.startswith("legroom: lean not attached: ModuleNotFoundError: No module named")
