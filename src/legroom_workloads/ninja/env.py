"""The ninja as a gymnasium environment: get to the switch, then to the exit, alive.

An episode is one level. The observation is a dict of frames and numbers, each of which can be left out, or one vector.
Every array that is handed out is fresh by default and safe to keep; with `copy=False`, or bound to a worker's shared
memory, the same arrays are written again and again and nothing is allocated per step.

Importing this module imports neither torch nor scipy: it is what a worker process holds.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium import spaces
from numpy.typing import NDArray

from legroom.extend import BadInput, shares
from legroom_workloads.ninja import game as events
from legroom_workloads.ninja.config import EnvironmentConfig, RenderConfig
from legroom_workloads.ninja.game import ACTIONS, FRAMES_PER_S, WITHOUT_JUMP, Game
from legroom_workloads.ninja.level import Level
from legroom_workloads.ninja.level_pack import LevelPack, generated_pack
from legroom_workloads.ninja.map_file import read_map
from legroom_workloads.ninja.observation import Observer
from legroom_workloads.ninja.route import Route
from legroom_workloads.ninja.solving import cell_of

EPISODE_SEEDS = 2**31
MOST_SHARED_LAYERS = 256  # of 0.9 MB each
PREPARING_FRAMES = 32  # of each action: poses, and code that a game comes through
MOST_PREPARED_LEVELS = 128  # each with two mapped files, and a process may have a thousand open
Observation = dict[str, NDArray[Any]] | NDArray[np.float32]


class NinjaEnv(gym.Env[Any, np.int64]):
    """Play levels; see `EnvironmentConfig` for what can be chosen, each of its fields being a keyword argument too.

    Action Discrete(6): nothing, left, right, jump, jump left, jump right; a jump is held while its action is repeated.
    An episode ends with the exit or with death, and is truncated after `max_frames`. Its last `info` has `is_success`,
    `died` ("impact", "mine" or ""), `frames`, `gold` picked up, `switch_on` and the `level`'s name.

    Args:
        config: a whole configuration, instead of keyword arguments.
        render_mode: as gymnasium's; short for `render=RenderConfig(render_mode)`.

    Raises:
        BadInput: an argument or map file that cannot be used.
    """

    metadata: dict[str, Any] = {"render_modes": ["rgb_array", "human"], "render_fps": FRAMES_PER_S}  # noqa: RUF012
    score = "legroom_workloads.ninja.score:score_policy"  # who judges a policy of this environment,
    picture = "legroom_workloads.ninja.pictures:draw"  # and who draws its `last_episode`; by name, since it is heavy

    def __init__(
        self, config: EnvironmentConfig | None = None, *, render_mode: str | None = None, **arguments: Any
    ) -> None:
        if config is not None and arguments:
            raise BadInput("both a config and arguments", hint="dataclasses.replace(config, ...) changes a config")
        self.config = config if config is not None else EnvironmentConfig.of(arguments)
        self.render_mode = render_mode if render_mode is not None else self.config.render.render_mode
        self._render = RenderConfig(self.render_mode, self.config.render.enable_animation)
        self._first_seed = self.config.seed
        self._pack: LevelPack | None = None
        self._level_seed = self.config.level_seed
        self._route: Route | None = None
        self._pictures: Any = None
        self._window: Any = None
        if self.config.data is not None:
            self.game = Game(read_map(self.config.data))
        else:
            self._pack = generated_pack(
                self.config.level_seed,
                self.config.levels,
                self.config.level_size,
                float(self.config.difficulty),
                shared=self.config.share,
            )
            self.game = Game(self._pack.level(self._level_seed))
        self._last: dict[str, Any] | None = None
        # of an episode, all at once: what grows until its end looks like a leak
        self._inputs = np.zeros(self.config.max_frames, np.uint8)
        self._begin()
        self._observer = Observer(self.config)
        self._slots: list[Observation] = []
        self._turn = 0
        self.observation_space = observation_space(self.config)
        self.action_space = spaces.Discrete(len(ACTIONS))

    @classmethod
    def prepare_workers(
        cls, config: EnvironmentConfig | None = None, *, render_mode: str | None = None, **arguments: Any
    ) -> None:
        """Do once what every worker process would do again; called in the process that they are forked from.

        A short game imports what is imported on first use, and fills the caches of sprites, masks and spaces. All that
        is derived from the run's levels is made too, where it is shared: what is mapped here is mapped in the workers,
        and none of them has in its heap what drawing a layer leaves behind.
        """
        config = config or EnvironmentConfig.of(arguments)
        env = cls(replace(config, render=RenderConfig(), share=config.share and shares()))  # and no window
        for action in range(len(ACTIONS)):
            env.reset(seed=0)
            for _ in range(PREPARING_FRAMES):
                env.step(action)
        derives = config.observation == "dict" and (config.player_frame or config.global_view or config.reachability)
        if env._pack is not None and env.shares_layer and derives and len(env._pack) <= MOST_PREPARED_LEVELS:
            for seed in range(config.level_seed, config.level_seed + len(env._pack)):
                env.reset(options={"level_seed": seed})

    # -- episodes -----------------------------------------------------------------------------------------------------

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Observation, dict[str, Any]]:
        """Begin a level: one of the pack, or with options {"level_seed": n} the generated level of that seed.

        Raises:
            BadInput: a level seed that is no number, or one for an environment that plays a map file.
        """
        super().reset(seed=self._first_seed if seed is None else seed)
        self._first_seed = None
        wanted = (options or {}).get("level_seed")
        if self._pack is None:
            if wanted is not None:
                raise BadInput("level_seed, but a map file is played", hint="leave out data")
            self.game.restart()
        else:
            self._play(self._choose_seed() if wanted is None else _seed(wanted))
        self._begin()
        self._pictures = None  # an animation ends with its episode
        if self.render_mode == "human":
            self.render()
        return self.observe(), {}

    def _choose_seed(self) -> int:
        if self.config.levels == 0:
            return int(self.np_random.integers(EPISODE_SEEDS))
        return self.config.level_seed + int(self.np_random.integers(self.config.levels))

    def _play(self, level_seed: int) -> None:
        assert self._pack is not None
        if level_seed == self._level_seed:
            self.game.restart()
        else:
            self.use_level(self._pack.level(level_seed))
            self._level_seed = level_seed

    def use_level(self, level: Level) -> None:
        """Play a level of your own; the next `reset` chooses another one, unless a map file is played.

        Raises:
            BadInput: it starts inside a wall.
        """
        self.game.use_level(level)
        self._begin()
        self._level_seed, self._route = -1, None

    def step(self, action: Any) -> tuple[Observation, float, bool, bool, dict[str, Any]]:
        """Play `action_repeat` frames."""
        reward, terminated, truncated, info = self.play(int(action))
        return self.observe(), reward, terminated, truncated, info

    def play(self, action: int) -> tuple[float, bool, bool, dict[str, Any]]:
        """Do what `step` does without looking: return reward, terminated, truncated and info.

        Raises:
            BadInput: an action that there is not.
        """
        if not 0 <= action < len(ACTIONS):
            raise BadInput(f"action {action}", hint=f"0 to {len(ACTIONS) - 1}")
        game, config = self.game, self.config
        rewards, first_frame, happened = config.rewards, game.frame, 0
        before = self._way_left() if rewards.progress else 0.0
        inputs = [action] * config.action_repeat
        if config.press_again and game.jump_is_spent:
            inputs[0] = WITHOUT_JUMP[action]
        for each in inputs:
            happened |= game.step(each)
            self._inputs[self._played % len(self._inputs)] = each
            self._played += 1
            if self._render.enable_animation or self.render_mode == "human":
                self._show()
            if game.dead or game.won or game.frame >= config.max_frames:
                break
        reward = rewards.time * (game.frame - first_frame) / FRAMES_PER_S
        if happened & ~events.JUMPED:
            reward += self._paid(happened)
        if rewards.progress:
            reward += rewards.progress * (before - self._way_left())
        terminated = game.dead or game.won
        truncated = not terminated and game.frame >= config.max_frames
        if not (terminated or truncated):
            return reward, terminated, truncated, {}
        self._last = {"level": game.level, "began": self._began, "inputs": bytes(self._inputs[: self._played])}
        return reward, terminated, truncated, self._summary(happened)

    def _begin(self, state: Mapping[str, Any] | None = None) -> None:
        """Keep from where the episode can be played again: its level's start, or a state that was set."""
        self._began, self._played = state, 0

    @property
    def last_episode(self) -> dict[str, Any] | None:
        """All that `pictures.draw` needs to play the last finished episode again; None before the first."""
        return self._last

    def _paid(self, happened: int) -> float:
        rewards = self.config.rewards
        died = events.DIED_BY_IMPACT | events.DIED_BY_MINE
        return (
            (rewards.completion if happened & events.WON else 0.0)
            + (rewards.death if happened & died else 0.0)
            + (rewards.switch if happened & events.SWITCH else 0.0)
            + (rewards.gold if happened & events.GOLD else 0.0)
        )

    def _way_left(self) -> float:
        game = self.game
        return 0.0 if game.won else self.route.left(cell_of((game.x, game.y)), game.switch_on)

    @property
    def route(self) -> Route:
        """The ways to switch and exit of the present level, computed on first use."""
        if self._route is None or self._route.level is not self.game.level:
            self._route = Route(self.game.level)
        return self._route

    @property
    def shares_layer(self) -> bool:
        """Whether what is derived from the present level is the run's: only if other environments will play it too.

        What is shared stays until the run ends, so a new level in every episode must not be.
        """
        if not self.config.share or self._pack is None:
            return self.config.share
        return len(self._pack) <= MOST_SHARED_LAYERS and self._level_seed in self._pack

    def _summary(self, happened: int) -> dict[str, Any]:
        game = self.game
        died = {events.DIED_BY_IMPACT: "impact", events.DIED_BY_MINE: "mine"}
        return {
            "is_success": game.won,
            "died": next((name for event, name in died.items() if happened & event), ""),
            "frames": game.frame,
            "gold": len(game.level.gold) - len(game.gold),
            "switch_on": game.switch_on,
            "level": game.level.name,
        }

    # -- observations -------------------------------------------------------------------------------------------------

    def observe(self) -> Observation:
        """Return the observation of the present state."""
        if self._slots:
            place = self._slots[self._turn]
        else:
            place = self._observer.new_arrays()
            if not self.config.copy:
                self._slots = [place]
        self._observer.write(self, place)
        return place

    def bind_observation(self, slots: list[Observation]) -> None:
        """From now on write observations into these arrays, whichever `write_to` names, and return those.

        Raises:
            BadInput: arrays that cannot hold the observation.
        """
        for slot in slots:
            self._observer.check(slot)
        self._slots, self._turn = list(slots), 0
        self.observe()

    def write_to(self, index: int) -> None:
        """Say which slot the next reset or step brings up to date; the others stay as they are meanwhile."""
        self._turn = index

    # -- state --------------------------------------------------------------------------------------------------------

    def get_state(self) -> dict[str, Any]:
        """Return all that a continuation depends on: under a kilobyte, since the rest follows from the level."""
        return {
            "game": self.game.get_state(),
            "level": self.game.level.key,
            "level_seed": self._level_seed,
            "first_seed": self._first_seed,
            "rng": self.np_random.bit_generator.state,
        }

    def set_state(self, state: Mapping[str, Any]) -> None:
        """Continue from where `get_state` was called, and show it in every slot.

        Raises:
            BadInput: a state of other levels.
        """
        try:
            if self._pack is not None and state["level_seed"] >= 0:
                self._play(int(state["level_seed"]))
            if state["level"] != self.game.level.key:
                raise BadInput(f"the state to continue from is one of another level than {self.game.level.name}")
            self.game.set_state(state["game"])
            self._begin(state["game"])
            self._first_seed = state["first_seed"]
            self.np_random.bit_generator.state = state["rng"]
        except (KeyError, ValueError, TypeError) as problem:
            raise BadInput(f"the state to continue from is not one of the ninja: {problem}") from None
        for slot in self._slots:
            self._observer.write(self, slot)

    # -- pictures -----------------------------------------------------------------------------------------------------

    def _show(self) -> None:
        """Let the animation go on, and the window show it."""
        self._drawer().advance(self.game)
        if self.render_mode == "human":
            self.render()

    def _drawer(self) -> Any:
        if self._pictures is None:
            from legroom_workloads.ninja.pictures import Pictures  # training draws none

            self._pictures = Pictures(self.game.level, self._render, share=self.shares_layer)
        return self._pictures

    def render(self) -> NDArray[np.uint8] | None:  # type: ignore[override]
        """Return the picture, uint8 [600, 1056, 3]; in mode "human" show it instead.

        Raises:
            MissingExtra: mode "human" without pygame.
        """
        if self.render_mode is None:
            return None
        picture = self._drawer().picture(self.game)
        if self.render_mode == "rgb_array":
            return picture
        if self._window is None:
            from legroom_workloads.ninja.human import Window

            self._window = Window()
        self._window.show(picture)
        return None

    def close(self) -> None:
        """Close the window, if there is one."""
        if self._window is not None:
            self._window.close()
            self._window = None


def create_environment(config: EnvironmentConfig | None = None) -> NinjaEnv:
    """Return the environment of a configuration."""
    return NinjaEnv(config or EnvironmentConfig())


def observation_space(config: EnvironmentConfig) -> spaces.Space[Any]:
    """Return the space of a configuration's observations."""
    return Observer(config).space()


def _seed(value: Any) -> int:
    if isinstance(value, bool) or not isinstance(value, int | np.integer) or value < 0:
        raise BadInput(f"level_seed is {value!r}", hint="a whole number, 0 or more")
    return int(value)
