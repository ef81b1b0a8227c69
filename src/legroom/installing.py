"""The command that adds packages to this installation of legroom, whichever way it came here.

`pip install 'legroom[sb3]'` helps only where an index has legroom and `pip` is the one of this environment. A wheel, a
clone, pipx and uv each need another command. Installers leave what is needed to tell: `direct_url.json` (PEP 610) says
where the distribution came from, `pipx_metadata.json` and `uv-receipt.toml` whose environment this is.
"""

from __future__ import annotations

import json
import re
import shlex
import shutil
import sys
from importlib.metadata import PackageNotFoundError, distribution
from importlib.util import find_spec
from pathlib import Path
from urllib.parse import unquote, urlsplit

NAME = "legroom"
CONSTRAINTS = "constraints.txt"  # of a clone: without it, pip fetches several GB of CUDA packages


def install_command(extra: str, package: str) -> str:
    """Return what to type so that an extra is there, or a package that no extra has."""
    prefix = Path(sys.prefix)
    wanted = _specifier(extra) if extra else [package]
    if wanted is None:  # where it came from is gone: its requirements are still known
        wanted = _requirements(extra) or [package]
        if (prefix / "pipx_metadata.json").is_file():
            return shlex.join(["pipx", "inject", NAME, *wanted])
        if (prefix / "uv-receipt.toml").is_file():
            return shlex.join(["uv", "tool", "install", NAME, *(word for one in wanted for word in ("--with", one))])
    elif (prefix / "pipx_metadata.json").is_file():
        return shlex.join(["pipx", "install", "--force", *wanted] if extra else ["pipx", "inject", NAME, *wanted])
    elif (prefix / "uv-receipt.toml").is_file():
        again = ["--force", *wanted] if extra else [NAME, "--with", *wanted]
        return shlex.join(["uv", "tool", "install", *again])
    return f"{_pip_install()} {shlex.join(wanted)}"


def _pip_install() -> str:
    """Return how something is installed for this interpreter."""
    found = shutil.which("pip")
    if found is not None and Path(found).parent == Path(sys.executable).parent:
        return "pip install"
    python = shlex.quote(sys.executable)
    return f"{python} -m pip install" if find_spec("pip") is not None else f"uv pip install --python {python}"


def _specifier(extra: str) -> list[str] | None:
    """Return the words that name legroom with an extra; None where what it was installed from is no longer there."""
    checkout = Path(__file__).parents[2]
    if (checkout / "pyproject.toml").is_file():
        return _of_folder(checkout, extra, editable=True)
    try:
        written = distribution(NAME).read_text("direct_url.json")
    except PackageNotFoundError:  # copied here by hand
        written = None
    if written is None:
        return [f"{NAME}[{extra}]"]
    told = json.loads(written)
    url, parts = str(told["url"]), urlsplit(str(told["url"]))
    if parts.scheme != "file":
        scheme = f"{told['vcs_info']['vcs']}+" if "vcs_info" in told else ""
        return [f"{NAME}[{extra}] @ {scheme}{url}"]
    path = Path(unquote(parts.path))
    if path.is_dir():
        return _of_folder(path, extra, editable=bool(told.get("dir_info", {}).get("editable")))
    return [f"{path}[{extra}]"] if path.is_file() else None


def _of_folder(folder: Path, extra: str, *, editable: bool) -> list[str] | None:
    if not (folder / "pyproject.toml").is_file():
        return None
    pinned = ["-c", str(folder / CONSTRAINTS)] if (folder / CONSTRAINTS).is_file() else []
    return [*(["-e"] if editable else []), f"{folder}[{extra}]", *pinned]


def _requirements(extra: str) -> list[str]:
    """Return what an extra consists of, extras within it resolved."""
    found: list[str] = []
    for line in distribution(NAME).requires or ():
        requirement, _, marker = line.partition(";")
        if re.search(rf"extra == ['\"]{re.escape(extra)}['\"]", marker):
            inner = re.fullmatch(rf"{NAME}\[([\w,-]+)\]", requirement.strip())
            more = [each for name in inner[1].split(",") for each in _requirements(name)] if inner else None
            found += [requirement.strip()] if more is None else more
    return list(dict.fromkeys(found))
