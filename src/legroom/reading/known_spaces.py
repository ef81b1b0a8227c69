"""The spaces of well-known environments, so that their runs can be predicted where they are not installed.

Observation shape and dtype decide the memory; a table of them costs nothing, an installation of MuJoCo or PyBullet
does. Generated in November 2026 by constructing the environments of gymnasium 1.4 (classic control, Box2D, MuJoCo v4
and v5), ale-py 0.12, pybullet_envs_gymnasium 0.6, gymnasium-robotics 1.4, panda-gym 3.0, highway-env 1.12 and
minigrid 3.2; MuJoCo v2 and v3 are v4 except for Ant, which counted its contact forces then. Bounds are left out:
no memory depends on them. What is not in here is not guessed.

Wrappers named in a run change the spaces; `WRAPPERS` says how. A wrapper that is not in that table may do anything,
so behind it the spaces are unknown.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from typing import Any

from legroom.model.spaces import KnownSpaces as Known

Space = dict[str, Any]  # in the words of a run file


def box(*shape: int, dtype: str = "float32") -> Space:
    return {"type": "box", "shape": list(shape), "dtype": dtype}


def discrete(n: int) -> Space:
    return {"type": "discrete", "n": n}


def _goal(observation: int, goal: int, *, dtype: str) -> Space:
    parts = {"achieved_goal": goal, "desired_goal": goal, "observation": observation}
    return {"type": "dict", "spaces": {name: box(n, dtype=dtype) for name, n in parts.items()}}


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

# game -> actions in its minimal set
ATARI_ACTIONS = {
    "Adventure": 18, "AirRaid": 6, "Alien": 18, "Amidar": 10, "Assault": 7, "Asterix": 9, "Asteroids": 14,
    "Atlantis": 4, "Atlantis2": 4, "Backgammon": 3, "BankHeist": 18, "BasicMath": 6, "BattleZone": 18, "BeamRider": 9,
    "Berzerk": 18, "Blackjack": 4, "Bowling": 6, "Boxing": 18, "Breakout": 4, "Carnival": 6, "Casino": 4,
    "Centipede": 18, "ChopperCommand": 18, "CrazyClimber": 9, "Crossbow": 18, "Darkchambers": 18, "Defender": 18,
    "DemonAttack": 6, "DonkeyKong": 18, "DoubleDunk": 18, "Earthworld": 18, "ElevatorAction": 18, "Enduro": 9,
    "Entombed": 18, "Et": 18, "FishingDerby": 18, "FlagCapture": 18, "Freeway": 3, "Frogger": 5, "Frostbite": 18,
    "Galaxian": 6, "Gopher": 8, "Gravitar": 18, "Hangman": 18, "HauntedHouse": 18, "Hero": 18, "HumanCannonball": 18,
    "IceHockey": 18, "Jamesbond": 18, "JourneyEscape": 16, "Kaboom": 4, "Kangaroo": 18, "KeystoneKapers": 14,
    "KingKong": 6, "Klax": 18, "Koolaid": 9, "Krull": 18, "KungFuMaster": 14, "LaserGates": 18, "LostLuggage": 9,
    "MarioBros": 18, "MiniatureGolf": 18, "MontezumaRevenge": 18, "MrDo": 10, "MsPacman": 9, "NameThisGame": 6,
    "Othello": 10, "Pacman": 5, "Phoenix": 8, "Pitfall": 18, "Pitfall2": 18, "Pong": 6, "Pooyan": 6, "PrivateEye": 18,
    "Qbert": 6, "Riverraid": 18, "RoadRunner": 18, "Robotank": 18, "Seaquest": 18, "SirLancelot": 6, "Skiing": 3,
    "Solaris": 18, "SpaceInvaders": 6, "SpaceWar": 18, "StarGunner": 18, "Superman": 18, "Surround": 5, "Tennis": 18,
    "Tetris": 5, "TicTacToe3D": 10, "TimePilot": 10, "Trondead": 18, "Turmoil": 12, "Tutankham": 8, "UpNDown": 6,
    "Venture": 18, "VideoCheckers": 5, "VideoChess": 10, "VideoCube": 18, "VideoPinball": 9, "WizardOfWor": 10,
    "WordZapper": 18, "YarsRevenge": 18, "Zaxxon": 18,
}  # fmt: skip
_ATARI_HEIGHTS = {
    "Adventure": 250, "AirRaid": 250, "KeystoneKapers": 250, "KingKong": 250, "Klax": 250, "LaserGates": 250,
    "MrDo": 250, "Pacman": 250, "SirLancelot": 250, "SpaceWar": 250, "Carnival": 214, "JourneyEscape": 230,
    "Pooyan": 220,
}  # fmt: skip
FULL_ACTIONS = 18
_ATARI_ID = re.compile(r"(?:ALE/)?(?P<game>[A-Za-z0-9]+?)(?P<ram>-ram)?(?:Deterministic|NoFrameskip)?-v[0-9]+")


def is_atari(env_id: str) -> bool:
    """Return whether `env_id` is one of the Atari games' ids, old or new."""
    match = _ATARI_ID.fullmatch(env_id.rpartition(":")[2])
    return match is not None and match["game"] in ATARI_ACTIONS and not env_id.endswith("Blackjack-v1")


def _atari(env_id: str, kwargs: Mapping[str, Any]) -> Known | None:
    if env_id == "atari":  # the zoo's entry for any game: no game takes more than the full set of actions
        return Known(box(210, 160, 3, dtype="uint8"), discrete(FULL_ACTIONS))
    if not is_atari(env_id):
        return None
    match = _ATARI_ID.fullmatch(env_id)
    assert match is not None
    game = match["game"]
    kind = kwargs.get("obs_type", "ram" if match["ram"] else "rgb")
    height = _ATARI_HEIGHTS.get(game, 210)
    shapes = {"rgb": (height, 160, 3), "grayscale": (height, 160), "ram": (128,)}
    if kind not in shapes:
        return None
    actions = FULL_ACTIONS if kwargs.get("full_action_space") is True else ATARI_ACTIONS[game]
    return Known(box(*shapes[kind], dtype="uint8"), discrete(actions))


def _minigrid(env_id: str) -> Known:
    # The mission is a text, which SB3 does not take: these need one of minigrid's wrappers.
    parts = {"direction": discrete(4), "image": box(7, 7, 3, dtype="uint8"), "mission": {"type": "text"}}
    actions = 3 if "-Dynamic-Obstacles-" in env_id else 7
    return Known({"type": "dict", "spaces": parts}, discrete(actions))


def _vectors() -> dict[str, Known]:
    table = {
        "CartPole-v0": Known(box(4), discrete(2), 200),
        "CartPole-v1": Known(box(4), discrete(2), 500),
        "MountainCar-v0": Known(box(2), discrete(3), 200),
        "MountainCarContinuous-v0": Known(box(2), box(1), 999),
        "Acrobot-v1": Known(box(6), discrete(3), 500),
        "Pendulum-v0": Known(box(3), box(1), 200),
        "Pendulum-v1": Known(box(3), box(1), 200),
        "FrozenLake-v1": Known(discrete(16), discrete(4), 100),
        "FrozenLake8x8-v1": Known(discrete(64), discrete(4), 200),
        "CliffWalking-v0": Known(discrete(48), discrete(4)),
        "CliffWalking-v1": Known(discrete(48), discrete(4)),
        "Taxi-v3": Known(discrete(500), discrete(6), 200),
        "Taxi-v4": Known(discrete(500), discrete(6), 200),
        "BipedalWalker-v3": Known(box(24), box(4), 1600),
        "BipedalWalkerHardcore-v3": Known(box(24), box(4), 2000),
        "highway-v0": Known(box(5, 5), discrete(5)),
        "highway-fast-v0": Known(box(5, 5), discrete(5)),
        "merge-v0": Known(box(5, 5), discrete(5)),
        "roundabout-v0": Known(box(5, 5), discrete(5)),
        "intersection-v0": Known(box(15, 7), discrete(3)),
        "racetrack-v0": Known(box(2, 12, 12), box(1)),
        "parking-v0": Known(_goal(6, 6, dtype="float64"), box(2)),
    }
    for version in ("v0", "v1", "v2", "v3"):
        table[f"CarRacing-{version}"] = Known(box(96, 96, 3, dtype="uint8"), box(3), 1000)
    for version in ("v2", "v3"):
        table[f"LunarLander-{version}"] = Known(box(8), discrete(4), 1000)
        table[f"LunarLanderContinuous-{version}"] = Known(box(8), box(2), 1000)
    return table


# name -> observation numbers by version, action numbers, time limit
_MUJOCO: dict[str, tuple[dict[str, int], int, int]] = {
    "Ant": ({"v2": 111, "v3": 111, "v4": 27, "v5": 105}, 8, 1000),
    "HalfCheetah": ({"v2": 17, "v3": 17, "v4": 17, "v5": 17}, 6, 1000),
    "Hopper": ({"v2": 11, "v3": 11, "v4": 11, "v5": 11}, 3, 1000),
    "Walker2d": ({"v2": 17, "v3": 17, "v4": 17, "v5": 17}, 6, 1000),
    "Swimmer": ({"v2": 8, "v3": 8, "v4": 8, "v5": 8}, 2, 1000),
    "Humanoid": ({"v2": 376, "v3": 376, "v4": 376, "v5": 348}, 17, 1000),
    "HumanoidStandup": ({"v2": 376, "v4": 376, "v5": 348}, 17, 1000),
    "InvertedPendulum": ({"v2": 4, "v4": 4, "v5": 4}, 1, 1000),
    "InvertedDoublePendulum": ({"v2": 11, "v4": 11, "v5": 9}, 1, 1000),
    "Reacher": ({"v2": 11, "v4": 11, "v5": 10}, 2, 50),
    "Pusher": ({"v2": 23, "v4": 23, "v5": 23}, 7, 100),
}

# name -> observation numbers, action numbers, time limit
_BULLET = {
    "Ant": (28, 8, 1000), "HalfCheetah": (26, 6, 1000), "Hopper": (15, 3, 1000), "Walker2D": (22, 6, 1000),
    "Humanoid": (44, 17, 1000), "HumanoidFlagrun": (44, 17, 1000), "HumanoidFlagrunHarder": (44, 17, 1000),
    "InvertedPendulum": (5, 1, 1000), "InvertedPendulumSwingup": (5, 1, 1000), "InvertedDoublePendulum": (9, 1, 1000),
    "Reacher": (9, 2, 150), "Pusher": (55, 7, 150), "Thrower": (48, 7, 100), "Minitaur": (28, 8, 1000),
}  # fmt: skip

_FETCH = {"Reach": 10, "Push": 25, "Slide": 25, "PickAndPlace": 25}
# name -> observation numbers, goal numbers, action numbers, time limit
_PANDA = {
    "Reach": (6, 3, 3, 50), "Push": (18, 3, 3, 50), "Slide": (18, 3, 3, 50), "PickAndPlace": (19, 3, 4, 50),
    "Stack": (31, 6, 4, 100),
}  # fmt: skip


def _robots() -> dict[str, Known]:
    table = {
        f"{name}-{version}": Known(box(n, dtype="float64"), box(actions), limit)
        for name, (versions, actions, limit) in _MUJOCO.items()
        for version, n in versions.items()
    }
    table |= {
        f"{name}BulletEnv-v0": Known(box(n), box(actions), limit) for name, (n, actions, limit) in _BULLET.items()
    }
    for dense in ("", "Dense"):
        for name, n in _FETCH.items():
            for version in ("v1", "v2", "v3", "v4"):
                table[f"Fetch{name}{dense}-{version}"] = Known(_goal(n, 3, dtype="float64"), box(4), 50)
        for name, (n, goal, actions, limit) in _PANDA.items():
            for version in ("v1", "v2", "v3"):
                table[f"Panda{name}{dense}-{version}"] = Known(_goal(n, goal, dtype="float32"), box(actions), limit)
    return table


@cache
def _table() -> Mapping[str, Known]:
    return _vectors() | _robots()


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


def _history(known: Known, kwargs: dict[str, Any]) -> Known:
    horizon = int(kwargs.get("horizon", 2))
    (actions,) = known.action["shape"]
    return _inner_box(known, horizon * (_inner(known) + actions))


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
    "YAMLCompatResizeObservation": _resize,
    "GrayScaleObservation": _grayscale,
    "GrayscaleObservation": _grayscale,
    "FlattenObservation": _flatten,
    "FrameStack": _stack,
    "FrameStackObservation": _stack,
    "TimeFeatureWrapper": _time_feature,
    "HistoryWrapper": _history,
    "HistoryWrapperObsDict": _history,
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
