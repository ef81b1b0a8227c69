"""A held-out set for `legroom check`: training scripts and configurations of public repositories.

    python -m bench.check_heldout collect MIRRORS     choose the files once, write data/check_heldout.json
    python -m bench.check_heldout extract MIRRORS DIR write the files of the manifest under DIR, checksums compared
    python -m bench.check_heldout check DIR FINDINGS  check every file, write all that was said as JSON lines
    python -m bench.check_heldout score FINDINGS JUDGED   write the section of bench/RESULTS.md

MIRRORS holds git directories, `owner+name/repo`. The manifest names repository, commit, path and SHA-256; the files
themselves are other people's and are not kept here. They are chosen at random among all that match, by the patterns
below alone, and no more than a few of each repository. JUDGED is JSON: `{"<repo>:<path>:<line>:<code>": true}`.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import random
import re
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

MANIFEST = Path(__file__).parent / "data" / "check_heldout.json"
WANTED = 300  # of each kind
MOST_EACH = 8  # of a kind of one repository
LARGEST = 120_000
SEED = 25
SEEN = Path(__file__).parent / "data" / "check_seen_repositories.txt"  # looked at while rules were written
SCRIPT_IMPORTS = re.compile(
    r"(?m)^\s*(?:from|import)\s+(?:torch|stable_baselines3|sb3_contrib|ray|brax|jax|skrl|tianshou)\b"
)
SCRIPT_TRAINS = re.compile(
    r"\.learn\(|\.backward\(|optim\w*\.step\(|\bppo\.train\(|\bsac\.train\(|algo\w*\.train\(|Tuner\(|Replay"
)
CONFIG_WORDS = re.compile(
    r"(?im)^[\s\"']*(?:batch_?size|n_?steps|num_?envs|n_?envs|learning_?rate|lr|gamma|buffer_?size|replay\w*|num_?minibatches|"
    r"mini_?batch\w*|n_?epochs|num_epochs|total_?timesteps|num_?timesteps|max_iterations|n_timesteps|hidden_?\w*|policy)[\"']?\s*:"
)
ELSEWHERE = re.compile(
    r"(?i)(^|/)(tests?|docs?|node_modules|site-packages|\.github)/|(^|/)test_|_test\.py$|package(-lock)?\.json$"
)


def candidates(folder: Path) -> Iterator[tuple[str, str, bytes]]:
    """Yield kind, path and content of all files of the newest commit that look like a training's."""
    listed = _git(folder, "ls-tree", "-r", "-l", "-z", "HEAD").split(b"\0")
    for line in filter(None, listed):
        what, _, name = line.partition(b"\t")
        size = what.split()[-1]
        path = name.decode("utf-8", "replace")
        kind = "script" if path.endswith(".py") else "config" if path.endswith((".yaml", ".yml", ".json")) else None
        if kind is None or not size.isdigit() or int(size) > LARGEST or ELSEWHERE.search(path):
            continue
        try:
            data = _git(folder, "cat-file", "blob", what.split()[2].decode())
        except subprocess.CalledProcessError:
            continue  # a large file that the snapshot lacks
        text = data.decode("utf-8", "replace")
        if kind == "script" and not (SCRIPT_IMPORTS.search(text) and SCRIPT_TRAINS.search(text)):
            continue
        if kind == "config" and len({m.strip().lower() for m in CONFIG_WORDS.findall(text)}) < 3:
            continue
        yield kind, path, data


def collect(mirrors: Path) -> None:
    """Write the manifest."""
    seen = set(SEEN.read_text().split())
    chance = random.Random(SEED)
    taken: dict[str, list[dict[str, Any]]] = {"script": [], "config": []}
    spare: dict[str, list[dict[str, Any]]] = {"script": [], "config": []}
    contents: set[str] = set()
    for folder in sorted(mirrors.iterdir()):
        repo = folder.name.replace("+", "/", 1)
        git = next((g for g in (folder / "repo" / ".git", folder / "repo") if (g / "HEAD").exists()), None)
        if git is None or repo in seen:
            continue
        commit = _git(git, "rev-parse", "HEAD").decode().strip()
        found: dict[str, list[dict[str, Any]]] = {"script": [], "config": []}
        for kind, path, data in candidates(git):
            digest = hashlib.sha256(data).hexdigest()
            if digest not in contents:
                contents.add(digest)
                found[kind].append({"kind": kind, "repo": repo, "commit": commit, "path": path, "sha256": digest})
        for kind, all_found in found.items():
            chance.shuffle(all_found)
            taken[kind] += all_found[:MOST_EACH]
            spare[kind] += all_found[MOST_EACH : 4 * MOST_EACH]
        print(repo, {kind: len(all_found) for kind, all_found in found.items()}, flush=True)
    chosen = []
    for kind in taken:
        chance.shuffle(taken[kind])
        chance.shuffle(spare[kind])
        chosen += [*taken[kind], *spare[kind]][:WANTED]
    chosen.sort(key=lambda each: (each["kind"], each["repo"], each["path"]))
    MANIFEST.write_text(json.dumps(chosen, indent=0) + "\n")
    print(Counter(each["kind"] for each in chosen), len({each["repo"] for each in chosen}), "repositories")


def extract(mirrors: Path, folder: Path) -> None:
    """Write the files of the manifest, each at its path below its repository's name."""
    for each in json.loads(MANIFEST.read_text()):
        repo = mirrors / each["repo"].replace("/", "+", 1) / "repo"
        git = repo / ".git" if (repo / ".git").exists() else repo
        data = _git(git, "show", f"{each['commit']}:{each['path']}")
        if hashlib.sha256(data).hexdigest() != each["sha256"]:
            raise SystemExit(f"{each['repo']} {each['path']}: another content")
        target = folder / each["repo"].replace("/", "+", 1) / each["path"]
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(data)


def _git(folder: Path, *arguments: str) -> bytes:
    return subprocess.run(["git", "--git-dir", str(folder), *arguments], check=True, capture_output=True).stdout


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description="A held-out set for legroom check.")
    verbs = parser.add_subparsers(dest="verb", required=True)
    verbs.add_parser("collect").add_argument("mirrors", type=Path)
    taking = verbs.add_parser("extract")
    taking.add_argument("mirrors", type=Path)
    taking.add_argument("folder", type=Path)
    chosen = parser.parse_args(arguments)
    if chosen.verb == "collect":
        collect(chosen.mirrors)
    else:
        extract(chosen.mirrors, chosen.folder)
    return 0


if __name__ == "__main__":
    sys.exit(main())
