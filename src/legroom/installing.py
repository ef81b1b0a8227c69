"""The command that adds packages to this installation of legroom, whichever way it came here.

`pip install 'legroom[sb3]'` helps only where an index has legroom and `pip` is the one of this environment. Installers
leave what is needed to tell: `direct_url.json` (PEP 610) says where the distribution came from, `pipx_metadata.json`
and `uv-receipt.toml` whose environment this is.
"""

from __future__ import annotations

import json
import shlex
import shutil
import sys
from contextlib import suppress
from importlib.metadata import PackageNotFoundError, distribution
from importlib.util import find_spec
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

NAME = "legroom"
CONSTRAINTS = "constraints.txt"  # of a clone: without it, pip fetches several GB of CUDA packages


def install_command(extra: str, package: str) -> str:
    """Return what to type so that an extra is there, or a package that no extra has."""
    prefix, wanted = Path(sys.prefix), _specifier(extra) if extra else [package]
    if (prefix / "pipx_metadata.json").is_file():
        return shlex.join(["pipx", "install", "--force", *wanted] if extra else ["pipx", "inject", NAME, *wanted])
    if (prefix / "uv-receipt.toml").is_file():
        return shlex.join(["uv", "tool", "install", *(["--force"] if extra else [NAME, "--with"]), *wanted])
    found, python = shutil.which("pip"), shlex.quote(sys.executable)
    if found is not None and Path(found).parent == Path(sys.executable).parent:
        pip = "pip install"
    else:
        pip = f"{python} -m pip install" if find_spec("pip") is not None else f"uv pip install --python {python}"
    return f"{pip} {shlex.join(wanted)}"


def _specifier(extra: str) -> list[str]:
    """The words that name legroom with an extra: a clone, a file, a repository, or its name in an index."""
    told: dict[str, Any] = {}
    with suppress(PackageNotFoundError):  # copied here by hand
        told = json.loads(distribution(NAME).read_text("direct_url.json") or "{}")
    url, clone = urlsplit(told.get("url", "")), Path(__file__).parents[2]
    editable = (clone / "pyproject.toml").is_file()
    path = clone if editable else Path(unquote(url.path))
    if editable or (url.scheme == "file" and (path / "pyproject.toml").is_file()):
        pinned = ["-c", str(path / CONSTRAINTS)] if (path / CONSTRAINTS).is_file() else []
        return [*(["-e"] if editable else []), f"{path}[{extra}]", *pinned]
    if url.scheme and url.scheme != "file":
        scheme = f"{told['vcs_info']['vcs']}+" if "vcs_info" in told else ""
        return [f"{NAME}[{extra}] @ {scheme}{told['url']}"]
    return [f"{path}[{extra}]" if path.is_file() else f"{NAME}[{extra}]"]
