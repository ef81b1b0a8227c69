"""Readings are bounded: files of a few bytes that ask for hours or terabytes end in a line, or in an unknown value."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from legroom.checking.check import check
from legroom.errors import BadInput
from legroom.machine import probe
from legroom.model.verdict import Budget
from legroom.reading import read_all, read_given
from legroom.reading.collect_problems import read_collecting
from legroom.reading.interpreter.evaluator import fold_text
from legroom.reading.interpreter.values import Unfoldable
from legroom.reading.reading_budget import TooCostly, bounded_reading, end_by_timer, hold, pay

HEAD = "from stable_baselines3 import PPO\n"
TAIL = '\nPPO("MlpPolicy", "CartPole-v1", n_steps=x)\n'
# what is too much altogether ends the reading
TOO_COSTLY = {
    "shared lists": "x = [1]\n" + "x = [x, x]\n" * 40,
    "shared dicts": "x = {'a': 1}\n" + "x = {'a': x, 'b': x}\n" * 40,
    "nested comprehensions": "x = [[[[1 for a in y] for b in y] for c in y] for d in y]".replace("y", "range(999)"),
    "recursive constructors": "class A:\n  def __init__(self):\n    A(); A(); A(); A(); A(); A(); A()\nx = A()",
    "many long lists": "x = []\n" + "".join(f"x{i} = [1] * 99999\n" for i in range(300)),
}
# one operation that is too much is not known, and the rest is read
UNKNOWN = {
    "round": "x = round(1, -10**10)",
    "doubling a list": "x = [1]\n" + "x = x + x\n" * 40 + "x = len(x)",
    "doubling a text": "x = 'a'\n" + "x += x\n" * 40 + "x = len(x)",
    "repeating": "x = 'x' * 10**10",
    "power": "x = 10**10**10",
    "shift": "x = 1 << 10**10",
    "range": "x = len(range(10**10))",
    "recursive lambda": "f = lambda: f() + f() + f()\nx = f()",
    "sum of lists": "x = len(sum([[1] * 1000] * 1000, []))",
    "a large constant": f"x = 0x{'f' * 20_000}",
}
FSTRING = 'x = f"' + "{a}" * 20_000 + '"'
TEXTS = {
    "sexagesimal": "algo: PPO\nenv: {id: CartPole-v1}\nseed: 1" + ":1" * 500_000,
    "aliases": "a: &a [1,1,1,1,1,1,1,1,1,1]\n"
    + "".join(f"{chr(98 + i)}: &{chr(98 + i)} [{','.join(['*' + chr(97 + i)] * 10)}]\n" for i in range(9)),
    "nesting": "[" * 100_000,
    "mappings": "{a: " * 100_000,
}


def script(tmp_path: Path, body: str) -> str:
    path = tmp_path / "train.py"
    path.write_text(HEAD + body + TAIL)
    return str(path)


def seconds_of(function: object, *args: object, **kwargs: object) -> float:
    began = time.process_time()
    with pytest.raises(BadInput):
        function(*args, **kwargs)  # type: ignore[operator]
    return time.process_time() - began


@pytest.mark.parametrize("name", [*TOO_COSTLY, "fields"])
def test_a_file_that_costs_too_much_is_refused_in_a_line(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("legroom.reading.reading_budget.MOST_SECONDS", 0.3)
    path = script(tmp_path, TOO_COSTLY.get(name, FSTRING))
    began = time.process_time()
    with pytest.raises(TooCostly, match=r"train\.py:(\d+:)? reading it takes more than "):
        read_all(path)
    with pytest.raises(TooCostly):
        check([path], machine=probe(), budget=Budget(1 << 34, None, 0.0, "given"))
    assert time.process_time() - began < 3.0


@pytest.mark.parametrize("name", UNKNOWN)
def test_an_operation_that_costs_too_much_is_not_known(name: str, tmp_path: Path) -> None:
    (draft,) = read_collecting(script(tmp_path, UNKNOWN[name])).runs
    assert ("hyperparams", "n_steps") in draft.unknown


@pytest.mark.parametrize("name", TEXTS)
def test_yaml_is_bounded(name: str) -> None:
    assert seconds_of(read_given, TEXTS[name], "run.yaml") < 2.0


def test_source_strings_of_zoo_files_are_bounded() -> None:
    for text in ("round(1, -10**10)", "'a' * 10**10", "[" + "1," * 100_000 + "]", "10**10**10"):
        with pytest.raises(Unfoldable):
            fold_text(text)


def test_a_file_in_a_folder_that_costs_too_much_is_named_and_the_others_are_checked(tmp_path: Path) -> None:
    script(tmp_path, TOO_COSTLY["shared lists"])
    (tmp_path / "good.py").write_text(HEAD + 'PPO("MlpPolicy", "CartPole-v1", n_steps=64)\n')
    checked = check([str(tmp_path)], machine=probe(), budget=Budget(1 << 34, None, 0.0, "given"))
    assert [Path(each.path).name for each in checked] == ["good.py", "train.py"]
    assert "reading it takes more than" in checked[1].note


def test_steps_and_memory_are_paid_for_and_only_inside_a_reading() -> None:
    pay(10**12)
    hold(10**12)
    with bounded_reading("a.py"), bounded_reading("b.py"), pytest.raises(TooCostly, match=r"^a\.py:7: .*steps"):
        pay(10**12, 7)
    with bounded_reading("a.py"), pytest.raises(TooCostly, match=r"200\.0 MiB of memory"):
        for _ in range(100):
            hold(1_000_000)


def test_work_inside_of_c_is_ended_by_the_timer(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("legroom.reading.reading_budget._by_timer", False)
    monkeypatch.setattr("legroom.reading.reading_budget.MOST_SECONDS", 0.1)
    monkeypatch.setattr("legroom.reading.reading_budget.TIMER_SLACK_S", 0.1)
    end_by_timer()
    began = time.process_time()
    with pytest.raises(TooCostly), bounded_reading("a.py"):
        round(1, -(10**8))
    assert time.process_time() - began < 2.0
