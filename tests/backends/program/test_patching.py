"""`fit --patch`: the edit of the user's source applies with git, runs as the program did, and keeps its bytes."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from legroom.backends.program.patching import Patch, Source, patch_for, source_of
from legroom.errors import BadInput

CALL = '\nimport legroom\n\nlegroom.attach("lean")  # less memory; before torch is imported\n\n'
PROGRAMS = {
    "plain": b"import sys\nprint(sys.argv[1:])\n",
    "docstring": b'#!/usr/bin/env python\n"""What it\ndoes."""\n\nimport sys\n\nprint(sys.argv[1:], __doc__)\n',
    "future": b"from __future__ import annotations\nfrom __future__ import division\nx = 1\n",
    "only a docstring, no end of line": b'"""Nothing."""',
    "empty": b"",
    "carriage returns": b"import sys\r\n\r\nprint(sys.argv[1:])\r\n",
    "latin-1": "# -*- coding: latin-1 -*-\nname = 'Müller'\nprint(name)\n".encode("latin-1"),
    "byte order mark": b"\xef\xbb\xbfimport sys\nprint(sys.argv)\n",
    "decorator": b"import functools\n\n@functools.cache\ndef f():\n    return 1\nprint(f())\n",
    "decorator first": b"@staticmethod\ndef f():\n    return 1\nprint(f)\n",
    "comments first": b"# licence\n# of this file\n\nimport sys\n",
}


def _git(folder: Path, *arguments: str, given: bytes = b"") -> bytes:
    return subprocess.run(["git", *arguments], cwd=folder, input=given, capture_output=True, check=True).stdout


@pytest.mark.parametrize("name", PROGRAMS)
@pytest.mark.parametrize("wanted", [("lean",), ("redo", "micro_batch=16"), ("allocator",)])
def test_the_patch_applies_with_git_and_gives_the_changed_file(tmp_path, monkeypatch, name, wanted) -> None:
    folder = tmp_path / "my code"
    folder.mkdir()
    file = folder / "train.py"
    file.write_bytes(PROGRAMS[name])
    _git(tmp_path, "init", "-q")
    monkeypatch.chdir(folder)  # not the top of the repository
    patch = patch_for(source_of(["python", "train.py", "1"], ()), wanted)
    _git(folder, "apply", "--whitespace=nowarn", given=patch.diff)
    assert file.read_bytes() == patch.after
    compile(patch.after, "train.py", "exec")
    added = len(patch.after) - len(PROGRAMS[name])
    at = next(at for at in range(len(patch.after)) if patch.after[:at] + patch.after[at + added :] == PROGRAMS[name])
    assert b"legroom" in patch.after[at : at + added] or b"environ" in patch.after[at : at + added]


def test_the_edit_stands_before_the_first_import_and_behind_what_must_be_first() -> None:
    patch = _patched(b'"""Doc."""\nfrom __future__ import annotations\n\nimport torch\n', ("lean", "redo"))
    assert patch == '"""Doc."""\nfrom __future__ import annotations\n' + CALL + "import torch\n"


def test_variables_alone_need_no_legroom() -> None:
    assert _patched(b"import torch\n", ("allocator",)) == (
        'import os\n\nos.environ.setdefault("PYTORCH_CUDA_ALLOC_CONF", "expandable_segments:True")\n\nimport torch\n'
    )


def test_a_program_that_has_been_patched_gets_another_call_in_its_place() -> None:
    again = _patched(b'import legroom\n\nlegroom.attach("lean",\n  "redo")\n\nimport torch\n', ("micro_batch=8",))
    assert again == (
        'import legroom\n\nlegroom.attach("micro_batch=8")  # less memory; before torch is imported\n\nimport torch\n'
    )


def _patched(content: bytes, wanted: tuple[str, ...]) -> str:
    class Memory:
        name = "train.py"

        def read_bytes(self) -> bytes:
            return content

    return patch_for(Source(Memory(), 1), wanted).after.decode()  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("content", "why"),
    [
        (b'"""Doc."""; import torch\n', "train.py:1 has two statements in one line"),
        (b"print 'two'\n", "train.py cannot be read"),
        (b"import torch\rprint(1)\r", "carriage returns alone"),
    ],
)
def test_what_cannot_be_patched_says_which_edit_is_needed(content: bytes, why: str) -> None:
    with pytest.raises(BadInput) as refused:
        _patched(content, ("lean",))
    assert why in str(refused.value)
    assert 'put this at the start of your program: import legroom; legroom.attach("lean")' in str(refused.value)


@pytest.mark.parametrize(
    "command", [["some-tool", "--steps", "1"], ["python", "-m", "json.tool"], ["python", "-c", "1"]]
)
def test_a_command_without_a_file_of_the_users(command: list[str]) -> None:
    with pytest.raises(BadInput, match="put this at the start of your program"):
        source_of(command, ("lean",))


@pytest.mark.parametrize("form", ["script", "module", "package", "in a folder"])
def test_the_changed_source_runs_as_the_program_would(tmp_path, monkeypatch, form) -> None:
    """Its arguments, file, folder on the path, package and `__main__` are what they are."""
    (tmp_path / "pkg").mkdir()
    (tmp_path / "pkg" / "__init__.py").write_text("")
    (tmp_path / "pkg" / "beside.py").write_text("NAME = 'beside'\n")
    text = "import json, sys\n{}\nimport pickle\nclass A: pass\npickle.loads(pickle.dumps(A()))\n" + (
        "print(json.dumps([sys.argv, __file__, __name__, __package__, NAME, sys.path[0]]))\n"
    )
    names = {
        "script": "pkg/train.py",
        "in a folder": "pkg/train.py",
        "module": "pkg/train.py",
        "package": "pkg/__main__.py",
    }
    file = tmp_path / names[form]
    file.write_text(
        text.format("from .beside import NAME" if form in ("module", "package") else "from beside import NAME")
    )
    word = {"script": "train.py", "in a folder": "pkg/train.py", "module": "pkg.train", "package": "pkg"}[form]
    monkeypatch.chdir(file.parent if form == "script" else tmp_path)
    named = ["-m", word] if form in ("module", "package") else [word]
    command = [sys.executable, *named, "--lr", "1"]
    plain = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    patch = patch_for(source_of(command, ()), ("allocator",))
    with patch.command(command) as patched:
        changed = subprocess.run(patched, capture_output=True, text=True, check=True).stdout
        assert not Path(patched[1]).is_relative_to(tmp_path)  # nothing beside the user's files
    assert changed == plain
    assert not Path(patched[1]).exists()


def test_writing_keeps_permissions_and_refuses_a_file_that_has_changed(tmp_path) -> None:
    file = tmp_path / "train.py"
    file.write_bytes(b"import torch\n")
    file.chmod(0o755)
    patch = patch_for(Source(file, 1), ("lean",))
    patch.write()
    assert file.read_bytes() == patch.after and file.stat().st_mode & 0o777 == 0o755
    with pytest.raises(BadInput, match="has changed while the patch was tried"):
        Patch(patch.source, b"other", b"new").write()
    assert [each.name for each in tmp_path.iterdir()] == ["train.py"]
