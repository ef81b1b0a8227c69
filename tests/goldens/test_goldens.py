"""What 0.1 said still holds: figures to the byte, options, JSON documents, names. `make.py` says how they were made."""

from __future__ import annotations

import functools
import importlib
import json
import os
import re
from pathlib import Path
from typing import Any

import make
import pytest

SLOW = os.environ.get("LEGROOM_SLOW") == "1"
SLOWLY = (pytest.mark.slow, pytest.mark.skipif(not SLOW, reason="with LEGROOM_SLOW=1, as make test-slow sets it"))
# what they hold is in the others too: PPO in mine, DQN with its replay in fire
SLOW_FOLDERS = [pytest.param(name, marks=SLOWLY) for name in ("ppo", "dqn", "rllib")]
NOTHING = {"NoneType"}
# 0.1 took a card's figures of brax runs from the CPU's compiler; since 0.2 they are as XLA plans them for a card
REPLACED = re.compile(r"robot:\w+ (cuda|gpu/\d)|docs/files/brax.yaml cuda")


def golden(name: str) -> Any:
    return json.loads((make.HERE / f"{name}.json").read_text())


@functools.cache
def made(name: str) -> Any:
    with make.surroundings():
        return json.loads(json.dumps(make.GOLDENS[name]()))


@pytest.mark.parametrize("name", ["runs", "predictions", "plans"])
def test_runs_figures_and_plans_are_those_of_0_1(name: str) -> None:
    now = made(name)
    same = {key: then for key, then in golden(name).items() if not REPLACED.fullmatch(key)}
    changed = {key: (then, now.get(key)) for key, then in same.items() if now.get(key) != then}
    for key, (then, given) in list(changed.items())[:5]:
        print(f"{key}\n  then {differing(then, given)}\n  now  {differing(given, then)}")  # noqa: T201
    assert not changed.keys(), f"{len(changed)} of {len(golden(name))} differ"


def differing(one: Any, other: Any) -> Any:
    """Return the keys of a document that are not the same in another, to be looked at."""
    if not isinstance(one, dict) or not isinstance(other, dict):
        return one
    return {key: value for key, value in one.items() if other.get(key) != value}


@pytest.mark.parametrize("name", make.DOCUMENTS)
def test_a_document_has_all_that_it_had(name: str) -> None:
    assert_shaped(made("documents")[name], golden("documents")[name])


def assert_shaped(now: dict[str, list[str]], then: dict[str, list[str]]) -> None:
    """Fail where something is gone from a document or has another type; what is null on one machine may be a number."""
    lost = then.keys() - now.keys()
    assert not lost
    kinds = ((path, set(types) - NOTHING, set(now[path]) - NOTHING) for path, types in then.items())
    assert not {path: (was, is_now) for path, was, is_now in kinds if was and is_now and was != is_now}


def test_a_run_file_may_say_all_that_it_might() -> None:
    assert_contains(made("documents")["schema"], golden("documents")["schema"], "schema")


def assert_contains(now: Any, then: Any, where: str) -> None:
    """Fail where a schema allows less than it did: a key or a choice is gone, or another key has to be given."""
    if isinstance(then, dict):
        for key, value in then.items():
            assert key in now, f"{where}: {key} is gone"
            assert_contains(now[key], value, f"{where}.{key}")
    elif isinstance(then, list) and where.endswith(".required"):
        assert set(now) <= set(then), where
    elif isinstance(then, list):
        for value in then:
            assert any(contains(each, value) for each in now), f"{where}: {value} is gone"
    else:
        assert now == then, where


def contains(now: Any, then: Any) -> bool:
    try:
        assert_contains(now, then, "")
    except (AssertionError, TypeError):
        return False
    return True


def test_every_command_has_all_its_options() -> None:
    now = made("options")
    lost = {command: set(given) - set(now.get(command, ())) for command, given in golden("options").items()}
    assert not {command: given for command, given in lost.items() if given}


@pytest.mark.parametrize("name", json.loads((make.HERE / "names.json").read_text()))
def test_a_name_is_found_as_it_was_written(name: str) -> None:
    # as a run file names an environment or a network
    resolve_object = importlib.import_module("legroom.environments.objects").resolve_object
    assert resolve_object(name) is not None


@pytest.mark.parametrize("only", [make.QUICK, pytest.param((), marks=SLOWLY)], ids=["some", "all"])
def test_allocator_peaks_of_recorded_runs_are_those_of_0_1(only: tuple[str, ...]) -> None:
    with make.surroundings(measured=True):
        now = make.allocator(only)
    assert now == {name: peaks for name, peaks in golden("allocator").items() if not only or name in only}


@pytest.mark.parametrize("name", ["fire", "mine", "brax", *SLOW_FOLDERS])
def test_a_kept_training_goes_on(name: str, tmp_path: Path, xla_cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """On the same kind of processor it ends with the bits with which it ended when the folder was kept."""
    monkeypatch.setenv("JAX_COMPILATION_CACHE_DIR", str(xla_cache))
    monkeypatch.setenv("JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS", "0")
    then = json.loads((make.HERE / "folders.json").read_text())[name]
    now = make.resumed(make.HERE / "folders" / f"{name}.yaml", tmp_path)
    assert_shaped(now["outcome"], then["outcome"])
    told = ["status", "resume"]
    if name != "rllib":  # whose workers answer in any order
        told += ["timesteps", *(["parameters_sha256"] if now["cpu"] == then["cpu"] else [])]
    assert {key: now[key] for key in told} == {key: then[key] for key in told}
