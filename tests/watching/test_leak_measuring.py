"""Real environments stepped in real processes: verdict, rate, line, and one clear line where they fail."""

import gc
import inspect
import sys
from pathlib import Path

import leak_test_envs as envs
import pytest

from legroom.errors import BadInput
from legroom.rendering.profile_text import profile_document
from legroom.testing import assert_no_leak
from legroom.watching.allocator_signals import Recorder
from legroom.watching.leak_lines import CodeLine, library_folders, own_frame
from legroom.watching.measuring import Stepper
from legroom.watching.profile import ask_profile, env_task, find_run, profile

HERE = Path(envs.__file__)


def leaking_line(env: type) -> int:
    source, first = inspect.getsourcelines(env)
    return first + next(number for number, line in enumerate(source) if "# the leaking line" in line)


def test_a_leak_is_found_with_its_rate_and_its_line():
    """Of memory that C takes; that of Python objects is found by `assert_no_leak` below."""
    found = profile("leak_test_envs:KeepsMalloc", 3_000)
    leak = found.leak
    assert leak.verdict == "leak"
    assert leak.bytes_per_step == pytest.approx(112, rel=0.1)
    assert (leak.lines[0].file, leak.lines[0].line) == (str(HERE), leaking_line(envs.KeepsMalloc))
    assert leak.lines[0].bytes_per_step == pytest.approx(112, rel=0.3)
    assert 1_000 < leak.steps_left < 2**50
    assert found.steps >= 3_000 and found.steps_per_s > 0


def test_the_line_is_the_one_that_keeps_a_dict_not_one_that_passed_it_on():
    found = profile("leak_test_envs:KeepsDicts", 2_000)
    leak = found.leak
    assert leak.verdict == "leak" and leak.lines[0].line == leaking_line(envs.KeepsDicts)
    assert leak.kept_in == ("KeepsDicts.kept (list) of dict",)
    assert "kept in: KeepsDicts.kept (list) of dict" in list(profile_document(found).parts)


def test_a_dict_of_arrays_alone_is_named_too():
    assert profile("leak_test_envs:KeepsArrays", 2_000).leak.kept_in == ("leak_test_envs.ARRAYS (dict) of ndarray",)


def test_an_environment_that_keeps_nothing_is_ok_and_costs_no_second_process():
    found = profile("leak_test_envs:Still", 3_000)
    assert (found.leak.verdict, found.steps) == ("ok", 3_000)
    assert abs(found.leak.bytes_per_step) < 2
    assert found.leak.lines == () and found.leak.found_by == "" and found.leak.steps_left is None
    assert len(found.curve.steps) == len(found.curve.python) == len(found.curve.malloc) >= 15
    assert found.own_cpu_share > 0


@pytest.mark.parametrize(
    ("env", "words"),
    [
        ("leak_test_envs:Raises", "raised in step 30: RuntimeError: the reactor is out"),
        ("leak_test_envs:Dies", "SIGABRT"),
        ("leak_test_envs:OldApi", "five values"),
        ("leak_test_envs:Stil", "did you mean 'Still'"),
        ("no_such_module_anywhere:Env", "No module named 'no_such_module_anywhere'"),
        ("CartPol-v1", "CartPole"),
    ],
)
def test_what_goes_wrong_is_one_line(env, words):
    with pytest.raises(BadInput) as failed:
        profile(env, 100)
    assert words in str(failed.value) and "\n" not in str(failed.value)


def test_an_environment_that_hangs_is_ended():
    with pytest.raises(BadInput, match="not done after 3 s"):
        ask_profile("leak", env_task(find_run("leak_test_envs:Hangs")), timeout_s=3, frames=10)


def test_workloads_and_files_are_found_by_name(tmp_path):
    assert find_run("mine:small").env.id == "legroom_workloads.mine:MineEnv"
    assert env_task(find_run("mine:small"))["kwargs"]["grid"] == (10, 10, 5)
    assert find_run("mine:Thing").env.id == "mine:Thing"  # no run of that name: a module then
    assert find_run("CartPole-v1").env.id == "CartPole-v1"
    file = tmp_path / "run.yaml"
    file.write_text("algo: PPO\nenv: {id: Acrobot-v1}\nhyperparams: {n_steps: 64}\n")
    assert find_run(str(file)).env.id == "Acrobot-v1"
    with pytest.raises(BadInput):
        find_run(" ")


def test_masks_are_respected_and_actions_are_seeded():
    stepper = Stepper(envs.Masked())
    stepper.advance(200)  # it raises on any other action
    assert (stepper.steps, stepper.episodes) == (200, 5)
    taken = []
    for _ in range(2):
        env = envs.Still()
        env.actions = []
        env.step = lambda action, env=env: (env.actions.append(int(action)), type(env).step(env, action))[1]
        Stepper(env, seed=7).advance(100)
        taken.append(env.actions)
    assert taken[0] == taken[1] and set(taken[0]) == {0, 1, 2}


def test_the_sampler_does_not_see_itself():
    recorder = Recorder(300)
    gc.freeze()  # else each sample's collection looks at all that the tests have loaded
    try:
        recorder.warm_up()
        for step in range(300):
            recorder.record(step)
    finally:
        gc.unfreeze()
    later = recorder.blocks[50:300]
    assert max(later) - min(later) <= 5
    assert max(recorder.malloc[50:300]) - min(recorder.malloc[50:300]) <= 2_048
    recorder.record(300)  # full: it is dropped
    assert recorder.count == 300


def test_the_users_frame_is_the_innermost_that_is_no_library():
    numpy = str(Path(library_folders()[-1], "site-packages", "numpy", "core.py"))
    package = str(Path(library_folders()[-1], "site-packages", "some_env", "env.py"))
    mine, ours = "/home/me/env.py", str(Path(sys.modules["legroom.watching.measuring"].__file__))
    stack = [
        CodeLine("zeros", numpy, 9),
        CodeLine("look", mine, 30),
        CodeLine("step", mine, 12),
        CodeLine("advance", ours, 40),
    ]
    assert own_frame(stack, library_folders(), ()) == CodeLine("look", mine, 30)
    packaged = [
        CodeLine("zeros", numpy, 9),
        CodeLine("step", package, 5),
        CodeLine("advance", ours, 40),
    ]
    assert own_frame(packaged, library_folders(), (str(Path(package).parent),)) == CodeLine("step", package, 5)
    assert own_frame(packaged[:1], library_folders(), ()) is None


def test_assert_no_leak_passes_and_fails_in_a_fresh_process():
    assert_no_leak(envs.Still, frames=1_000)
    with pytest.raises(AssertionError) as leak:
        assert_no_leak(envs.make_objects_keeper, frames=2_000)
    text = str(leak.value)
    assert "leaks 6" in text and f"{HERE}:{leaking_line(envs.KeepsObjects)}" in text and "bytes per step" in text


def test_assert_no_leak_takes_live_objects():
    assert_no_leak(envs.Still(), frames=1_000)
    with pytest.raises(AssertionError, match="leaks 6") as leak:
        assert_no_leak(lambda: envs.KeepsObjects(), frames=2_000)
    assert f"{HERE}:{leaking_line(envs.KeepsObjects)}" in str(leak.value)
