"""Play a level through by search, with the real physics: proof that it can be solved, as a list of actions.

The coarse graph promises that a level can be solved; this keeps the promise for one level, or fails to. Best first:
from the state with the shortest way left (`route`), each action is held for a few frames; states in the same small box
of place and speed count as one. Takes up to seconds, so it is for tests and for checking levels by hand.
"""

from __future__ import annotations

import heapq

from legroom_workloads.ninja.game import ACTIONS, Game
from legroom_workloads.ninja.level import Level
from legroom_workloads.ninja.route import Route
from legroom_workloads.ninja.solving import cell_of

HOLD_FRAMES = (4, 12)
MOST_STATES = 20_000
_BOX_PX, _BOX_SPEED = 6.0, 0.8
_PER_FRAME = 0.0005  # of the way: among states equally far, the one that got there sooner


def play_through(level: Level, most_states: int = MOST_STATES) -> list[int] | None:
    """Return actions, frame by frame, that solve the level; None if none were found."""
    game, route = Game(level), Route(level)
    start = game.get_state()
    history: list[tuple[int, int, int]] = [(-1, 0, 0)]  # where it came from, by which action, held for how many frames
    queue = [(route.left(cell_of((game.x, game.y)), False), 0, start)]
    seen = {_box(game)}
    while queue and len(history) < most_states:
        _, number, state = heapq.heappop(queue)
        for action in range(len(ACTIONS)):
            game.set_state(state)
            held = 0
            for hold in HOLD_FRAMES:
                while held < hold and not (game.dead or game.won):
                    game.step(action)
                    held += 1
                if game.dead or (box := _box(game)) in seen:
                    continue
                seen.add(box)
                history.append((number, action, held))
                if game.won:
                    return _actions(history)
                left = route.left(cell_of((game.x, game.y)), game.switch_on)
                heapq.heappush(queue, (left + _PER_FRAME * game.frame, len(history) - 1, game.get_state()))
    return None


def _box(game: Game) -> tuple[int, ...]:
    place = int(game.x // _BOX_PX), int(game.y // _BOX_PX), int(game.vx // _BOX_SPEED), int(game.vy // _BOX_SPEED)
    return (*place, game.on_ground, game.jump_was_held, game.jump_frames > 0, game.switch_on, game.won)


def _actions(history: list[tuple[int, int, int]]) -> list[int]:
    actions: list[int] = []
    number = len(history) - 1
    while number > 0:
        number, action, held = history[number]
        actions[:0] = [action] * held
    return actions
