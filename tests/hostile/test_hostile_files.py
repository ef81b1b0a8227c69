"""If these fail, a file that somebody sent has its code run by a command that only reads (SECURITY.md)."""

from __future__ import annotations

import json
import os
import resource
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hostile_files import MARK, SB3, TEXTS, UNSEEN_ENVS, UNSEEN_POLICIES, write_evil, written

from legroom.cli.main import main
from legroom.environments.objects import makes_env, resolve_object
from legroom.environments.own_code import own_code
from legroom.errors import BadInput, Unseen
from legroom.machine.child_process import import_path
from legroom.model.files import seal
from legroom.model.run import EnvSpec, Run
from legroom.reading import read
from legroom.sweeping.sweep_grid import check_trust

LONGEST_S = 60.0  # on a machine that is busy with other things
MOST_NBYTES = 300 << 20
LEGROOM = str(Path(sys.executable).parent / "legroom")


class Folder:
    """A folder with evil modules in it, which is the working directory, and the canary that must not appear."""

    def __init__(self, path: Path, captured: Any) -> None:
        self.path, self.canary, self._captured = path, path / "canary", captured
        write_evil(path, self.canary)

    def write(self, what: Any, name: str = "run.yaml") -> str:
        (self.path / name).write_text(written(what, self.path, self.canary))
        return name

    def legroom(self, *arguments: str) -> tuple[int, str, str]:
        """Run a command in this process; whatever it is given, it ends in time, in our words, and nothing ran."""
        began, before = time.monotonic(), resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        with pytest.raises(SystemExit) as ended:
            main(list(arguments))
        out, err = self._captured.readouterr()
        assert not self.canary.exists(), arguments
        assert "evil" not in sys.modules
        assert time.monotonic() - began < LONGEST_S
        assert (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) * 1024 < MOST_NBYTES
        assert "Traceback" not in err and all(line.startswith("legroom: ") for line in err.splitlines()), err
        assert not any(mark in out + err for mark in "\x1b\x07\x9b\u202e")
        assert isinstance(ended.value.code, int)
        return ended.value.code, out, err


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Iterator[Folder]:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path])
    yield Folder(tmp_path, capsys)


@pytest.mark.parametrize("case", UNSEEN_ENVS)
def test_an_environment_of_its_own_is_not_imported_and_the_verdict_is_unknown(folder: Folder, case: str) -> None:
    file = folder.write(UNSEEN_ENVS[case])
    code, out, err = folder.legroom("predict", file, "--json")
    (run,) = json.loads(out)["runs"]
    assert (code, run["fits"], run["host"]) == (1, None, None)
    assert run["unseen"]
    assert err.count("\n") == 1 and "only with --trust" in err and err.rstrip().endswith("--trust")
    code, out, err = folder.legroom("predict", file)
    assert (code, out) == (1, "")
    code, out, err = folder.legroom("fit", file, "--json")
    if case == "rllib":  # which fit does not turn
        assert code == 2
    else:
        assert (code, json.loads(out)["fits"]) == (1, None)
    assert folder.legroom("check", file)[0] in (0, 1)
    assert folder.legroom("explain", file)[0] == 1
    with pytest.raises(Unseen):
        check_trust([read(file)], trust=False)


@pytest.mark.parametrize("case", UNSEEN_POLICIES)
def test_networks_of_its_own_are_not_imported_and_the_verdict_is_unknown(folder: Folder, case: str) -> None:
    file = folder.write(UNSEEN_POLICIES[case])
    code, out, err = folder.legroom("predict", file, "--json")
    (run,) = json.loads(out)["runs"]
    assert (code, run["fits"]) == (1, None)
    assert run["unseen"] and run["items"]
    assert err.count("\n") == 1 and err.rstrip().endswith("--trust")
    assert json.loads(folder.legroom("fit", file, "--json")[1])["fits"] is None


@pytest.mark.parametrize("name", TEXTS)
def test_a_text_is_read_and_nothing_of_it_runs(folder: Folder, name: str) -> None:
    file = folder.write(TEXTS[name], name)
    traced = name == "call.py"  # a run that can be predicted in full, which takes seconds and is tested elsewhere
    for command in (("predict",), ("fit",), ("check",), ("check", "--fix", "--dry-run"), ("explain",)):
        mode = ("--mode", "arithmetic") if traced and command[0] in ("predict", "fit") else ()
        code, _, err = folder.legroom(*command, file, *mode)
        assert code in (0, 1, 2) and err.count("\n") <= 1


@pytest.mark.parametrize(
    "content", [b"{}", b"\x80\x04.", b"[]", b'{"algo": "PPO", "env": {"id": "evil:Env"}}', b"\xff"]
)
def test_a_run_folder_that_somebody_sent_is_not_executed(folder: Folder, content: bytes) -> None:
    step = folder.path / "sent/checkpoints/step-000000000001"
    step.mkdir(parents=True)
    (folder.path / "sent/run.json").write_bytes(content)
    for name in ("checkpoint.json", "state.json", "state.safetensors", "policy.pth"):
        (step / name).write_bytes((folder.path / "evil.pickle").read_bytes())
    assert folder.legroom("export", "sent", "model.zip")[0] == 2
    assert folder.legroom("export", "sent/checkpoints/step-000000000001", "model.zip")[0] == 2


def test_the_policy_of_a_run_folder_is_imported_only_with_trust(folder: Folder) -> None:
    from legroom.backends.sb3.archives_zip import trusted_run

    (folder.path / "run.json").write_bytes(seal(UNSEEN_POLICIES["policy"]))
    with pytest.raises(BadInput, match="--trust"):
        trusted_run(folder.path, trust=False)
    assert trusted_run(folder.path, trust=True).policy.name == "evil:Policy"


@pytest.mark.parametrize(
    "name",
    ["os:system", "os:popen", "subprocess:Popen", "subprocess:call", "shutil:rmtree", "builtins:exec", "builtins:dict",
     "pathlib:Path", "importlib:import_module", "functools:partial", "ctypes:CDLL", "legroom.errors:EXIT_GOOD"],
)  # fmt: skip
def test_trusted_or_not_only_what_makes_environments_is_called(name: str) -> None:
    with pytest.raises(BadInput, match="not a class or function that makes an environment"):
        makes_env(name, resolve_object(name))


@pytest.mark.parametrize(
    "name",
    ["gymnasium:make", "gymnasium:register", "gymnasium:spaces.Box", "gymnasium.envs.registration:load_env_creator",
     "legroom_workloads.fire.generator:write_landscapes", "legroom_workloads.mine.env:Path",
     "legroom_workloads.mine.workload:WORKLOAD", "gymnasium.utils.play:play"],
)  # fmt: skip
def test_of_a_registered_package_only_its_environments_are_made_without_trust(name: str) -> None:
    import gymnasium

    assert not own_code(Run(algo="PPO", env=EnvSpec(id=name))).names
    with pytest.raises(BadInput):
        makes_env(name, resolve_object(name), gymnasium.Env)


@pytest.mark.parametrize("name", ["torch:load", "torch.hub:load", "torch.utils.cpp_extension:load_inline"])
def test_of_a_library_only_layers_and_optimizers_are_made(name: str) -> None:
    from legroom.backends.sb3.building import find_class
    from legroom.errors import Untraceable

    # setuptools, which cpp_extension imports, refuses to be imported once a test has imported the standard distutils
    with pytest.raises(Untraceable, match=r"neither a class of layers|cannot be imported: AssertionError: .*distutils"):
        find_class(Run(algo="PPO", env=EnvSpec(id="CartPole-v1")), name)


def test_installed_environments_and_layers_need_no_trust() -> None:
    wrappers = ("stable_baselines3.common.atari_wrappers:AtariWrapper", {"gymnasium.wrappers.TimeLimit": {"n": 1}})
    for env_id in ("CartPole-v1", "ALE/Pong-v5", "legroom_workloads.mine:MineEnv", "legroom_workloads.fire:FireEnv"):
        run = Run(algo="PPO", env=EnvSpec(id=env_id, wrappers=wrappers, kwargs={"path": "C:/data", "ratio": "4:3"}))
        assert not own_code(run).names


SHADOWS = "numpy yaml json torch gymnasium pydantic typing_extensions cloudpickle pickle six"


@pytest.mark.parametrize("path", [None, ":"])
def test_modules_beside_a_run_file_shadow_nothing(tmp_path: Path, path: str | None) -> None:
    """With trust the run's own module is imported, and numpy is numpy all the same; in a real process."""
    for name in SHADOWS.split()[: None if path is None else 2]:  # from PYTHONPATH Python itself imports more, before us
        (tmp_path / f"{name}.py").write_text(f"open({str(tmp_path / 'canary')!r}, 'w').write({name!r})")
    (tmp_path / "own.py").write_text(
        f"import gymnasium\nopen({str(tmp_path / 'imported')!r}, 'w')\n"
        "def make(): return gymnasium.make('CartPole-v1')\n"
    )
    (tmp_path / "run.yaml").write_text('{"algo": "PPO", "env": {"id": "own:make"}}')
    environment = {**os.environ, **({} if path is None else {"PYTHONPATH": path})}
    for trust in ((), ("--trust",)) if path is None else (("--trust",),):
        command = [LEGROOM, "predict", "run.yaml", "--json", *trust]
        done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)
        assert (tmp_path / "imported").exists() == bool(trust), done.stderr
        assert not (tmp_path / "canary").exists(), (tmp_path / "canary").read_text()
        assert json.loads(done.stdout)["runs"][0]["fits"] is (True if trust else None)


def test_folders_of_run_files_come_last_and_only_with_trust(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "run.yaml").touch()
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    monkeypatch.setattr(sys, "path", ["", str(tmp_path), "/installed"])
    run = Run(algo="PPO", env=EnvSpec(id="own:Env"), source=str(tmp_path / "run.yaml:entry"))
    assert import_path(run, own=True) == ["/installed", str(tmp_path), str(tmp_path / "here")]
    assert import_path(run, own=False) == ["/installed", str(tmp_path)]  # it is on this process's path, but last


def test_a_trusted_function_that_returns_no_environment_is_refused(folder: Folder) -> None:
    (folder.path / "evil.py").write_text("def make(**kwargs): return 7\n")
    code, _, err = folder.legroom("predict", folder.write(UNSEEN_ENVS["function beside"]), "--trust")
    assert code == 2 and "made an object of type int, which is not a gymnasium environment" in err


@pytest.mark.parametrize("command", ["predict", "check", "explain", "fit"])
def test_control_characters_in_a_file_name_do_not_reach_the_terminal(folder: Folder, command: str) -> None:
    name = f"run{MARK}.yaml"
    for content in ("algo: PPO\n", "RuntimeError: CUDA out of memory. Tried to allocate 2.00 GiB\x1b[31m\n"):
        (folder.path / name).write_text(content)
        assert folder.legroom(command, name)[0] in (0, 1, 2)
    assert folder.legroom(command, MARK)[0] == 2


@pytest.mark.parametrize(
    "arguments",
    [("predict", "NAME"), ("fit", "NAME"), ("check", "NAME"), ("explain", "NAME"), ("train", "NAME"),
     ("export", "NAME", "m"), ("export", "run.yaml", "NAME"),
     ("train", "run.yaml", "--out", "NAME"),
     ("predict", "run.yaml", "--mode", "arithmetic", "--html", "NAME"), ("ui", "--folder", "NAME"),
     ("sweep", "run.yaml", "--param", "seed=1", "--out", "NAME"), ("predict", "--", "NAME")],
    ids=" ".join,
)  # fmt: skip
def test_a_name_that_is_too_long_for_a_file_is_one_line(folder: Folder, arguments: tuple[str, ...]) -> None:
    """A text that somebody gave in place of a file, for example."""
    folder.write({"algo": "PPO", "env": {"id": "CartPole-v1"}, "total_timesteps": 64})
    code, _, err = folder.legroom(*(argument.replace("NAME", "a" * 300) for argument in arguments))
    assert code == 2 and err.count("\n") == 1


def test_a_pipe_is_explained_as_a_stream(folder: Folder) -> None:
    """`legroom explain <(COMMAND)`."""
    reading, writing = os.pipe()
    os.write(writing, b"RuntimeError: CUDA out of memory. Tried to allocate 2.00 GiB\n")
    os.close(writing)
    assert folder.legroom("explain", f"/dev/fd/{reading}")[0] == 0
    os.close(reading)


@pytest.mark.parametrize("name", ["requirements.txt", "pyproject.toml"])
@pytest.mark.parametrize("kind", ["pipe", "endless"])
def test_what_lies_beside_a_script_is_read_only_where_it_is_a_file(folder: Folder, name: str, kind: str) -> None:
    folder.write(SB3 + "PPO('MlpPolicy', 'CartPole-v1', n_steps=64)\n", "train.py")
    if kind == "pipe":
        os.mkfifo(folder.path / name)
    else:
        (folder.path / name).symlink_to("/dev/zero")
    assert folder.legroom("check", "train.py")[0] in (0, 1)
    assert folder.legroom("profile", "CartPole-v1", "--baseline", name)[0] == 2


@pytest.mark.skipif(not os.access("/proc/kmsg", os.R_OK), reason="the kernel's log is not readable here")
@pytest.mark.parametrize("command", ["predict", "check"])
def test_a_file_that_waits_for_more_is_refused(command: str) -> None:
    """The kernel's log says that it is a regular file, and a reader waits for its next line."""
    done = subprocess.run(
        [sys.executable, "-m", "legroom.cli.main", command, "/proc/kmsg"], capture_output=True, text=True, timeout=60,
        check=False,
    )  # fmt: skip
    assert (done.returncode, len(done.stderr.splitlines())) == (2, 1)
    assert done.stderr.startswith("legroom: /proc/kmsg: cannot be read")
