"""The spaces of well-known environments, so that their runs can be predicted where they are not installed.

Observation shape and dtype decide the memory; a table of them (`known_spaces.toml`) costs nothing, an installation of
MuJoCo or PyBullet does. What is not in there is not guessed.

Wrappers named in a run change the spaces; `WRAPPERS` says how. A wrapper that is not in that table may do anything,
so behind it the spaces are unknown.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

from legroom.model.spaces import KnownSpaces as Known

Space = dict[str, Any]  # in the words of a run file


def box(*shape: int, dtype: str = "float32") -> Space:
    return {"type": "box", "shape": list(shape), "dtype": dtype}


def discrete(n: int) -> Space:
    return {"type": "discrete", "n": n}


def find_spaces(env_id: str, wrappers: Sequence[Any] = (), kwargs: Mapping[str, Any] | None = None) -> Known | None:
    """Return the spaces of the environment behind its wrappers, None when they are not known.

    Args:
        wrappers: as in a run file: dotted names, or `{name: kwargs}`; the innermost first.
        kwargs: of the environment; the few that change its spaces are understood.
    """
    return wrapped(_bare(env_id, kwargs or {}), wrappers)


def wrapped(known: Known | None, wrappers: Sequence[Any]) -> Known | None:
    """Return what is known behind the wrappers, None when one of them may do anything."""
    for wrapper in wrappers:
        known = None if known is None else _wrapped(known, wrapper)
    return known


def _bare(env_id: str, kwargs: Mapping[str, Any]) -> Known | None:
    env_id = env_id.rpartition(":")[2]  # gymnasium's module:Id-v0
    if env_id.startswith("MiniGrid-"):
        return _minigrid(env_id)
    atari = _atari(env_id, kwargs)
    if atari is not None:
        return atari
    if env_id.startswith("CarRacing-") and kwargs.get("continuous") is False:
        return Known(box(96, 96, 3, dtype="uint8"), discrete(5), 1000)
    if env_id.startswith("LunarLander-") and kwargs.get("continuous") is True:
        env_id = env_id.replace("LunarLander-", "LunarLanderContinuous-")
    if set(kwargs) & CHANGES_SPACES:
        return None
    # the zoo registers variants with masked velocities; masking keeps the shape
    return _table().get(env_id) or _table().get(env_id.replace("NoVel-", "-"))


# Keyword arguments of known environments after which the table does not hold.
CHANGES_SPACES = frozenset({
    "use_contact_forces", "exclude_current_positions_from_observation", "include_cfrc_ext_in_observation",
    "include_cinert_in_observation", "include_cvel_in_observation", "include_qfrc_actuator_in_observation",
    "xml_file", "config", "map_name", "desc",
})  # fmt: skip

FULL_ACTIONS = 18
_ATARI_ID = re.compile(r"(?:ALE/)?(?P<game>[A-Za-z0-9]+?)(?P<ram>-ram)?(?:Deterministic|NoFrameskip)?-v[0-9]+")


def is_atari(env_id: str) -> bool:
    match = _ATARI_ID.fullmatch(env_id.rpartition(":")[2])
    return match is not None and match["game"] in _atari_games("atari_actions") and not env_id.endswith("Blackjack-v1")


def _atari(env_id: str, kwargs: Mapping[str, Any]) -> Known | None:
    if env_id == "atari":  # the zoo's entry for any game: no game takes more than the full set of actions
        return Known(box(210, 160, 3, dtype="uint8"), discrete(FULL_ACTIONS))
    if not is_atari(env_id):
        return None
    match = _ATARI_ID.fullmatch(env_id)
    assert match is not None
    game = match["game"]
    kind = kwargs.get("obs_type", "ram" if match["ram"] else "rgb")
    height = _atari_games("atari_heights").get(game, 210)
    shapes = {"rgb": (height, 160, 3), "grayscale": (height, 160), "ram": (128,)}
    if kind not in shapes:
        return None
    actions = FULL_ACTIONS if kwargs.get("full_action_space") is True else _atari_games("atari_actions")[game]
    return Known(box(*shapes[kind], dtype="uint8"), discrete(actions))


def _minigrid(env_id: str) -> Known:
    # The mission is a text, which SB3 does not take: these need one of minigrid's wrappers.
    parts = {"direction": discrete(4), "image": box(7, 7, 3, dtype="uint8"), "mission": {"type": "text"}}
    actions = 3 if "-Dynamic-Obstacles-" in env_id else 7
    return Known({"type": "dict", "spaces": parts}, discrete(actions))


@cache
def _tables() -> Mapping[str, Any]:
    return tomllib.loads(Path(__file__).with_suffix(".toml").read_text(encoding="utf-8"))


@cache
def _table() -> Mapping[str, Known]:
    return {
        env_id: Known(_space(observation), _space(action), *limit)
        for ids, (observation, action, *limit) in _tables()["spaces"].items()
        for env_id in ids.split()
    }


def _space(text: str) -> Space:
    """Return the space that the table has as `float32 4`, `discrete 2` or `goal float64 10 3`."""
    kind, *rest = text.split()
    if kind == "discrete":
        return discrete(int(rest[0]))
    if kind != "goal":
        return box(*map(int, rest), dtype=kind)
    dtype, observation, goal = rest
    parts = {"achieved_goal": goal, "desired_goal": goal, "observation": observation}
    return {"type": "dict", "spaces": {name: box(int(n), dtype=dtype) for name, n in parts.items()}}


@cache
def _atari_games(what: str) -> Mapping[str, int]:
    return {game: int(n) for n, games in _tables()[what].items() for game in games.split()}


# --- wrappers -----------------------------------------------------------------------------------------------------


def wrapper_parts(wrapper: Any) -> tuple[str, dict[str, Any]] | None:
    """Return the class name and keyword arguments of a wrapper as a run file names it, None when it is malformed."""
    if isinstance(wrapper, str):
        return re.split(r"[.:]", wrapper)[-1], {}
    if isinstance(wrapper, Mapping) and len(wrapper) == 1:
        ((name, kwargs),) = wrapper.items()
        return re.split(r"[.:]", str(name))[-1], dict(kwargs) if isinstance(kwargs, Mapping) else {}
    return None


def _wrapped(known: Known, wrapper: Any) -> Known | None:
    parts = wrapper_parts(wrapper)
    if parts is None:
        return None
    name, kwargs = parts
    if name in NEUTRAL_WRAPPERS:
        return known
    change = WRAPPERS.get(name)
    try:
        return change(known, kwargs) if change else None
    except (KeyError, TypeError, ValueError, IndexError):  # arguments or a space that the wrapper would refuse
        return None


def _with_box(known: Known, shape: Sequence[int], dtype: str | None = None) -> Known:
    observation = {**known.observation, "shape": [int(n) for n in shape], "dtype": dtype or known.observation["dtype"]}
    return Known(observation, known.action, known.episode_steps)


def _shape(known: Known) -> list[int]:
    shape: list[int] = known.observation["shape"]
    return shape


def _atari_wrapper(known: Known, kwargs: dict[str, Any]) -> Known:
    size = int(kwargs.get("screen_size", 84))
    return _with_box(known, (size, size, 1))


def _atari_preprocessing(known: Known, kwargs: dict[str, Any]) -> Known:
    size = int(kwargs.get("screen_size", 84))
    gray = kwargs.get("grayscale_obs", True)
    channels = ((1,) if kwargs.get("grayscale_newaxis") else ()) if gray else (3,)
    return _with_box(known, (size, size, *channels), "float32" if kwargs.get("scale_obs") else None)


def _resize(known: Known, kwargs: dict[str, Any]) -> Known:
    size = kwargs["shape"]
    pair = (size, size) if isinstance(size, int) else size
    return _with_box(known, (*pair[:2], *_shape(known)[2:]))


def _warp(known: Known, kwargs: dict[str, Any]) -> Known:
    return _with_box(known, (int(kwargs.get("height", 84)), int(kwargs.get("width", 84)), 1))


def _grayscale(known: Known, kwargs: dict[str, Any]) -> Known:
    height, width, _ = _shape(known)
    return _with_box(known, (height, width, 1) if kwargs.get("keep_dim") else (height, width))


def _flatten(known: Known, kwargs: dict[str, Any]) -> Known:
    if known.observation["type"] == "discrete":
        return Known(box(known.observation["n"], dtype="int64"), known.action, known.episode_steps)
    product = 1
    for n in _shape(known):
        product *= n
    return _with_box(known, (product,))


def _stack(known: Known, kwargs: dict[str, Any]) -> Known:
    count = kwargs.get("stack_size", kwargs.get("num_stack"))
    return _with_box(known, (int(count), *_shape(known)))  # type: ignore[arg-type]


def _inner_box(known: Known, n: int) -> Known:
    """Return `known` with the numbers of its observation, or of the key `observation` of a dict, set to `n`."""
    if known.observation["type"] != "dict":
        return _with_box(known, (n,))
    spaces = known.observation["spaces"]
    parts = {**spaces, "observation": {**spaces["observation"], "shape": [n]}}
    return Known({"type": "dict", "spaces": parts}, known.action, known.episode_steps)


def _inner(known: Known) -> int:
    is_dict = known.observation["type"] == "dict"
    (n,) = known.observation["spaces"]["observation"]["shape"] if is_dict else _shape(known)
    return int(n)


def _time_feature(known: Known, kwargs: dict[str, Any]) -> Known:
    return _inner_box(known, _inner(known) + 1)


def _time_limit(known: Known, kwargs: dict[str, Any]) -> Known:
    return Known(known.observation, known.action, int(kwargs["max_episode_steps"]))


def _mission_text(known: Known, kwargs: dict[str, Any]) -> Known:
    image = known.observation["spaces"]["image"]["shape"]
    numbers = image[0] * image[1] * image[2] + 28 * int(kwargs.get("maxStrLen", 96))  # one-hot letters of the mission
    return Known(box(numbers, dtype="uint8"), known.action, known.episode_steps)


def _image_only(known: Known, kwargs: dict[str, Any]) -> Known:
    return Known(known.observation["spaces"]["image"], known.action, known.episode_steps)


# class name -> what it does to the spaces
WRAPPERS: Mapping[str, Callable[[Known, dict[str, Any]], Known]] = {
    "AtariWrapper": _atari_wrapper,
    "AtariPreprocessing": _atari_preprocessing,
    "WarpFrame": _warp,
    "ResizeObservation": _resize,
    "GrayScaleObservation": _grayscale,
    "GrayscaleObservation": _grayscale,
    "FlattenObservation": _flatten,
    "FrameStack": _stack,
    "FrameStackObservation": _stack,
    "TimeFeatureWrapper": _time_feature,
    "TimeLimit": _time_limit,
    "FlatObsWrapper": _mission_text,
    "ImgObsWrapper": _image_only,
}
# wrappers that leave the spaces alone
NEUTRAL_WRAPPERS = frozenset({
    "Monitor", "VecMonitor", "RecordEpisodeStatistics", "RecordVideo", "VecVideoRecorder", "OrderEnforcing",
    "PassiveEnvChecker", "FrameSkip", "MaxAndSkipEnv", "NoopResetEnv", "FireResetEnv", "EpisodicLifeEnv",
    "ClipRewardEnv", "ClipAction", "RescaleAction", "ActionNoiseWrapper", "ActionSmoothingWrapper",
    "DelayedRewardWrapper", "TruncatedOnSuccessWrapper", "MaskVelocityWrapper", "StickyActionEnv", "TransformReward",
    "NormalizeReward", "ClipReward", "ActionMasker", "VecTransposeImage", "VecCheckNan", "VecNormalize",
})  # fmt: skip
