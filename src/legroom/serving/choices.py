"""What the start view offers to choose from: algorithms, environments whose spaces are known, and examples.

A script seldom tells what an environment of its own observes. So that there is something to turn, such a run gets
spaces that are assumed, and the page says so until they are set.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from legroom.backends.base import backend_named, backend_of
from legroom.backends.default import DEFAULT_BACKEND
from legroom.errors import BadInput
from legroom.model.run import Run
from legroom.named_runs import workloads
from legroom.reading import read, run_from_dict

ENVIRONMENTS: Mapping[str, tuple[str, ...]] = {
    "Classic control": ("CartPole-v1", "Acrobot-v1", "MountainCar-v0", "MountainCarContinuous-v0", "Pendulum-v1"),
    "Box2D": ("LunarLander-v3", "LunarLanderContinuous-v3", "BipedalWalker-v3", "CarRacing-v3"),
    "MuJoCo": ("HalfCheetah-v5", "Hopper-v5", "Walker2d-v5", "Ant-v5", "Humanoid-v5", "HumanoidStandup-v5"),
    "Atari, 84×84 grey, 4 frames": tuple(
        f"{game}NoFrameskip-v4" for game in ("Breakout", "MsPacman", "Pong", "Qbert", "Seaquest", "SpaceInvaders")
    ),
    "Robots with goals": ("FetchReach-v4", "FetchPush-v4", "FetchSlide-v4", "FetchPickAndPlace-v4"),
}
ATARI = "Atari, 84×84 grey, 4 frames"
PREPROCESSED = "[{gymnasium.wrappers.AtariPreprocessing: {grayscale_newaxis: true}}]"


def choices() -> dict[str, Any]:
    """Return the lists."""
    return {
        "algorithms": [each.name for each in backend_named(DEFAULT_BACKEND).algorithms],
        "environments": [{"name": group, "ids": list(ids)} for group, ids in ENVIRONMENTS.items()],
        "examples": [_example(f"{each.name}:{each.first_shown or each.default}") for each in workloads()],
    }


def _example(name: str) -> dict[str, str]:
    run = read(name)
    return {"name": name, "algo": run.algo, "about": run.description or ""}


def chosen_run(algo: Any, env: Any) -> Run:
    """Return the run of an algorithm and an environment of the lists, with the constructor's defaults.

    Raises:
        BadInput: one of them is not on its list, or they do not go together.
    """
    group = next((name for name, ids in ENVIRONMENTS.items() if env in ids), None)
    backend = backend_named(DEFAULT_BACKEND)
    if group is None or algo not in {each.name for each in backend.algorithms}:
        raise BadInput("choose an algorithm and an environment from the lists", hint='{"algo": "PPO", "env": …}')
    atari = [("env.wrappers", PREPROCESSED), ("env.frame_stack", "4")] if group == ATARI else []
    run = read(f"{algo} {env}", overrides=atari).replace(name=f"{algo} on {env}")
    for finding in backend.predictor.constraints(run):
        if finding.severity == "error":
            raise BadInput(finding.message, hint=finding.hint)
    return run


def with_spaces(run: Run) -> tuple[Run, str | None]:
    """Return the run, with assumed spaces where nothing but its environment would tell them, and what was assumed."""
    backend = backend_of(run)
    known = run if run.env.spaces else backend.predictor.prepared(run, "arithmetic", lambda text: None)
    if known.env.spaces is not None:
        return run, None
    pictures = run.policy.name == "CnnPolicy"
    seen = {"type": "box", "shape": [84, 84, 3] if pictures else [64], "dtype": "uint8" if pictures else "float32"}
    observation = {"type": "dict", "spaces": {"observation": seen}} if run.policy.name == "MultiInputPolicy" else seen
    data = run.model_dump(exclude_defaults=True)
    for action in ({"type": "discrete", "n": 4}, {"type": "box", "shape": [4]}):
        data["env"] = {**data.get("env", {}), "spaces": {"observation": observation, "action": action}}
        assumed = run_from_dict(data)
        if not any(finding.code == "LR003" for finding in backend.predictor.constraints(assumed)):
            break
    return assumed, "×".join(map(str, seen["shape"])) + f" {seen['dtype']}"
