"""The game itself: 60 frames per second of a ninja with momentum, without pictures, rewards or random numbers.

In the manner of N++: one radius, one set of accelerations, and everything else follows from them. Running and flying
speed up slowly and stop slowly; a held jump lightens gravity while it rises, so the length of the press chooses the
height (27 px for a tap, 74 for a full jump); along walls the ninja slides and can jump off again; floors and
ceilings kill whoever meets them too fast, the more squarely the sooner. A slope therefore saves a fall that a floor
ends.

One frame: input changes the velocity, the velocity moves the circle, walls push it back out (`collision`), and then it
touches what it touches. A step of the environment must cost far less than its pictures, so the state is plain floats
and what lies near a place is looked up, not searched. There are no random numbers: same level, same inputs, same game,
to the last bit.
"""

from __future__ import annotations

from collections.abc import Mapping
from math import sqrt
from typing import Any

import numpy as np
from numpy.typing import NDArray

from legroom.extend import BadInput
from legroom_workloads.ninja.collision import closest, contacts
from legroom_workloads.ninja.level import Level
from legroom_workloads.ninja.tiles import NINJA_RADIUS, TILE, WORLD_COLUMNS

FRAMES_PER_S = 60
# px per frame, and px per frame and frame.
GRAVITY, GRAVITY_RISING = 1 / 15, 1 / 90  # the second while a jump is held and rises
GROUND_ACCELERATION, AIR_ACCELERATION = 1 / 15, 2 / 45
DRAG = 0.9933  # of all that moves
GROUND_FRICTION, WALL_FRICTION = 0.946, 0.9113  # per frame, without input or against the motion; of a slide downwards
MAX_RUN = 10 / 3  # sideways; momentum beyond it is kept but not added to
MAX_SPEED = 9.0  # below the radius, so that the centre cannot get into a wall
JUMP, WALL_JUMP, WALL_JUMP_AWAY = 2.0, 1.5, 1.2
MAX_JUMP_FRAMES = 45
BUFFER_FRAMES = 5  # a jump pressed so early before landing, or so late after leaving, still counts
LETHAL, LETHAL_SQUARE = 6.0, 4 / 3  # meeting a surface this fast kills; squarely, the second less
FLOOR, WALL, CEILING = -0.35, 0.97, 0.35  # components of a normal from which it is one
CONTACT = 0.1  # px from a wall that still touch it
MINE_RADIUS, GOLD_RADIUS, SWITCH_RADIUS, DOOR_RADIUS = 4.0, 6.0, 6.0, 12.0

ACTIONS = ("noop", "left", "right", "jump", "jump_left", "jump_right")
WITHOUT_JUMP = (0, 1, 2, 0, 1, 2)  # the action that moves the same way
_SIDEWAYS, _JUMPS = (0, -1, 1, 0, -1, 1), (False, False, False, True, True, True)
# What a step returns, added up.
GOLD, SWITCH, DIED_BY_IMPACT, DIED_BY_MINE, WON, JUMPED = 1, 2, 4, 8, 16, 32

_PUSHES = 8
_TOLERANCE = 1e-9
_SLACK = 1e-3  # px: how deep the circle may stay in a wedge after all pushes
_NUMBERS = (
    "x", "y", "vx", "vy", "facing", "on_ground", "on_wall", "switch_on", "frame", "dead", "won",
    "jump_frames", "jump_was_held", "jump_buffer", "ground_buffer", "wall_buffer", "last_wall", "floor_x", "floor_y",
)  # fmt: skip


class Game:
    """A level being played.

    x, y, vx, vy: px and px per frame. facing: -1 left, +1 right. on_wall: the side on which a wall is touched, 0 none.
    mines, gold: float32 [n, 2], what is left of the level's; picking up gold defuses the mine closest to it, so the
    live mines become fewer, and the array with them. changes: counts the changes of mines, gold and switch.
    """

    __slots__ = (
        *_NUMBERS,
        "_gold_left",
        "_mines_live",
        "_world",
        "changes",
        "gold",
        "level",
        "mines",
    )

    x: float
    y: float
    vx: float
    vy: float
    facing: int
    on_ground: bool
    on_wall: int
    switch_on: bool
    frame: int
    dead: bool
    won: bool
    jump_frames: int
    jump_was_held: bool
    jump_buffer: int
    ground_buffer: int
    wall_buffer: int
    last_wall: int
    floor_x: float
    floor_y: float

    def __init__(self, level: Level) -> None:
        self.changes = 0
        self.use_level(level)

    def use_level(self, level: Level) -> None:
        """Play this level from its start.

        Raises:
            BadInput: the level starts inside a wall.
        """
        x, y = level.start
        if closest(level.world, x, y, NINJA_RADIUS)[0] < (NINJA_RADIUS - _SLACK) ** 2:
            raise BadInput(f"level {level.name}: the ninja starts inside a wall, at {x:g}, {y:g}")
        self.level, self._world = level, level.world
        self.restart()

    def restart(self) -> None:
        """Begin the level again."""
        self.x, self.y = self.level.start
        self.vx = self.vy = 0.0
        self.facing, self.on_ground, self.on_wall, self.last_wall = 1, False, 0, 0
        self.floor_x, self.floor_y = 0.0, -1.0
        self.jump_frames = self.jump_buffer = self.ground_buffer = self.wall_buffer = 0
        self.jump_was_held = False
        self.switch_on = self.dead = self.won = False
        self.frame = 0
        self._mines_live = bytearray(b"\1" * len(self.level.mines))
        self._gold_left = bytearray(b"\1" * len(self.level.gold))
        self._compact()
        self._feel()

    def _compact(self) -> None:
        self.mines = self.level.mines[np.frombuffer(self._mines_live, np.bool_)]
        self.gold = self.level.gold[np.frombuffer(self._gold_left, np.bool_)]
        self.changes += 1

    @property
    def jump_is_spent(self) -> bool:
        """Whether the button is held, does nothing any more, and would do something if pressed again."""
        return self.jump_was_held and not self.jump_frames and bool(self.ground_buffer or self.wall_buffer)

    # -- a frame ------------------------------------------------------------------------------------------------------

    def step(self, action: int) -> int:
        """Play one frame with an action of `ACTIONS` and return what happened, a sum of the events above."""
        if self.dead or self.won:
            return 0
        self.frame += 1
        events = self._accelerate(_SIDEWAYS[action], _JUMPS[action])
        old_x, old_y = self.x, self.y
        self.x += self.vx
        self.y += self.vy
        if self._push_out(old_x, old_y):
            self.dead = True
            return events | DIED_BY_IMPACT
        self._feel()
        return events | self._touch()

    def _accelerate(self, sideways: int, jump: bool) -> int:
        """Let input, gravity and friction change the velocity."""
        events = 0
        if jump and not self.jump_was_held:
            self.jump_buffer = BUFFER_FRAMES
        self.jump_was_held = jump
        if sideways:
            self.facing = sideways
        if self.jump_buffer and (self.ground_buffer or self.wall_buffer):
            self._jump()
            events = JUMPED
        elif self.jump_buffer:
            self.jump_buffer -= 1

        if self.jump_frames and jump and self.vy < 0.0:
            self.jump_frames -= 1
            vy = self.vy + GRAVITY_RISING
        else:
            self.jump_frames = 0
            vy = self.vy + GRAVITY
        vx = self.vx
        if self.on_ground:
            if sideways:  # along the floor, whatever its slope
                if vx * sideways < MAX_RUN:
                    vx -= GROUND_ACCELERATION * sideways * self.floor_y
                    vy += GROUND_ACCELERATION * sideways * self.floor_x
                if vx * sideways < 0.0:
                    vx *= GROUND_FRICTION
            else:
                vx *= GROUND_FRICTION
        elif sideways and vx * sideways < MAX_RUN:
            vx += AIR_ACCELERATION * sideways
        if self.on_wall and sideways == self.on_wall and vy > 0.0 and not self.on_ground:
            vy *= WALL_FRICTION
        vx *= DRAG
        vy *= DRAG
        speed = vx * vx + vy * vy
        if speed > MAX_SPEED * MAX_SPEED:
            shrink = MAX_SPEED / sqrt(speed)
            vx *= shrink
            vy *= shrink
        self.vx, self.vy = vx, vy
        return events

    def _jump(self) -> None:
        if self.ground_buffer:
            self.vy = min(self.vy, 0.0) - JUMP
            self.vx += self.floor_x * JUMP * 0.5  # a slope throws a little sideways
        else:
            self.vy = -WALL_JUMP
            self.vx = -self.last_wall * WALL_JUMP_AWAY
            self.facing = -self.last_wall
        self.jump_frames = MAX_JUMP_FRAMES
        self.jump_buffer = self.ground_buffer = self.wall_buffer = 0
        self.on_ground = False

    def _push_out(self, old_x: float, old_y: float) -> bool:
        """Push the circle out of walls, take the speed into them away, and return whether the impact was lethal."""
        world, lethal = self._world, False
        for _ in range(_PUSHES):
            distance, wall_x, wall_y = closest(world, self.x, self.y, NINJA_RADIUS)
            if distance >= NINJA_RADIUS * NINJA_RADIUS - _TOLERANCE:  # infinite, mostly
                return lethal
            distance = sqrt(distance)
            if distance == 0.0:
                break
            nx, ny = (self.x - wall_x) / distance, (self.y - wall_y) / distance
            self.x = wall_x + NINJA_RADIUS * nx
            self.y = wall_y + NINJA_RADIUS * ny
            into = self.vx * nx + self.vy * ny
            if into < 0.0:
                flat = ny if ny > 0.0 else -ny
                if -into > LETHAL - LETHAL_SQUARE * flat and (ny < FLOOR or ny > CEILING):
                    lethal = True
                self.vx -= into * nx
                self.vy -= into * ny
        if closest(world, self.x, self.y, NINJA_RADIUS)[0] < (NINJA_RADIUS - _SLACK) ** 2:
            # Wedged between two surfaces: where it came from was free.
            self.x, self.y, self.vx, self.vy = old_x, old_y, 0.0, 0.0
        return lethal

    def _feel(self) -> None:
        """Find out what the circle rests on."""
        ground, wall, floor_x, floor_y = False, 0, 0.0, 0.0
        if closest(self._world, self.x, self.y, NINJA_RADIUS + CONTACT)[0] < 1e9:
            for nx, ny in contacts(self._world, self.x, self.y, NINJA_RADIUS + CONTACT):
                if ny < FLOOR:
                    ground = True
                    floor_x += nx
                    floor_y += ny
                elif nx > WALL:
                    wall = -1
                elif nx < -WALL:
                    wall = 1
        if ground:
            length = sqrt(floor_x * floor_x + floor_y * floor_y)
            self.floor_x, self.floor_y = floor_x / length, floor_y / length
            self.ground_buffer = BUFFER_FRAMES
            # What was just jumped from is still close by, and what is about to be hit is no ground to jump from yet.
            ground = -0.5 < (self.vx * floor_x + self.vy * floor_y) / length < 0.5
            if not ground:
                self.ground_buffer = 0
        elif self.ground_buffer:
            self.ground_buffer -= 1
        if wall:
            self.wall_buffer, self.last_wall = BUFFER_FRAMES, wall
        elif self.wall_buffer:
            self.wall_buffer -= 1
        self.on_ground, self.on_wall = ground, wall

    def _touch(self) -> int:
        """Meet mines, gold, the switch and the door."""
        x, y, level, events = self.x, self.y, self.level, 0
        cell = int(y // TILE) * WORLD_COLUMNS + int(x // TILE)
        for number, mine_x, mine_y in level.mines_near.get(cell, ()):
            if self._mines_live[number] and _within(x - mine_x, y - mine_y, NINJA_RADIUS + MINE_RADIUS):
                self.dead = True
                return DIED_BY_MINE
        for number, gold_x, gold_y in level.gold_near.get(cell, ()):
            if self._gold_left[number] and _within(x - gold_x, y - gold_y, NINJA_RADIUS + GOLD_RADIUS):
                self._gold_left[number] = 0
                self._defuse(gold_x, gold_y)
                self._compact()
                events |= GOLD
        if not self.switch_on:
            if _within(x - level.switch[0], y - level.switch[1], NINJA_RADIUS + SWITCH_RADIUS):
                self.switch_on = True
                self.changes += 1
                events |= SWITCH
        elif _within(x - level.exit[0], y - level.exit[1], NINJA_RADIUS + DOOR_RADIUS):
            self.won = True
            events |= WON
        return events

    def _defuse(self, x: float, y: float) -> None:
        """Defuse the live mine that is closest, the first of equals."""
        if any(self._mines_live):
            places = self.level.mines.astype(np.float64)
            distance = (places[:, 0] - x) ** 2 + (places[:, 1] - y) ** 2
            distance[np.frombuffer(self._mines_live, np.uint8) == 0] = np.inf
            self._mines_live[int(distance.argmin())] = 0

    # -- state --------------------------------------------------------------------------------------------------------

    def get_state(self) -> dict[str, Any]:
        """Return all that a continuation depends on beside the level, as numbers and arrays."""
        return {name: getattr(self, name) for name in _NUMBERS} | {
            "mines_live": _array(self._mines_live),
            "gold_left": _array(self._gold_left),
        }

    def set_state(self, state: Mapping[str, Any]) -> None:
        """Continue from where `get_state` was called, on the same level.

        Raises:
            BadInput: a state of another level or of no game at all.
        """
        try:
            # Of the type that they have here, for a checkpoint may have made NumPy's of them.
            numbers = {name: type(getattr(self, name))(state[name]) for name in _NUMBERS}
            mines, gold = bytearray(state["mines_live"]), bytearray(state["gold_left"])
        except (KeyError, TypeError, ValueError) as problem:
            raise BadInput(f"the state to continue from is not one of this game: {problem}") from None
        for name, got, has in (("mines", len(mines), len(self.level.mines)), ("gold", len(gold), len(self.level.gold))):
            if got != has:
                raise BadInput(f"the state to continue from has {got} {name}, level {self.level.name} has {has}")
        for name, value in numbers.items():
            setattr(self, name, value)
        self._mines_live, self._gold_left = mines, gold
        self._compact()


def _within(dx: float, dy: float, reach: float) -> bool:
    return dx * dx + dy * dy < reach * reach


def _array(flags: bytearray) -> NDArray[np.uint8]:
    return np.frombuffer(bytes(flags), np.uint8).copy()
