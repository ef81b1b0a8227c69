"""`legroom train RUN`: trains for real, with every free saving, and says what it really took.

Only the options are here: a press of TAB reads them, and must not wait for what a training needs (`train_steps`).
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from legroom.cli import options
from legroom.cli.help import BUDGET, CLUSTER, OUTPUT, WHAT, rarely
from legroom.cli.writing import Force, Html, check_writable
from legroom.training import RETRIES

Target = Annotated[str, typer.Argument(metavar="RUN", help="run.yaml, train.py, ppo.yml:ID, mine:ultra_light")]
Timesteps = Annotated[
    int | None, typer.Option(min=1, metavar="N", help="Environment steps in total, also with --resume.")
]
DeviceName = Annotated[
    str, typer.Option(metavar="cpu|cuda|auto", rich_help_panel=rarely(BUDGET), help="Device to train on.")
]
Seed = Annotated[
    int | None,
    typer.Option(
        min=0, max=2**32 - 1, metavar="N", rich_help_panel=rarely(WHAT), help="Default: the run's, or a random one."
    ),
]
Out = Annotated[
    Path | None, typer.Option(metavar="DIR", rich_help_panel=OUTPUT, help="Run folder; default: runs/NAME-TIMESTAMP.")
]
Visualization = Annotated[
    bool,
    typer.Option(
        "--visualization/--headless",
        rich_help_panel=rarely(OUTPUT),
        help="Pictures of the workload every 10 iterations.",
    ),
]
Resume = Annotated[bool, typer.Option("--resume", help="Continue from the last good checkpoint in --out.")]
Plain = Annotated[
    bool, typer.Option("--plain", rich_help_panel=rarely(WHAT), help="Train as the library does, without savings.")
]
CheckpointEvery = Annotated[
    int | None,
    typer.Option(
        min=1, metavar="N", rich_help_panel=rarely(OUTPUT), help="Steps between checkpoints; default: by time."
    ),
]
Fit = Annotated[
    bool, typer.Option("--fit", rich_help_panel=BUDGET, help="Make it fit first; of a workload, the largest run.")
]
Retries = Annotated[
    int,
    typer.Option(
        min=0,
        metavar="N",
        rich_help_panel=rarely(WHAT),
        help="How often to continue after memory ran out or the training was killed.",
    ),
]
AllowChanges = Annotated[
    bool,
    typer.Option(
        "--allow-changes", rich_help_panel=rarely(BUDGET), help="Allow changed results when continuing after an error."
    ),
]
Backend = Annotated[
    str | None,
    typer.Option(metavar="NAME", rich_help_panel=rarely(WHAT), help="Train with this backend instead of the run's."),
]
Where = Annotated[
    str | None,
    typer.Option(
        metavar="local|auto|ADDRESS", rich_help_panel=rarely(CLUSTER), help="Ray cluster, for rllib; default: local."
    ),
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
    force: Force = False,
    json: options.Json = False,
) -> int:
    """Train a run with every saving that is free. A command after -- is run as it is, with savings attached (legroom
    train --help --).

    Checkpoints and logs go to --out. Where memory runs out, or the training is killed, it continues from its
    last checkpoint, with less memory where that was the reason. Exit code 1: it does not fit (see --fit). 4: the
    training failed. 130: stopped, checkpoint written.

    \b
    legroom train run.yaml --out runs/first
    legroom train mine:full --fit --ram 3GiB
    legroom train -- python train.py

    \b
    legroom train mine:ultra_light
    legroom train fire --fit --rasters tiles/
    legroom train mine:full --timesteps 8192 --set memory.micro_batch=8
    legroom train run.yaml --out runs/first --seed 1 --html first.html
    legroom train run.yaml --out runs/first --resume --timesteps 2000000
    legroom train ppo.yml:CartPole-v1 --plain
    legroom train gameboy --rom my_game.gb --cartridge my_game.yaml
    legroom train robot:quick --num-envs 64 --batch-size 64 --num-minibatches 8
    legroom train mine:small --backend rllib --num-env-runners 4 --cluster auto
    """
    try:
        from legroom.cli.overrides import repeated
        from legroom.cli.train_steps import Training, carry_out, read_runs, with_options
    except ModuleNotFoundError:  # numpy, to begin with: what this run needs is better named as a whole
        from legroom.backends.base import require_packages
        from legroom.cli.overrides import split_settings, with_backend
        from legroom.reading import read

        require_packages(read(target, overrides=with_backend(split_settings(settings or []), backend, None), like=like))
        raise
    check_writable("--html", html, force=force)
    asked, sizes, notes = read_runs(
        target, settings or [], like=like, backend=backend, cluster=cluster, sizes=fit,
        laid_over=lambda run: with_options(run, timesteps, device, seed),
    )  # fmt: skip
    training = Training(
        asked, asked, out, sizes=sizes, resume=resume, plain=plain, fit=fit, pictures=visualization,
        checkpoint_every=checkpoint_every, retries=retries, allow_changes=allow_changes, cluster=cluster,
    )  # fmt: skip
    again = repeated(settings or [], like=like, backend=backend)
    return carry_out(
        training, target, ram=ram, vram=vram, reserve=reserve, again=again, json=json, html=html, notes=notes
    )
