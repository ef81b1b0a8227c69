"""Draw an episode: the console's screen at moments spread over the round, with the health of both sides below each.

An environment keeps of an episode where it began and what was pressed, some kilobytes. The console is exact, so whoever
draws plays the same round again; training draws nothing.
"""

from __future__ import annotations

import zlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from legroom.extend import BadInput
from legroom_workloads.gameboy.emulator import Emulator
from legroom_workloads.gameboy.game import read_game

SUFFIXES = (".png", ".svg", ".pdf")
COLUMNS, ROWS = 4, 3
FRAMES_PER_S = 60


def draw(episode: Any, path: str | Path) -> None:
    """Draw the last episode that a GameBoyEnv finished (the env, or its `last_episode`); nothing before the first.

    Raises:
        BadInput: a file name whose kind of picture is not known, or a folder that cannot be written.
    """
    from matplotlib.figure import Figure

    last = episode if isinstance(episode, Mapping) else getattr(episode, "unwrapped", episode).last_episode
    if last is None:
        return
    path = Path(path)
    if path.suffix.lower() not in SUFFIXES:
        raise BadInput(f"cannot draw {path.name}", hint=f"a name that ends in {', '.join(SUFFIXES)}")
    shown = frames_of(last)
    figure = Figure(figsize=(11.0, 9.0), layout="constrained")
    for axes in figure.subplots(ROWS, COLUMNS).ravel():
        axes.set_axis_off()
    for axes, (frame, screen, numbers) in zip(figure.axes, shown, strict=False):
        axes.imshow(screen, interpolation="nearest")
        health = ", ".join(f"{name} {numbers[name]}" for name in last["health"])
        axes.set_title(f"{frame / FRAMES_PER_S:.1f} s\n{health}", fontsize=8)
    figure.suptitle(f"{last['name']}: {last['outcome']} after {last['frames'] / FRAMES_PER_S:.1f} s")
    try:
        figure.savefig(path, dpi=100)
    except OSError as failed:
        raise BadInput(f"cannot write the picture: {failed.strerror or failed}", path=path) from None


def frames_of(last: Mapping[str, Any]) -> list[tuple[int, np.ndarray, dict[str, int]]]:
    """Play an episode again and return its moments: the frame, the screen, and the cartridge's numbers."""
    game = read_game(last["rom"], last["cartridge"])
    emulator, places = Emulator(game.image, game.name), game.cartridge.memory
    buttons, repeat, actions = tuple(game.cartridge.actions.values()), last["action_repeat"], last["actions"]
    wanted = set(np.linspace(0, len(actions), COLUMNS * ROWS).round().astype(int).tolist())
    try:
        emulator.load(zlib.decompress(last["start"]), last["held"])
        if last["seed"] is not None:
            emulator.write(places[game.cartridge.seed_to or ""], last["seed"])
        if last["waited"]:
            emulator.run(last["waited"])
        shown = []
        for count in range(len(actions) + 1):
            if count:
                emulator.run(repeat, buttons[actions[count - 1]])
            if count in wanted:
                numbers = {name: emulator.read(place) for name, place in places.items()}
                shown.append((last["first_frame"] + count * repeat, emulator.screen.copy(), numbers))
        return shown
    finally:
        emulator.stop()
