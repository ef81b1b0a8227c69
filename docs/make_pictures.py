"""Draws the pictures of the workloads for the documentation, with the workloads' own functions.

python docs/make_pictures.py [mine fire ninja gameboy robot]

Nobody has learned anything in them: the mine is dug by its greedy rule, fuel breaks are where betweenness says, the
ninja follows a way that its generator found, the fighter answers what it reads in RAM, and the robot keeps its pose. So
they are the same wherever they are drawn, and take seconds.
"""

from __future__ import annotations

import io
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

IMAGES = Path(__file__).resolve().parent / "images"
MOST_BYTES = 150_000


def mine(path: Path) -> None:
    """mine:ultra_light's deposit, dug by the best of the simple rules."""
    from legroom_workloads.mine.env import MineEnv
    from legroom_workloads.mine.greedy import best_greedy
    from legroom_workloads.mine.pictures import draw
    from legroom_workloads.mine.score import greedy_npv

    env = MineEnv(grid=(20, 20, 10))
    env.reset(seed=0)
    deposit = env.prepared
    pit = np.arange(deposit.shape[2]) < deposit.pit_depths()[:, :, None]
    ground = {"start": deposit.surface(), "size_m": deposit.size_m}
    _, order, _ = best_greedy(deposit.values, pit, env.discount_factors, **ground)
    greedy = iter(order.tolist())
    done = False
    while not done:
        column = next(greedy, None)
        allowed = np.flatnonzero(env.action_masks())
        _, _, terminated, truncated, _ = env.step(int(allowed[0]) if column is None else column)
        done = terminated or truncated
    _drawn(lambda large: draw(env, large, references={"best simple rule": greedy_npv(env)}), path)


def fire(path: Path) -> None:
    """A landscape of fire:learn's kind, cut where betweenness says."""
    from legroom_workloads.fire.env import FireEnv
    from legroom_workloads.fire.heuristic import betweenness
    from legroom_workloads.fire.pictures import draw

    env = FireEnv(grid=(30, 30), budget=120, rasters=4)
    env.reset(seed=3)
    player = betweenness(env, np.random.default_rng(0))
    done = False
    while not done:
        _, _, terminated, truncated, _ = env.step(player())
        done = terminated or truncated
    _drawn(lambda large: draw(env, large), path)


def ninja(path: Path) -> None:
    """A small level, played by the way that its generator's witness finds."""
    from legroom_workloads.ninja.game import Game
    from legroom_workloads.ninja.generator import generate
    from legroom_workloads.ninja.pictures import Pictures
    from legroom_workloads.ninja.witness import play_through

    level = generate(3, "small", 0.5)
    game, pictures = Game(level), Pictures(level, share=False)
    frames = [pictures.picture(game)]
    for number, action in enumerate(play_through(level) or ()):
        game.step(action)
        if number % 4 == 3 or game.won:
            frames.append(pictures.picture(game))
    changing = np.argwhere(np.ptp(np.stack([f.sum(axis=2) for f in frames]), axis=0) > 0)
    (top, left), (bottom, right) = changing.min(axis=0) - 60, changing.max(axis=0) + 60
    _film([f[max(top, 0) : bottom, max(left, 0) : right] for f in frames], path, width=320, frame_ms=66, colours=48)


def gameboy(path: Path) -> None:
    """A round of our own fighting game, won by answering what is read from RAM."""
    from legroom_workloads.gameboy.env import GameBoyEnv
    from legroom_workloads.gameboy.players import answer

    env = GameBoyEnv(render_mode="rgb_array")
    _, info = env.reset(seed=1)
    frames, done = [env.render()], False
    while not done and len(frames) < 70:
        _, _, terminated, truncated, info = env.step(answer(info))
        frames.append(env.render())
        done = terminated or truncated
    env.close()
    _film(frames, path, width=320, frame_ms=66, colours=8, smooth=False)


def robot(path: Path) -> None:
    """The biped on rough ground with random actions: it falls within a second."""
    from legroom_workloads.robot.pictures import save_gif

    rng = np.random.default_rng(1)
    large = io.BytesIO()
    save_gif(lambda *_: np.tanh(0.7 * rng.standard_normal(11)), {"terrain": "rough"}, large, seed=1, steps=100)  # type: ignore[arg-type]
    film = Image.open(large)
    frames = []
    for number in range(film.n_frames):
        film.seek(number)
        frames.append(np.asarray(film.convert("RGB")))
    _film(frames[::2], path, width=240, frame_ms=160, colours=24)


def _drawn(draw: Callable[[Path], Any], path: Path) -> None:
    """Keep a drawing at two thirds of its size, in 192 colours."""
    large = path.with_name(f"large-{path.name}")
    draw(large)
    picture = Image.open(large).convert("RGB")
    small = picture.resize((860, round(picture.height * 860 / picture.width)), Image.Resampling.LANCZOS)
    small.quantize(192).save(path, optimize=True)
    large.unlink()


def _film(frames: Any, path: Path, *, width: int, frame_ms: int, colours: int, smooth: bool = True) -> None:
    height = round(frames[0].shape[0] * width / frames[0].shape[1])
    how = Image.Resampling.LANCZOS if smooth else Image.Resampling.NEAREST
    first, *rest = (
        Image.fromarray(frame).resize((width, height), how).quantize(colours, dither=Image.Dither.NONE)
        for frame in frames
    )
    first.save(path, save_all=True, append_images=rest, duration=frame_ms, loop=0, optimize=True)


PICTURES = {
    "mine.png": mine, "fire.png": fire, "ninja.gif": ninja, "gameboy.gif": gameboy, "robot.gif": robot,
}  # fmt: skip

if __name__ == "__main__":
    IMAGES.mkdir(exist_ok=True)
    for name, make in PICTURES.items():
        if sys.argv[1:] and Path(name).stem not in sys.argv[1:]:
            continue
        make(IMAGES / name)
        nbytes = (IMAGES / name).stat().st_size
        sys.stderr.write(f"{name}: {nbytes:,} bytes{'' if nbytes <= MOST_BYTES else ', TOO LARGE'}\n")
