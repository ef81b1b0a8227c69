"""What legroom said, to be compared with what it says now: `python tests/goldens/make.py [NAME...]` writes it.

The goldens were made once, and are the contract; make one again only where a change of the figures is meant,
and say so in the commit. Nearly all of it is asked through the command line in this process, whose options and JSON
are themselves part of the contract, so that nothing here has to know which module does what. Measured figures are
those that legroom ships: the cache of this machine is put out of sight.
"""

from __future__ import annotations

import contextlib
import importlib
import io
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import yaml

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
FILES = (
    *("docs/files/*.y*ml", "docs/files/*.py", "examples/*.py", "tests/checking/configs/*"),
    *("tests/checking/scripts/*.py", "tests/checking/scripts/*/*.py"),
)
CARD = ("--gpu", "RTX 4090")  # the recorded runs were made for one with as many multiprocessors
ARITHMETIC = ("--mode", "arithmetic", "--json")
VARIANTS = {
    "cpu": ("--ram", "16GiB", "--cpu-only"),
    "cuda": ("--ram", "16GiB", *CARD),
    "rllib": ("--ram", "16GiB", "--cpu-only", "--backend", "rllib"),
}
QUICK = ("ppo-vec-rest", "a2c-dict", "dqn-vec-wide", "sac-small")  # of the recorded runs
DOCUMENTS = {
    "predict": ("predict", "mine:small", "robot:gpu_8gb", *VARIANTS["cuda"], *ARITHMETIC),
    "fit": ("fit", "mine:full", "--ram", "8GiB", "--cpu-only", *ARITHMETIC),
    "fit tiers": ("fit", "robot:default", "--tiers", "8,24", *ARITHMETIC),
    "fit workload": ("fit", "mine", "--ram", "8GiB", "--cpu-only", *ARITHMETIC),
    "check": ("check", "tests/checking/configs", "tests/checking/scripts", "--ram", "16GiB", "--cpu-only", "--json"),
    "machine": ("machine", "--json"),
    "explain": ("explain", "docs/files/cuda.txt", "--json"),
    "workloads": ("workloads", "--json"),
}
NAMES = (
    *("legroom:__version__", "legroom.testing:assert_no_leak", "legroom.cli.main:main", "legroom.reading:read_all"),
    *("legroom_workloads.fire:spread_rate", "legroom_workloads.ninja:EnvironmentConfig"),
    *("legroom_workloads.ninja:RenderConfig", "legroom_workloads.ninja:create_environment"),
    *("legroom_workloads.robot:RobotGymEnv", "legroom_workloads.robot:save_gif"),
)  # what the documentation imports, beside legroom.__all__ and what the named runs name


def legroom(*arguments: object) -> tuple[int, str]:
    """Return the exit code of a command and what it printed."""
    main = importlib.import_module("legroom.cli.main").main
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed), contextlib.redirect_stderr(io.StringIO()):
        try:
            main([str(argument) for argument in arguments])
        except SystemExit as end:
            return int(end.code or 0), printed.getvalue()
    raise AssertionError("main always exits")


def asked(*arguments: object) -> Any:
    """Return the JSON document of a command, or its exit code where it printed none but an error."""
    code, printed = legroom(*arguments)
    document = json.loads(printed) if printed else {"error": None}
    return {"exit": code} if "error" in document else document


@contextlib.contextmanager
def surroundings(*, measured: bool = False) -> Iterator[None]:
    """Work at the root of the repository, without what was measured on this machine, and what is installed on it."""
    before = dict(os.environ)
    optional = importlib.import_module("legroom.backends.sb3.base_figures").OPTIONAL
    packages = dict(optional)
    with tempfile.TemporaryDirectory() as empty, contextlib.chdir(ROOT):
        if not measured:
            os.environ["XDG_CACHE_HOME"] = empty
            optional.clear()
        os.environ |= {"PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1", "COLUMNS": "100"}
        try:
            yield
        finally:
            os.environ.clear()
            os.environ.update(before)
            optional.update(packages)


def named_runs() -> list[str]:
    return [run["name"] for run in asked("workloads", "--json")["runs"]]


def targets() -> Iterator[tuple[tuple[str, ...], Any]]:
    """Yield the runs, and every run in the files of tests and documentation, as arguments and as data."""
    reading = importlib.import_module("legroom.reading")
    for name in named_runs():
        yield (name,), reading.read(name)
    for path in sorted(str(path.relative_to(ROOT)) for pattern in FILES for path in ROOT.glob(pattern)):
        like = "gameboy:default" if "constants" in path else None
        try:
            found = reading.read_all(path, like=like)
        except Exception as wrong:  # tests/reading says what is wrong with it
            if not hasattr(wrong, "exit_code"):
                raise
            continue
        for run in found:
            target = path if len(found) == 1 else f"{path}:{run.name}"
            yield (target, *(("--like", like) if like else ())), run


def runs() -> dict[str, Any]:
    """Return every run as data, as it would be written to a file."""
    found = {}
    for target, run in targets():
        data = run.model_dump(exclude_defaults=True)
        found[target[0]] = {key: value for key, value in data.items() if key != "source"}
    return found


def predictions() -> dict[str, Any]:
    """Return the predictions of every run, or the exit code where it can have none."""
    found = {}
    for target, _ in targets():
        for variant, options in VARIANTS.items():
            document = asked("predict", *target, *options, *ARITHMETIC)
            found[f"{target[0]} {variant}"] = document if "exit" in document else prediction(document["runs"][0])
    return found


def prediction(run: dict[str, Any]) -> dict[str, Any]:
    """Return the figures of a prediction, without the words that explain them."""
    kept = ("fits", "device", "host", "gpu", "with_free_savings", "with_lean_storage")
    if run["gpu"] is not None:
        run["gpu"] |= {"allocator": peaks(run["gpu"]["allocator"])}
    items = [
        [item["name"], item["place"], " ".join(item["phases"]), item["count"], item["nbytes"], item["error"]]
        for item in run["items"]
    ]
    findings = [[finding["code"], finding["name"], finding["severity"]] for finding in run["findings"]]
    return {key: run[key] for key in kept} | {"findings": findings, "items": items}


def peaks(allocator: dict[str, Any] | None) -> dict[str, Any] | None:
    """Return what 0.1 said of PyTorch's allocator."""
    return None if allocator is None else {key: allocator[key] for key in ("peak_allocated", "peak_reserved")}


def plans() -> dict[str, Any]:
    """Return how each named run is made to fit a half and a quarter of what it needs."""
    found = {}
    for name in named_runs():
        for variant, place, option in (("cpu", "host", "--ram"), ("cuda", "gpu", "--vram")):
            options = VARIANTS[variant][2:]
            need = asked("predict", name, *options, *ARITHMETIC)["runs"][0][place]["peak"]
            for part in (2, 4):
                given = (*options, option, need // part, *(("--ram", "16GiB") if place == "gpu" else ()))
                plan = asked("fit", name, *given, *ARITHMETIC)
                if "exit" not in plan:
                    knobs = [[knob[key] for key in ("name", "from", "to", "price", "saved")] for knob in plan["knobs"]]
                    plan = {key: plan[key] for key in ("fits", "after", "needed")} | {"knobs": knobs}
                found[f"{name} {place}/{part}"] = plan
    return found


def documents() -> dict[str, Any]:
    """Return the types at every path of the JSON documents, and the schema of a run file with its references in it."""
    found: dict[str, Any] = {name: shape(asked(*command)) for name, command in DOCUMENTS.items()}
    schema = asked("schema")
    return found | {"schema": expanded(schema, schema["$defs"])}


def shape(document: Any, path: str = "") -> dict[str, list[str]]:
    found = {path: {type(document).__name__}}
    children: list[tuple[str, Any]] = []
    if isinstance(document, dict):
        children = [(f"{path}.{key}", value) for key, value in document.items()]
    elif isinstance(document, list):
        children = [(f"{path}[]", value) for value in document]
    for where, value in children:
        for at, types in shape(value, where).items():
            found.setdefault(at, set()).update(types)
    return {at: sorted(types) for at, types in found.items()}


def expanded(schema: Any, named: dict[str, Any], inside: tuple[str, ...] = ()) -> Any:
    """Return a schema without its words, and with what it refers to in place: names of classes are nobody's business.

    A class inside itself, as a dict of spaces, is left out.
    """
    if isinstance(schema, list):
        return [expanded(each, named, inside) for each in schema]
    if not isinstance(schema, dict):
        return schema
    name = str(schema.get("$ref", "")).rpartition("/")[2]
    if name:
        return {} if name in inside else expanded(named[name], named, (*inside, name))
    dropped = {"$defs", "discriminator"} | {key for key in ("description", "title") if isinstance(schema.get(key), str)}
    return {key: expanded(value, named, inside) for key, value in schema.items() if key not in dropped}


def options() -> dict[str, list[str]]:
    """Return the options of every command, as its help shows them."""
    commands = re.findall(r"^  (\w+)  ", legroom("--help")[1].partition("Commands:")[2].partition("Options:")[0], re.M)
    return {command: _options(command) for command in ["", *commands]}


def _options(command: str) -> list[str]:
    shown = re.findall(r"^  (-.*?)(?:  |$)", legroom(*command.split(), "--help-all")[1], re.M)
    return sorted({option for line in shown for option in re.findall(r"(?<!\S)--?\w[\w-]*", line)})


def names() -> list[str]:
    """Return the public names, and the classes that the named runs name: environments, policies, networks."""
    public = [f"legroom:{name}" for name in importlib.import_module("legroom").__all__]
    read = importlib.import_module("legroom").read
    given = {text for name in named_runs() for text in strings(read(name).model_dump()) if ":" in text}
    return sorted({*public, *NAMES, *(text for text in given if re.fullmatch(r"legroom[\w.]+:[A-Z]\w+", text))})


def strings(data: Any) -> Iterator[str]:
    if isinstance(data, str):
        yield data
    elif isinstance(data, dict | list | tuple):
        for value in data.values() if isinstance(data, dict) else data:
            yield from strings(value)


def allocator(only: Sequence[str] = ()) -> dict[str, Any]:
    """Return the peaks of PyTorch's allocator that tracing says for the recorded GPU runs, or for some of them."""
    rows = json.loads((ROOT / "bench/data/vram_truth.json").read_text())
    with tempfile.TemporaryDirectory() as folder:
        files = []
        for row in rows:
            if not only or row["name"] in only:
                files.append(Path(folder, f"{row['name']}.yaml"))
                files[-1].write_text(yaml.safe_dump(recorded_run(row)))
        found = asked("predict", *files, "--mode", "trace", "--trust", *CARD, "--json")["runs"]
    return {run["name"]: peaks(run["gpu"]["allocator"]) for run in found}


def recorded_run(row: dict[str, Any]) -> dict[str, Any]:
    """Return a recorded run as its run file would say it."""
    hyperparams, n_envs = row.get("kwargs", {}), row.get("n_envs", 1)
    policy: dict[str, Any] = {"name": row["policy"], "kwargs": row.get("policy_kwargs", {})}
    if "cnn3d" in row:
        policy |= {"features_extractor": "bench.truth_nets:Cnn3d", "features_extractor_kwargs": row["cnn3d"]}
        policy["kwargs"] = {**policy["kwargs"], "normalize_images": False}
    return {
        "name": row["name"],
        "algo": row["algo"],
        "env": {"n_envs": n_envs, "spaces": {"observation": row["obs"], "action": row["action"]}},
        "policy": policy,
        "hyperparams": hyperparams,
        "total_timesteps": row.get("total_timesteps") or 2 * hyperparams.get("n_steps", 2048) * n_envs,
        "device": "cuda",
    }


def folders() -> dict[str, Any]:
    """Train each run of `folders/` half-way, keep its folder, and return what going on with a copy of it gives."""
    found = {}
    for path in sorted((HERE / "folders").glob("*.yaml")):
        half = yaml.safe_load(path.read_text())["total_timesteps"] // 2
        shutil.rmtree(path.with_suffix(""), ignore_errors=True)
        with tempfile.TemporaryDirectory() as scratch:
            shutil.copy(path, scratch)
            made = train(path.stem, scratch, "--timesteps", half)
            assert made.returncode == 0, made.stderr
            unneeded = shutil.ignore_patterns("*.svg", "*.png", "tensorboard", "train.log", ".lock")
            shutil.copytree(Path(scratch, path.stem), path.with_suffix(""), ignore=unneeded)
        with tempfile.TemporaryDirectory() as scratch:
            found[path.stem] = resumed(path, scratch)
    return found


def resumed(path: Path, scratch: str | Path) -> dict[str, Any]:
    """Return how the training in a kept folder, copied, ends when it goes on to twice its steps."""
    shutil.copy(path, scratch)
    shutil.copytree(path.with_suffix(""), Path(scratch, path.stem))
    total = yaml.safe_load(path.read_text())["total_timesteps"]
    ended = train(path.stem, scratch, "--resume", "--timesteps", total)
    assert ended.returncode == 0, ended.stdout + ended.stderr
    outcome = json.loads(Path(scratch, path.stem, "outcome.json").read_text())
    told = {key: outcome[key] for key in ("status", "timesteps", "resume", "parameters_sha256")}
    return told | {"cpu": cpu(), "outcome": shape(outcome)}


def train(name: str, where: str | Path, *options: object) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "legroom.cli.main", "train", f"{name}.yaml", "--out", name, *map(str, options)]
    path = str(ROOT / "tests/backends/brax")
    env = os.environ | {"PYTHONPATH": path, "OMP_NUM_THREADS": "1", "JAX_DISABLE_MOST_OPTIMIZATIONS": "1"}
    return subprocess.run(command, cwd=where, env=env, text=True, capture_output=True, check=False, timeout=600)


def cpu() -> str:
    """Return what decides which kernels are chosen, and with them the last bits of a training."""
    return next(line for line in Path("/proc/cpuinfo").read_text().splitlines() if line.startswith("model name"))


GOLDENS = {each.__name__: each for each in (runs, predictions, plans, documents, options, names, allocator)}
BY_NAME = GOLDENS | {"folders": folders}


def main(wanted: Sequence[str]) -> None:
    for name in wanted or GOLDENS:
        with surroundings(measured=name in ("allocator", "folders")):
            made = BY_NAME[name]()
        lines = made.items() if isinstance(made, dict) else ((None, each) for each in made)
        each = [(f"{json.dumps(key)}: " if key is not None else "") + _compact(value) for key, value in lines]
        start, end = "{}" if isinstance(made, dict) else "[]"
        (HERE / f"{name}.json").write_text(f"{start}\n" + ",\n".join(each) + f"\n{end}\n")


def _compact(value: Any) -> str:
    return json.dumps(value, separators=(",", ":"))


if __name__ == "__main__":
    main(sys.argv[1:])
