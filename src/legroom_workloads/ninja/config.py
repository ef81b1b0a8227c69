"""What can be chosen about the environment, checked once and then fixed.

The defaults are for looking at the game: all frames, one env. `for_parallel_training()` is what a hundred environments
in one machine want. What is off costs nothing: no buffer is allocated for it and its module is not imported.
"""

from __future__ import annotations

import difflib
import math
from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from typing import Any

from legroom.extend import BadInput
from legroom_workloads.ninja.entity_states import LENGTHS
from legroom_workloads.ninja.generator import SIZES

RENDER_MODES = (None, "rgb_array", "human")
OBSERVATIONS = ("dict", "vector")
STATE_DTYPES = ("float32", "float16")


@dataclass(frozen=True)
class RenderConfig:
    """Pictures for people: `render_mode` None, "rgb_array" or "human" (which needs pygame).

    `enable_animation` smooths poses and adds particles, for about half a megabyte per environment; no observation
    shows them.
    """

    render_mode: str | None = None
    enable_animation: bool = False

    def __post_init__(self) -> None:
        _one_of("render_mode", self.render_mode, RENDER_MODES)
        _flag("enable_animation", self.enable_animation)


@dataclass(frozen=True)
class Rewards:
    """What is paid for what.

    `time` is per second of play, 60 frames: an exit reached in ten seconds pays 1.0 - 0.1, and waiting out the 20,000
    frames of an episode costs 3.3, so neither doing nothing nor dying (0.5) is a way to a good return. `progress` pays
    for the share of the way to the exit that is done, over the coarse graph, and takes it back for going back: it adds
    up to the same for every way there, so it changes how fast one learns and not what is best.
    """

    completion: float = 1.0
    death: float = -0.5
    switch: float = 0.1
    time: float = -0.01
    gold: float = 0.0
    progress: float = 0.0

    def __post_init__(self) -> None:
        for each in fields(self):
            value = getattr(self, each.name)
            if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
                raise BadInput(f"rewards.{each.name} is {value!r}", hint="a number")


@dataclass(frozen=True)
class EnvironmentConfig:
    """Everything about an environment but the policy.

    Args:
        observation: "dict", with the keys below that are on; "vector", one Box [102] instead (see `vector`).
        player_frame, global_view: frames uint8 [128, 128, 1] and [128, 256, 1].
        game_state: "float32" or "float16", 30 numbers (see `game_state`); None leaves them out.
        entity_states: "full", "compact" or "counts" (see `entity_states`); None leaves them out.
        reachability: features of the coarse graph, float32 [8], built on first use.
        data: a map file to play instead of generated levels.
        levels: how many generated levels episodes choose from; 0: every episode has a new one.
        level_seed: of the first of them.
        level_size: "small", "medium" or "large".
        difficulty: 0 to 1.
        max_frames: after which an episode is truncated.
        action_repeat: frames per step.
        press_again: a jump action that goes on after its jump is over, where the ninja could jump again, is released
            for its first frame, as a player's finger would. Without it a policy has to learn to let go, and one that
            always takes its likeliest action can stand holding the button for ever. Needs `action_repeat` of 2 or more.
        rewards: see `Rewards`; a mapping changes some of them.
        copy: False returns the same live arrays from every step, which the next step changes. SB3's own vector
            environments copy what they get and LeanVecEnv has the env write into its slots, so both are safe with it;
            whoever keeps observations himself is not.
        share: levels, and layers and ways that are derived from them, are the run's, not the environment's
            (`legroom.share`).
        seed: of the first episode, when `reset` is given none.

    Raises:
        BadInput: a value that cannot be used.
    """

    observation: str = "dict"
    player_frame: bool = True
    global_view: bool = True
    game_state: str | None = "float32"
    entity_states: str | None = None
    reachability: bool = False
    data: str | None = None
    levels: int = 64
    level_seed: int = 0
    level_size: str = "medium"
    difficulty: float = 0.3
    max_frames: int = 20_000
    action_repeat: int = 1
    press_again: bool = False
    rewards: Rewards = field(default_factory=Rewards)
    copy: bool = True
    share: bool = True
    seed: int | None = None
    render: RenderConfig = field(default_factory=RenderConfig)

    def __post_init__(self) -> None:
        if isinstance(self.rewards, Mapping):
            object.__setattr__(self, "rewards", _made(Rewards, self.rewards, "rewards"))
        if isinstance(self.render, Mapping):
            object.__setattr__(self, "render", _made(RenderConfig, self.render, "render"))
        _one_of("observation", self.observation, OBSERVATIONS)
        _one_of("game_state", self.game_state, (*STATE_DTYPES, None))
        _one_of("entity_states", self.entity_states, (*LENGTHS, None))
        _one_of("level_size", self.level_size, tuple(SIZES))
        for name in ("player_frame", "global_view", "reachability", "press_again", "copy", "share"):
            _flag(name, getattr(self, name))
        for name, least in (("levels", 0), ("level_seed", 0), ("max_frames", 1), ("action_repeat", 1)):
            _whole(name, getattr(self, name), least)
        if self.seed is not None:
            _whole("seed", self.seed, 0)
        if isinstance(self.difficulty, bool) or not isinstance(self.difficulty, int | float):
            raise BadInput(f"difficulty is {self.difficulty!r}", hint="a number from 0 to 1")
        if not 0.0 <= self.difficulty <= 1.0:
            raise BadInput(f"difficulty is {self.difficulty!r}", hint="a number from 0 to 1")
        if self.press_again and self.action_repeat < 2:
            raise BadInput("press_again with one frame per step", hint="action_repeat: 2 or more")
        shown = (self.player_frame, self.global_view, self.game_state, self.entity_states, self.reachability)
        if self.observation == "dict" and not any(shown):
            raise BadInput("an observation with nothing in it", hint="player_frame, global_view, game_state, …")

    @classmethod
    def of(cls, values: Mapping[str, Any]) -> EnvironmentConfig:
        """Return a configuration from keyword arguments.

        Raises:
            BadInput: one that there is not, or a value that cannot be used.
        """
        return _made(cls, values, "NinjaEnv")

    @classmethod
    def for_parallel_training(cls, **changes: Any) -> EnvironmentConfig:
        """Return what many environments side by side want: shared data, float16, no entity rows, no animation."""
        lean = cls(game_state="float16", entity_states=None, reachability=False, share=True, render=RenderConfig())
        _known(cls, changes, "for_parallel_training")
        return replace(lean, **changes)


def _known(kind: type, values: Mapping[str, Any], where: str) -> None:
    names = [each.name for each in fields(kind)]
    for name in values:
        if name not in names:
            close = difflib.get_close_matches(str(name), names, n=1)
            raise BadInput(
                f"{where} has no argument {name!r}",
                hint=f"did you mean {close[0]}?" if close else f"there are {', '.join(names)}",
            )


def _made(kind: Any, values: Mapping[str, Any], where: str) -> Any:
    _known(kind, values, where)
    return kind(**values)


def _one_of(name: str, value: Any, choices: tuple[str | None, ...]) -> None:
    if value not in choices:
        raise BadInput(f"{name} is {value!r}", hint=f"one of {', '.join(str(choice) for choice in choices)}")


def _flag(name: str, value: Any) -> None:
    if not isinstance(value, bool):
        raise BadInput(f"{name} is {value!r}", hint="true or false")


def _whole(name: str, value: Any, least: int) -> None:
    if isinstance(value, bool) or not isinstance(value, int) or value < least:
        raise BadInput(f"{name} is {value!r}", hint=f"a whole number, {least} or more")
