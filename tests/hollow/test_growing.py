"""Containers that grow: what an element takes, how many there will be, and which line adds to them."""

from __future__ import annotations

import gc
import weakref
from collections import deque
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from legroom.hollow.growing import GrowingContainers, element_bytes
from legroom.hollow.run_length import RunLength

torch = pytest.importorskip("torch")
ROOM = 400  # of the deque below
LIMIT = 900


class Told:
    def __init__(self) -> None:
        self.containers: list[dict[str, Any]] = []

    def json(self, kind: str, **content: Any) -> None:
        assert kind == "growing"
        self.containers = content["containers"]


class Agent:
    def __init__(self) -> None:
        self.memory: deque[Any] = deque(maxlen=ROOM)

    def remember(self, *transition: Any) -> None:
        self.memory.append(transition)


class Ring:
    def __init__(self, capacity: int) -> None:
        self.capacity, self.rows, self.at = capacity, [], 0

    def push(self, row: Any) -> None:
        if len(self.rows) < self.capacity:
            self.rows.append(None)
        self.rows[self.at] = row
        self.at += 1


class Bounded:
    def __init__(self) -> None:
        self.kept: list[Any] = []

    def keep(self, row: Any) -> None:
        self.kept.append(row)
        if len(self.kept) > LIMIT:
            self.kept.pop(0)


class Episodes:
    def __init__(self) -> None:
        self.found: dict[int, Any] = {}

    def keep(self, number: int, row: Any) -> None:
        self.found[number] = row


def grown(add: Any) -> dict[str, dict[str, Any]]:
    """Return what is told, by holder, after two looks with 100 elements more between them."""
    told = Told()
    looking = GrowingContainers(told)
    for count in (100, 200):
        for number in range(count - 100, count):
            add(number)
        looking._look(count)
    return {each["held"]: each for each in told.containers}


def test_how_many_there_will_be_and_where_they_are_added() -> None:
    agent, ring, bounded, episodes = Agent(), Ring(700), Bounded(), Episodes()

    def add(number: int) -> None:
        agent.remember(np.zeros(1000, np.uint8), number)
        ring.push(np.zeros(2000, np.uint8))
        bounded.keep(np.zeros(3000, np.uint8))
        episodes.keep(number, {"frames": [np.zeros(4000, np.uint8)]})

    found = grown(add)
    assert {name: found[name]["most"] for name in ("Agent.memory", "Ring.rows", "Bounded.kept", "Episodes.found")} == {
        "Agent.memory": ROOM, "Ring.rows": 700, "Bounded.kept": LIMIT, "Episodes.found": None,
    }  # fmt: skip
    lines = Path(__file__).read_text().splitlines()
    for name, added in (("Agent.memory", "self.memory.append"), ("Bounded.kept", "self.kept.append")):
        assert found[name]["file"] == __file__ and added in lines[found[name]["line"] - 1]
    assert found["Agent.memory"]["count"] == 200 and found["Agent.memory"]["before"] == 100
    assert 3000 < found["Bounded.kept"]["each"] < 3250


def test_lean_replay_tells_what_a_row_takes() -> None:
    """Noise is stored as it is, once; what never changes takes next to nothing."""
    gymnasium, legroom = pytest.importorskip("gymnasium"), pytest.importorskip("legroom")
    spaces, chance = gymnasium.spaces, np.random.default_rng(1)
    pictures = spaces.Box(0, 255, (4, 84, 84), np.uint8)
    noise, still = (legroom.LeanReplayBuffer(rows, pictures, spaces.Discrete(2), device="cpu") for rows in (5000, 6000))
    last = [np.zeros((1, 4, 84, 84), np.uint8)]

    def add(number: int) -> None:
        new = chance.integers(0, 256, last[0].shape, np.uint8)
        for buffer, before, after in ((noise, last[0], new), (still, last[0] * 0, last[0] * 0)):
            buffer.add(before, after, np.zeros((1, 1), int), np.zeros(1), np.zeros(1), [{}])
        last[0] = new

    told = Told()
    looking = GrowingContainers(told)
    for count in (100, 300):
        for number in range(count - 100, count):
            add(number)
        looking._look(count)
    found = {each["most"]: each for each in told.containers if each["type"] == "LeanReplayBuffer"}
    assert found[5000]["each"] == pytest.approx(4 * 84 * 84, rel=0.1)
    assert found[5000]["high"] == pytest.approx(1.5 * found[5000]["each"])
    assert found[6000]["each"] < 500


def test_a_local_list_is_found_by_its_name() -> None:
    here: list[Any] = []
    found = grown(lambda number: here.append(np.zeros(500, np.uint8)))
    assert found["here"]["most"] is None and found["here"]["file"] == __file__


def test_what_stands_still_is_not_told() -> None:
    still = [np.zeros(100) for _ in range(300)]
    assert "still" not in grown(lambda number: None) and len(still) == 300


def test_neighbours_share_an_observation() -> None:
    observations = [np.zeros(10_000, np.uint8) for _ in range(201)]
    shared = deque((observations[i], i, observations[i + 1]) for i in range(200))
    apart = deque((observations[i], i, np.zeros(10_000, np.uint8)) for i in range(200))
    assert 10_000 < element_bytes(shared) < 10_500
    assert 20_000 < element_bytes(apart) < 20_800


def test_views_and_tensors_count_their_memory_once() -> None:
    frames = [torch.from_numpy(np.zeros(8_000, np.uint8))[None] for _ in range(100)]
    assert 8_000 < element_bytes(frames) < 9_500
    whole = np.zeros((100, 4_000), np.uint8)
    assert element_bytes([whole[i] for i in range(100)]) < 400  # rows of one array that is there anyway


def test_a_dict_of_texts_is_found() -> None:
    """Python's collector does not know such a dict: a log by step grew unseen."""
    told, log = Told(), {"step 0": "began"}
    looking = GrowingContainers(told)
    for step in range(2, 3000):
        log[f"step {step}"] = f"the loss of step {step} is {step / 3}"
        looking._next = 0.0 if step % 500 == 2 else looking._next
        looking.look(step)
    (found,) = told.containers
    assert found["held"] == "log" and found["count"] > found["before"] > 500


def test_a_look_keeps_nothing_alive() -> None:
    looking = GrowingContainers(Told(), RunLength(SimpleNamespace(left_out=False)).look)
    gc.disable()  # a cycle of ours would be found
    try:
        for step in (1, 2, 3):
            loss = Agent()
            gone = weakref.ref(loss)
            looking._look(step)
            del loss
            assert gone() is None
    finally:
        gc.enable()
