"""`legroom train RUN`: trains for real, with every free saving, and says what it really took.

Only the options are here: a press of TAB reads them, and must not wait for what a training needs (`train_steps`).
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from legroom.cli import options
from legroom.cli.writing import Html
from legroom.training import RETRIES

Target = Annotated[str, typer.Argument(metavar="RUN", help="mine:ultra_light, run.yaml, ppo.yml:CartPole-v1")]
Timesteps = Annotated[int | None, typer.Option(min=1, help="Environment steps in total, also with --resume.")]
DeviceName = Annotated[str, typer.Option(metavar="cpu|cuda|auto", help="Where the networks are.")]
Seed = Annotated[int | None, typer.Option(min=0, max=2**32 - 1, help="Default: the run's, or a random one.")]
Out = Annotated[Path | None, typer.Option(metavar="DIR", help="Default: runs/NAME-TIMESTAMP.")]
Visualization = Annotated[
    bool, typer.Option("--visualization/--headless", help="Pictures of the workload every 10 iterations.")
]
Resume = Annotated[bool, typer.Option("--resume", help="Go on from the last good checkpoint in --out.")]
Plain = Annotated[bool, typer.Option("--plain", help="As the library does it: no savings of legroom's.")]
CheckpointEvery = Annotated[
    int | None, typer.Option(min=1, metavar="N", help="Steps between checkpoints; default: by time.")
]
Fit = Annotated[
    bool, typer.Option("--fit", help="Make it fit first, as legroom fit does; of a workload, the largest run.")
]
Retries = Annotated[
    int, typer.Option(min=0, metavar="N", help="How often to go on after memory ran out or the child was killed.")
]
AllowChanges = Annotated[
    bool, typer.Option("--allow-changes", help="Going on, or a resume, may change what is learned.")
]
Backend = Annotated[str | None, typer.Option(metavar="NAME", help="Train with this backend, not the run's own.")]
Where = Annotated[
    str | None, typer.Option(metavar="local|auto|ADDRESS", help="Where Ray is, for rllib; default: local.")
]


def run(
    target: Target,
    timesteps: Timesteps = None,
    device: DeviceName = "",
    seed: Seed = None,
    out: Out = None,
    visualization: Visualization = False,
    resume: Resume = False,
    plain: Plain = False,
    checkpoint_every: CheckpointEvery = None,
    fit: Fit = False,
    retries: Retries = RETRIES,
    allow_changes: AllowChanges = False,
    backend: Backend = None,
    cluster: Where = None,
    ram: options.Ram = None,
    vram: options.Vram = None,
    reserve: options.Reserve = "0%",
    like: options.Like = None,
    settings: options.Settings = None,
    html: Html = None,
    json: options.Json = False,
) -> int:
    """Train a run, with every saving that costs nothing; checkpoints, logs and charts go to --out.

    A program of any kind is run by its command, unedited, with savings attached: `legroom train -- python train.py`
    (`legroom train --help --` lists the options).

    Where memory runs out, or something kills it, it goes on from its last checkpoint, with less memory where that was
    the reason. Exit code 1: it does not fit (--fit makes it). 4: the training failed. 130: stopped, checkpoint written.

    \b
    legroom train mine:ultra_light
    legroom train -- python train.py
    legroom train mine:full --fit --ram 3GiB
    legroom train fire --fit --rasters tiles/
    legroom train mine:full --timesteps 8192 --set memory.micro_batch=8
    legroom train run.yaml --out runs/first --seed 1 --html first.html
    legroom train run.yaml --out runs/first --resume --timesteps 2000000
    legroom train ppo.yml:CartPole-v1 --plain
    legroom train gameboy --rom my_game.gb --cartridge my_game.yaml
    legroom train robot:quick --num-envs 64 --batch-size 64 --num-minibatches 8
    legroom train mine:small --backend rllib --num-env-runners 4 --cluster auto
    """
    from legroom.cli.train_steps import Asked, carry_out

    asked = Asked(
        target, timesteps, device, seed, out, pictures=visualization, resume=resume, plain=plain,
        checkpoint_every=checkpoint_every, fit=fit, retries=retries, allow_changes=allow_changes, backend=backend,
        cluster=cluster, ram=ram, vram=vram, reserve=reserve, like=like, settings=settings or [], html=html, json=json,
    )  # fmt: skip
    return carry_out(asked)
