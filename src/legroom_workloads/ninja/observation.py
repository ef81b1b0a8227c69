"""What of a game goes into an observation: one writer per key, chosen once by the configuration.

Each writer writes into an array that somebody else provides: a fresh one, the environment's own, or a worker's shared
memory. Keys that are off have no writer, no array and no module imported.

A gymnasium Box has four arrays of its observation's shape and needs some of eight times the size while it is made: for
two frames 0.2 MB and 1.1 MB. Those of all environments of a process have the same arrays, which a fork shares too.
"""

from __future__ import annotations

from collections.abc import Callable
from copy import copy
from functools import cache
from typing import Any

import numpy as np
from gymnasium import spaces
from numpy.typing import NDArray

from legroom.extend import BadInput
from legroom_workloads.ninja import vector
from legroom_workloads.ninja.config import EnvironmentConfig
from legroom_workloads.ninja.entity_states import LENGTHS, write_entity_states
from legroom_workloads.ninja.game_state import LENGTH, write_game_state

PLAYER_FRAME, GLOBAL_VIEW, REACHABILITY = (128, 128, 1), (128, 256, 1), (8,)
Write = Callable[[Any, NDArray[Any]], None]  # of the environment, into an array


@cache
def _box(shape: tuple[int, ...], dtype: np.dtype[Any]) -> spaces.Box:
    low, high = (0, 255) if dtype == np.uint8 else (-1.0, 1.0)
    return spaces.Box(low, high, shape, dtype.type)


class Observer:
    """Makes arrays for observations and writes them."""

    def __init__(self, config: EnvironmentConfig) -> None:
        self._config = config
        self._frames: Any = None
        self._frames_share = False
        self._framed: Any = None  # the level that they show
        self._reachability: Any = None
        self._vector = vector.Vector()
        self._leaves: dict[str, tuple[tuple[int, ...], np.dtype[Any], Write]] = dict(self._choose())
        self._is_dict = config.observation == "dict"

    def _choose(self) -> list[tuple[str, tuple[tuple[int, ...], np.dtype[Any], Write]]]:
        config, byte, single = self._config, np.dtype(np.uint8), np.dtype(np.float32)
        if config.observation == "vector":
            return [("vector", ((vector.LENGTH,), single, self._write_vector))]
        chosen: list[tuple[str, tuple[tuple[int, ...], np.dtype[Any], Write]]] = []
        if config.player_frame:
            chosen.append(("player_frame", (PLAYER_FRAME, byte, self._write_player_frame)))
        if config.global_view:
            chosen.append(("global_view", (GLOBAL_VIEW, byte, self._write_global_view)))
        if config.game_state:
            chosen.append(("game_state", ((LENGTH,), np.dtype(config.game_state), self._write_game_state)))
        if config.entity_states:
            chosen.append(("entity_states", ((LENGTHS[config.entity_states],), single, self._write_entities)))
        if config.reachability:
            chosen.append(("reachability", (REACHABILITY, single, self._write_reachability)))
        return chosen

    def space(self) -> spaces.Space[Any]:
        """Return the space of the observations."""
        boxes: dict[str, spaces.Space[Any]] = {}
        for key, (shape, dtype, _) in self._leaves.items():
            boxes[key] = copy(_box(shape, dtype))  # each with random numbers of its own
        return spaces.Dict(boxes) if self._is_dict else boxes["vector"]

    def declared(self) -> dict[str, Any]:
        """Return the same in the words of a run file."""
        boxes = {
            key: {"type": "box", "shape": [*shape], "dtype": dtype.name}
            for key, (shape, dtype, _) in self._leaves.items()
        }
        return {"type": "dict", "spaces": boxes} if self._is_dict else boxes["vector"]

    def new_arrays(self) -> Any:
        """Return an observation to write into."""
        arrays = {key: np.empty(shape, dtype) for key, (shape, dtype, _) in self._leaves.items()}
        return arrays if self._is_dict else arrays["vector"]

    def check(self, place: Any) -> None:
        """Check that an observation can be written into `place`.

        Raises:
            BadInput: keys, shapes or dtypes are others.
        """
        given = place if self._is_dict else {"vector": place}
        if not isinstance(given, dict) or set(given) != set(self._leaves):
            raise BadInput(f"the slot's keys are {list(given)}, the observation's {list(self._leaves)}")
        for key, (shape, dtype, _) in self._leaves.items():
            array = given[key]
            if array.shape != shape or array.dtype != dtype:
                raise BadInput(f"the slot for {key} is {array.dtype} {array.shape}, the observation {dtype} {shape}")

    def write(self, env: Any, place: Any) -> None:
        """Write the present observation of an environment into `place`."""
        if self._is_dict:
            for key, (_, _, write) in self._leaves.items():
                write(env, place[key])
        else:
            self._write_vector(env, place)

    # -- one per key --------------------------------------------------------------------------------------------------

    def _write_player_frame(self, env: Any, out: NDArray[Any]) -> None:
        self._frames_of(env).player_frame(env.game, out)

    def _write_global_view(self, env: Any, out: NDArray[Any]) -> None:
        self._frames_of(env).global_view(env.game, out)

    def _frames_of(self, env: Any) -> Any:
        if env.game.level is not self._framed:
            from legroom_workloads.ninja.frames import Frames  # vector observations have none

            self._framed, shared = env.game.level, env.shares_layer
            if self._frames is None or self._frames_share != shared:
                self._frames, self._frames_share = Frames(self._framed, share=shared), shared
        return self._frames

    def _write_game_state(self, env: Any, out: NDArray[Any]) -> None:
        write_game_state(env.game, self._config.max_frames, out)

    def _write_entities(self, env: Any, out: NDArray[Any]) -> None:
        write_entity_states(env.game, self._config.entity_states or "", out)

    def _write_reachability(self, env: Any, out: NDArray[Any]) -> None:
        if self._reachability is None:
            from legroom_workloads.ninja.reachability import Reachability  # the graph is for those who ask for it

            self._reachability = Reachability()
        out[:] = self._reachability.features(env.game, share=env.shares_layer)

    def _write_vector(self, env: Any, out: NDArray[Any]) -> None:
        self._vector.write(env.game, env.route, self._config.max_frames, out)
