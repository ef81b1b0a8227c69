"""What to type to install an extra, for every way in which legroom may have come here."""

import json
import sys
from pathlib import Path

import pytest

from legroom import installing
from legroom.installing import install_command


class Installed:
    def __init__(self, told: dict | None) -> None:
        self._told = told

    def read_text(self, name: str) -> str | None:
        assert name == "direct_url.json"
        return None if self._told is None else json.dumps(self._told)


@pytest.fixture
def environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return an environment of its own, with pip, into which legroom was installed as a package."""
    prefix = tmp_path / "venv"
    (prefix / "bin").mkdir(parents=True)
    monkeypatch.setattr(sys, "prefix", str(prefix))
    monkeypatch.setattr(sys, "executable", str(prefix / "bin/python"))
    monkeypatch.setattr(installing, "__file__", str(prefix / "lib/python3.11/site-packages/legroom/installing.py"))
    monkeypatch.setattr(installing.shutil, "which", lambda name: str(prefix / "bin" / name))
    monkeypatch.setattr(installing, "distribution", lambda name: Installed(None))
    return prefix


def came_from(monkeypatch: pytest.MonkeyPatch, **told: object) -> None:
    monkeypatch.setattr(installing, "distribution", lambda name: Installed(told))


def test_from_an_index(environment: Path) -> None:
    assert install_command("sb3", "torch") == "pip install 'legroom[sb3]'"
    assert install_command("", "cem") == "pip install cem"


def test_from_a_wheel(environment: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    wheel = tmp_path / "my wheels" / "legroom-0.2.0-py3-none-any.whl"
    wheel.parent.mkdir()
    wheel.touch()
    came_from(monkeypatch, url=wheel.as_uri(), archive_info={})
    assert install_command("sb3", "torch") == f"pip install '{wheel}[sb3]'"


def test_from_a_clone_with_its_pins(environment: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    clone = tmp_path / "clone"
    clone.mkdir()
    for name in ("pyproject.toml", "constraints.txt"):
        (clone / name).touch()
    came_from(monkeypatch, url=clone.as_uri(), dir_info={})
    assert install_command("sb3", "torch") == f"pip install '{clone}[sb3]' -c {clone}/constraints.txt"
    monkeypatch.setattr(installing, "__file__", str(clone / "src/legroom/installing.py"))  # pip install -e
    assert install_command("sb3", "torch") == f"pip install -e '{clone}[sb3]' -c {clone}/constraints.txt"


def test_from_version_control(environment: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    came_from(monkeypatch, url="https://example.org/legroom.git", vcs_info={"vcs": "git", "commit_id": "0"})
    assert install_command("sb3", "torch") == "pip install 'legroom[sb3] @ git+https://example.org/legroom.git'"


def test_pipx_and_uv_tools(environment: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (environment / "pipx_metadata.json").touch()
    assert install_command("sb3", "torch") == "pipx install --force 'legroom[sb3]'"
    assert install_command("", "cem") == "pipx inject legroom cem"
    (environment / "pipx_metadata.json").unlink()
    (environment / "uv-receipt.toml").touch()
    assert install_command("sb3", "torch") == "uv tool install --force 'legroom[sb3]'"


def test_pip_of_another_environment_is_not_used(environment: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(installing.shutil, "which", lambda name: "/usr/bin/pip")
    assert install_command("sb3", "torch") == f"{environment}/bin/python -m pip install 'legroom[sb3]'"
    monkeypatch.setattr(installing, "find_spec", lambda name: None)
    assert install_command("sb3", "torch") == f"uv pip install --python {environment}/bin/python 'legroom[sb3]'"
