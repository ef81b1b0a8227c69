"""What can be typed: a class for each command, with its help, its arguments and its options.

Only what `--help` and a press of TAB need: the module that carries a command out is imported when it is called.
"""

from __future__ import annotations

from pathlib import Path
from typing import Literal

from legroom.cli.parsing import BUDGET, CLUSTER, OUTPUT, Command, argument, option

HOST, CARD = "Host memory to fit into, e.g. 16GiB.", "GPU memory to fit into, e.g. 8GiB."
RUN_FILES = "run.yaml, train.py, ppo.yml:ID, mine:ultra_light"
AS_BACKEND = "Predict as if the run used this backend."
RUNS = "train.py, run.yaml, ppo.yml:atari, mine:full"
YOURS = "Your command, as you would type it."
BOTH_FILES = "Write watch.json and watch.html there."


class JsonOption(Command):
    json: bool = option("Print JSON and nothing else.", group=OUTPUT)


class PageOptions(JsonOption):
    """A result that may be written to a page."""

    html: Path | None = option("Write a page with charts to FILE.", metavar="FILE", group=OUTPUT)
    force: bool = option("Overwrite files that legroom did not write.", group=OUTPUT, rare=True)


class LimitOptions(Command):
    """What there is to fit into."""

    ram: str | None = option(HOST, metavar="SIZE", group=BUDGET)
    vram: str | None = option(CARD, metavar="SIZE", group=BUDGET)
    reserve: str = option(
        "Share of the budget to keep free, e.g. 10%.", metavar="SHARE", group=BUDGET, rare=True, default="0%"
    )


class PlaceOptions(LimitOptions):
    """Where a run is to go."""

    gpu: str | None = option('GPU to fit, e.g. "RTX 4070".', metavar="NAME", group=BUDGET)
    cpu_only: bool = option("The same as --device cpu.", group=BUDGET, rare=True)


class DeviceOption(PlaceOptions):
    device: Literal["cpu", "cuda"] | None = option(
        "Device to train on; default: cuda if there is one.", group=BUDGET, rare=True
    )


class TrustOption(Command):
    trust: bool = option("Import code it names; only for files you trust.")


class RunOptions(Command):
    """A run with settings of one's own."""

    like: str | None = option("Take settings that the file lacks from this run.", metavar="RUN", rare=True)
    settings: list[str] = option("Change a setting, e.g. n_envs=2; or --n-envs 2.", "--set", metavar="KEY=VALUE")


class SchedulerOption(Command):
    system: Literal["slurm", "kubernetes", "docker", "condor"] | None = option(
        "Print a request for slurm, kubernetes, docker or condor.", "--for", metavar="SYSTEM", group=OUTPUT, rare=True
    )


class PredictCommand(SchedulerOption, PageOptions, DeviceOption, RunOptions, TrustOption):
    """Whether a run fits, and what it needs, item by item. RUN is only read; a command after -- is EXECUTED for seconds
    on a simulated GPU (legroom predict --help --).

    One run gives its bill; several give a comparison. The environment of a run is built where an installed package has
    it. Code that RUN itself names (`module:attr`) is imported only with --trust; without it, what depends on that code
    is unknown. Exit code 1: it does not fit, breaks a rule of its library, or is unknown.

    \b
    legroom predict train.py --gpu "RTX 4070"
    legroom predict mine:full --ram 16GiB --n-envs 2
    legroom predict -- python train.py --batch-size 512

    \b
    legroom predict mine:full --data deposit.csv
    legroom predict ppo.yml:atari --mode arithmetic --json
    legroom predict run.yaml --trust
    legroom predict mine:full mine:small --html mine.html
    legroom predict run.yaml --for slurm
    """

    module = "legroom.cli.predict"
    runs: list[str] = argument("RUN...", RUNS)
    mode: Literal["auto", "trace", "arithmetic"] = option(
        "trace follows the networks and needs torch, or XLA for brax; auto traces where it can.",
        rare=True,
        default="auto",
    )
    probe: bool = option("Environments are stepped anyway, for a second, wherever they may be built.", rare=True)
    backend: str | None = option(AS_BACKEND, metavar="NAME", rare=True)
    values: Literal["refuse", "assume", "real"] = option(
        "Where a network reads a tensor's value (.item()): answer unknown, assume a value and list it, or compute it "
        "on the CPU from observations of zeros.", rare=True, default="refuse",
    )  # fmt: skip
    everything: bool = option("List everything, small items too.", "--all", group=OUTPUT)


class RehearsalOptions(PlaceOptions):
    """How a program is run on a simulated GPU."""

    command: list[str] = argument("-- COMMAND...", YOURS, default=[])
    gpu: str | None = option('GPU to fit: "RTX 4070", "2x RTX 3090".', metavar="NAME", group=BUDGET)
    seconds: float = option("Stop after N seconds.", metavar="N", rare=True, default=60.0)
    updates: int | None = option("Stop after N optimizer steps.", metavar="N", rare=True)
    real_limit: str | None = option(
        "Stop it at this much real host memory; default: half of what is free.", metavar="SIZE", rare=True
    )
    keep_writes: bool = option("Keep the files that your program writes.", rare=True)
    values: Literal["assume", "real"] = "assume"
    small: str = "1MiB"


class PredictProgramCommand(SchedulerOption, PageOptions, RehearsalOptions):
    """Whether your program fits, and what it needs, line by line. Your program is EXECUTED, unedited, for seconds, on
    a simulated GPU: its tensors there take no memory. Files that it writes are discarded; requests that it sends are
    real.

    It runs in its own interpreter and is stopped once nothing new happens. With --gpu or --vram, a request that does
    not fit raises torch.OutOfMemoryError at its line. Experiment trackers are set offline (WANDB_MODE); the program
    can see LEGROOM_REHEARSAL=1. Exit code 1: it does not fit, leaks, or that is unknown; 2: the program failed.

    \b
    legroom predict -- python train.py --batch-size 512
    legroom predict --gpu "RTX 4070" -- python train.py
    legroom predict --vram 8GiB --ram 16GiB -- python -m package.train

    \b
    legroom predict --seconds 30 --html memory.html -- uv run train.py
    """

    module = "legroom.cli.rehearse"
    values: Literal["assume", "real"] = option(
        "Values read from the GPU: assumed and listed, or computed on the CPU.", rare=True, default="assume"
    )
    small: str = option("GPU tensors up to this size keep their values.", metavar="SIZE", rare=True, default="1MiB")
    everything: bool = option("List everything, and show the program's own output.", "--all", group=OUTPUT)
    output: Path | None = option(
        "Write the equivalent run file (SB3).", "-o", "--output", metavar="FILE", group=OUTPUT, rare=True
    )


class TierOptions(Command):
    tiers: str | None = option(
        "A table by GPU memory or name: 8,12,RTX 4090.", metavar="GB,GB,...", group=BUDGET,
        alone="RTX 4060,T4,RTX 3090,RTX 4090,RTX 5090,A100,H100",
    )  # fmt: skip
    grow: bool = option("Use free memory: more environments, a larger buffer.", group=BUDGET, rare=True)
    max_steps_per_update: int | None = option(
        "With --tiers: the most environment steps per update.", metavar="N", least=1, group=BUDGET, rare=True
    )


class FitCommand(SchedulerOption, PageOptions, DeviceOption, TierOptions, RunOptions, TrustOption):
    """Make a run fit a budget, changed as little as possible. A command after -- is EXECUTED for seconds on a
    simulated GPU (legroom fit --help --).

    Free savings come first, then slower ones, then those that change results. The fitted run is predicted again: its
    whole band lies within the budget. Code that RUN names (`module:attr`) is imported only with --trust. Exit code 1:
    nothing fits (it says what would be needed), or it is unknown without --trust.

    \b
    legroom fit train.py --gpu "RTX 4070"
    legroom fit mine:full --ram 8GiB -o fitted.yaml
    legroom fit --vram 8GiB -- python train.py

    \b
    legroom fit train.py --vram 6GiB --reserve 10%
    legroom fit run.yaml --ram 32GiB --grow
    legroom fit gameboy:default --tiers 8,12,16,24
    legroom fit mine --ram 8GiB,16GiB,32GiB
    legroom fit run.yaml --ram 8GiB -o fitted.yaml --for slurm
    """

    module = "legroom.cli.fit"
    target: str = argument("RUN", "train.py, run.yaml, mine:full, or a workload: mine")
    backend: str | None = option(AS_BACKEND, metavar="NAME", rare=True)
    mode: Literal["auto", "trace", "arithmetic"] = option(
        "auto traces the networks and steps the environment where it can.", rare=True, default="auto"
    )
    output: Path | None = option("Write the fitted run to FILE.", "-o", "--output", metavar="FILE", group=OUTPUT)


class FitProgramCommand(PageOptions, RehearsalOptions):
    """Make your program fit, by savings attached from outside or by its own arguments. Your program is EXECUTED several
    times, for seconds each, on a simulated GPU (see legroom predict --help --).

    Without --param: the cheapest savings with which it fits, of those that `legroom train -- COMMAND` can attach. With
    --param: the largest value that fits for {NAME} in the command, or for a constant of the program (NAME = 32 in the
    script or a module beside it, set while it runs; no file is changed). Values that the program refuses are skipped;
    two --param give the frontier. Exit code 1: nothing fits, or unknown.

    \b
    legroom fit --vram 8GiB -- python train.py
    legroom fit --gpu T4 --param n=64..8192 -- python train.py --batch-size {n}

    \b
    legroom fit --gpu "RTX 4070" --param batch=64..8192 -- \\
      python train.py --batch-size {batch}
    legroom fit --vram 8GiB --param n=16,32,64,128 -- python train.py --num-envs {n}
    legroom fit --vram 8GiB --param envs=64..4096:64 --param steps=16..128:16 -- \\
      python train.py --num-envs {envs} --num-steps {steps}
    """

    module = "legroom.cli.fit_program"
    param: list[str] = option("Find the largest {NAME} that fits.", metavar="NAME=A..B")


class TrainCommand(PageOptions, LimitOptions, RunOptions):
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
    legroom train mine:full --timesteps 8192 --set memory.micro_batch=8
    legroom train run.yaml --out runs/first --seed 1 --html first.html
    legroom train run.yaml --out runs/first --resume --timesteps 2000000
    legroom train gameboy --rom my_game.gb --cartridge my_game.yaml
    legroom train robot:quick --num-envs 64 --batch-size 64 --num-minibatches 8
    legroom train mine:small --backend rllib --num-env-runners 4 --cluster auto
    """

    module = "legroom.cli.train"
    target: str = argument("RUN", RUN_FILES)
    timesteps: int | None = option("Environment steps in total, also with --resume.", metavar="N", least=1)
    seed: int | None = option("Default: the run's, or a random one.", metavar="N", least=0, most=2**32 - 1, rare=True)
    resume: bool = option("Continue from the last good checkpoint in --out.")
    plain: bool = option("Train as the library does, without savings.", rare=True)
    retries: int = option(
        "How often to continue after memory ran out or the training was killed.",
        metavar="N",
        least=0,
        rare=True,
        default=8,
    )
    backend: str | None = option("Train with this backend instead of the run's.", metavar="NAME", rare=True)
    device: str = option("Device to train on.", metavar="cpu|cuda|auto", group=BUDGET, rare=True, default="")
    fit: bool = option("Make it fit first; of a workload, the largest run.", group=BUDGET)
    allow_changes: bool = option("Allow changed results when continuing after an error.", group=BUDGET, rare=True)
    cluster: str | None = option(
        "Ray cluster, for rllib; default: local.", metavar="local|auto|ADDRESS", group=CLUSTER, rare=True
    )
    out: Path | None = option("Run folder; default: runs/NAME-TIMESTAMP.", metavar="DIR", group=OUTPUT)
    visualization: bool = option(
        "Pictures of the workload every 10 iterations.", off="--headless", group=OUTPUT, rare=True
    )
    checkpoint_every: int | None = option(
        "Steps between checkpoints; default: by time.", metavar="N", least=1, group=OUTPUT, rare=True
    )


class TrainProgramCommand(PageOptions):
    """Run your program for real, unedited, with memory savings attached from outside. Its results stay the same, and
    its output, input, signals and exit code pass through.

    Your program is EXECUTED in its own interpreter. Free savings for Stable-Baselines3 are attached: workers without
    torch in place of SubprocVecEnv's (workers), updates that run out of memory are redone in pieces (redo), allocator
    settings (allocator). --with lean also stores rollouts and replay losslessly in less memory. Parameters after
    training are bit-equal; with micro_batch=N equal up to rounding. Models that it saves load without legroom. What
    was attached and the memory that it took are printed on standard error.

    \b
    legroom train -- python train.py
    legroom train --with lean -- python train.py --seed 1

    \b
    legroom train --with lean,micro_batch=16 --ram 8GiB -- python -m package.train
    legroom train --fit --ram 8GiB -- python train.py
    legroom train --plain --html memory.html -- uv run train.py
    """

    module = "legroom.cli.attach"
    command: list[str] = argument("-- COMMAND...", YOURS, default=[])
    with_: str | None = option(
        "Also attach lean or micro_batch=N; free ones are attached anyway.", "--with", metavar="NAMES"
    )
    plain: bool = option("Attach nothing, only watch.")
    fit: bool = option("Attach the cheapest savings with which it fits.", group=BUDGET)
    ram: str | None = option("Host memory to compare with; nothing is killed.", metavar="SIZE", group=BUDGET)
    vram: str | None = option("GPU memory to compare with; nothing is killed.", metavar="SIZE", group=BUDGET)
    out: Path | None = option(BOTH_FILES, metavar="DIR", group=OUTPUT)
    json: bool = option("Print the result as JSON, after the program's own output.", group=OUTPUT)


class SweepCommand(JsonOption, RunOptions, TrustOption):
    """Train a grid of settings on Ray, as many trials at once as memory allows.

    Each trial is a training of its own in DIR/trials/NNN, with checkpoints. A trial that takes more memory than
    predicted is run again with what was measured; one that fails does not end the sweep. After Ctrl-C, trials write
    checkpoints and --resume continues. Code that RUN names (`module:attr`) is imported only with --trust. Exit code
    1: a trial fits no node, or needs --trust. 4: no trial finished. 130: stopped.

    \b
    legroom sweep run.yaml --param learning_rate=1e-4,3e-4 --out sweeps/lr
    legroom sweep run.yaml --param seed=0..9 --out sweeps/ten_seeds

    \b
    legroom sweep run.yaml --param seed=0..3 --metric seconds --out sweeps/speed
    legroom sweep run.yaml --param seed=0..9 --cluster auto --out /shared/seeds
    legroom sweep run.yaml --param seed=0..9 --out sweeps/seeds --resume
    """

    module = "legroom.cli.sweep"
    target: str = argument("RUN", RUN_FILES)
    param: list[str] = option("Setting to vary; also seed=0..9. Repeatable.", metavar="KEY=V1,V2")
    timesteps: int | None = option("Environment steps of each trial.", metavar="N", least=1)
    resume: bool = option("Continue the sweep in --out.")
    concurrent: int | None = option("Trials at once; default: as many as fit.", metavar="N", least=1, group=BUDGET)
    ram: str | None = option("Host memory for all trials together.", metavar="SIZE", group=BUDGET)
    cluster: str = option("Ray cluster: local, auto or its address.", metavar="WHERE", group=CLUSTER, default="local")
    out: Path | None = option("Folder of the trials; all nodes must see it.", metavar="DIR", group=OUTPUT)
    metric: str = option(
        "Metric to rank by: one of the score, or seconds, or peak.", metavar="NAME", group=OUTPUT, rare=True,
        default="reward_mean",
    )  # fmt: skip
    mode: str = option(
        "Default: max; min for seconds and peak.", metavar="max|min", group=OUTPUT, rare=True, default=""
    )


class CheckCommand(JsonOption, PlaceOptions, RunOptions):
    """Find mistakes in a configuration or training script, worst first. Nothing is executed.

    Run files, zoo and brax YAML are parsed; Python is read by its syntax tree. Exit code 1: there are errors or
    warnings. The comment `# legroom: ignore[LR012]` suppresses a finding.

    \b
    legroom check train.py --ram 32GiB --vram 16GiB
    legroom check --explain-rule LR012

    \b
    legroom check configs/ --select minibatch-does-not-divide
    legroom check brax.yaml --fix --dry-run
    legroom check . --format sarif
    """

    module = "legroom.cli.check"
    paths: list[str] = argument("PATH...", "train.py, run.yaml, ppo.yml, a folder, mine:full", default=[])
    select: list[str] = option("Only these rules, e.g. LR002,no-effect.", metavar="RULES")
    ignore: list[str] = option("All rules but these.", metavar="RULES")
    rule: str | None = option(
        "Explain a rule: what it finds, and why.", "--explain-rule", "--rule", metavar="RULE", rare=True
    )
    fix: bool = option("Apply mechanical fixes to the files.", group=OUTPUT)
    dry_run: bool = option("With --fix: only show the changes.", group=OUTPUT)
    everything: bool = option("Also list what is fine, and why.", "--all", group=OUTPUT)
    list_rules: bool = option("List the rules.", "--list", group=OUTPUT)
    format: Literal["text", "json", "sarif"] = option(
        "For people, programs, code scanning.", group=OUTPUT, rare=True, default="text"
    )


class ExplainCommand(JsonOption):
    """Why a program ran out of memory, from its log or traceback: what ran out, what took it, and what helps.

    Exit code 1: no out-of-memory error recognised in it.

    \b
    legroom explain train.log
    python train.py 2>&1 | legroom explain
    legroom explain slurm-1234.out --json
    """

    module = "legroom.cli.explain"
    file: str = argument("[FILE|-]", "A log or traceback; default: standard input.", default="-")
    everything: bool = option("List all advice.", "--all", group=OUTPUT)


class WatchCommand(PageOptions):
    """Watch the memory of any command: by role, over time, with a verdict, a forecast and, if it dies, the reason.
    Its output, signals and exit code pass through.

    The exit code is 128 + signal where a signal ended it; what watch prints goes to standard error. Verdicts: leak
    (still growing steadily), growing (not settled yet), ok. Roles: trainer (the process that has loaded torch or jax,
    else the largest Python), env workers (children of multiprocessing, Ray, joblib), others.

    \b
    legroom watch -- python train.py
    legroom watch --html memory.html -- python train.py
    legroom watch --limit 8GiB --out watched -- python train.py --seed 1
    legroom watch --pid 12345
    """

    module = "legroom.cli.watch"
    command: list[str] = argument("-- CMD...", YOURS, default=[])
    pid: int | None = option("Watch a running process instead.", metavar="PID")
    limit: str | None = option("Host memory to forecast against; nothing is killed.", metavar="SIZE", group=BUDGET)
    interval: float = option("Time between samples.", metavar="SECONDS", group=OUTPUT, rare=True, default=0.25)
    out: Path | None = option(BOTH_FILES, metavar="DIR", group=OUTPUT)
    json: bool = option("Print JSON; the command's own output goes to standard error.", group=OUTPUT)


class ProfileCommand(PageOptions):
    """Whether an environment leaks and where, and its cost: steps, observations, copies side by side. ENV is
    imported and EXECUTED, with random actions.

    It runs in processes of its own. Verdicts: leak (grows steadily; the lines that allocate are listed), growing (not
    settled yet), ok. Exit code 1: it leaks, with --fail-on-leak.

    \b
    legroom profile CartPole-v1
    legroom profile my_envs:MyEnv --frames 5000 --fail-on-leak

    \b
    legroom profile ninja:parallel --envs 1,2,4,8 --html ninja.html
    legroom profile my_envs:MyEnv --save before.json
    legroom profile my_envs:MyEnv --baseline before.json
    """

    module = "legroom.cli.profile"
    env: str = argument("ENV", "CartPole-v1, module:attr, or a workload: ninja:parallel")
    frames: int = option("Steps to take; more where the verdict needs them.", metavar="N", default=1000)
    snapshot_interval: int = option("Most steps between two samples.", metavar="N", rare=True, default=100)
    envs: str | None = option("Copies side by side; default 1,2,4,8; 0: none.", metavar="N,N")
    seed: int = option("Seed of the environment and the random actions.", metavar="N", rare=True, default=20261)
    settings: list[str] = RunOptions.settings
    baseline: Path | None = option("Compare with a saved profile.", metavar="FILE", group=OUTPUT)
    save: Path | None = option("Save the profile, for --baseline.", metavar="FILE", group=OUTPUT)
    fail_on_leak: bool = option("Exit code 1 if it leaks.", group=OUTPUT)
    everything: bool = option("List every line that leaks and every key.", "--all", group=OUTPUT)
    report: Path | None = option("Also write the text to FILE.", metavar="FILE", group=OUTPUT, rare=True)
    cprofile: Path | None = option(
        "Write cProfile's statistics, from a separate pass.", metavar="FILE", group=OUTPUT, rare=True
    )


class UiCommand(Command):
    """The planner page: change a run's settings and see at once what it needs; follow trainings live.

    It is served on this machine only and sends nothing elsewhere. Named runs can be picked and run files dropped on the
    page; a run named here can also be traced there, which builds its networks. A pasted command, or the own code of a
    run named here, is executed there only after a click. Ctrl-C ends it.

    \b
    legroom ui
    legroom ui mine:full run.yaml
    legroom ui train.py --folder runs
    legroom ui --port 0
    """

    module = "legroom.cli.ui"
    runs: list[str] = argument("RUN...", RUNS, default=[])
    port: int = option("Port to listen on; 0: any free one.", metavar="PORT", default=8765)
    folder: list[Path] = option("Folder with trainings or watches to follow.", metavar="DIR")


class ExportCommand(JsonOption, TrustOption):
    """Write the last good checkpoint of a run as an archive of Stable-Baselines3; of a brax run, as safetensors.

    Checkpoints are data. Code that the run's policy names (`module:attr`) is imported only with --trust.

    \b
    legroom export runs/first model.zip
    legroom export runs/walk policy.safetensors
    legroom export runs/first/checkpoints/step-000000012288 model.zip --force
    """

    module = "legroom.cli.export"
    directory: Path = argument("DIR", "A run's folder, or one of its checkpoints.")
    archive: Path = argument("FILE", "model.zip; of a brax run: policy.safetensors.")
    force: bool = option("Overwrite what is there.")


class MachineCommand(JsonOption):
    """Show this machine's RAM, container limit, swap, shared memory, GPUs and library versions.

    \b
    legroom machine
    legroom machine --json
    """

    module = "legroom.cli.facts:machine"


class WorkloadsCommand(JsonOption):
    """The reference workloads, their named runs, and the commands to try.

    \b
    legroom workloads
    legroom workloads --json
    """

    module = "legroom.cli.facts:workloads"


class SchemaCommand(JsonOption):
    """The JSON schema of a run file.

    \b
    legroom schema > run.schema.json
    """

    module = "legroom.cli.facts:schema"


COMMANDS: dict[str, type[Command]] = {
    each.__name__.removesuffix("Command").lower(): each
    for each in (
        PredictCommand, FitCommand, TrainCommand, SweepCommand, CheckCommand, ExplainCommand, WatchCommand,
        ProfileCommand, UiCommand, ExportCommand, MachineCommand, WorkloadsCommand, SchemaCommand,
    )
}  # fmt: skip
# What a command is with a command line of the user's after `--`.
WITH_PROGRAM: dict[str, type[Command]] = {
    "predict": PredictProgramCommand, "fit": FitProgramCommand, "train": TrainProgramCommand,
}  # fmt: skip
