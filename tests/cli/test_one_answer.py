"""Every command gives the same answer to the same question: what a run needs, and whether it fits."""

import json
import re
from collections.abc import Iterator, Sequence
from contextlib import nullcontext
from pathlib import Path

import numpy as np
import pytest
from in_process import legroom

from legroom.cli.commands import COMMANDS
from legroom.cli.parsing import options_of
from legroom.fitting.predictor import Predictor
from legroom.fitting.tiers import in_order
from legroom.machine import probe
from legroom.model.run import Run
from legroom.model.spaces import describe, leaves
from legroom.model.verdict import Budget
from legroom.reading import read, read_all
from legroom.training.prepare import choose
from legroom.units import parse_size
from legroom_workloads.mine.csv_file import write_csv
from legroom_workloads.mine.deposit import generate

MAKES_OTHER_SPACES = [
    ("mine:small", ["env.grid=[30,20,10]"], "17×30×20×10 float32"),
    ("mine:small", ["env.kwargs.grid=[12,10,5]"], "17×12×10×5 float32"),
    ("gameboy:default", ["env.kwargs.grey=true", "env.kwargs.downsample=2"], "72×80×1 uint8"),
    ("gameboy:learn", ["env.kwargs.crop=null"], "72×80×1 uint8"),
    ("ninja:default", ["env.kwargs.global_view=false"], "player_frame"),
    ("ninja:learn", ["env.kwargs.observation=dict", "policy.name=MultiInputPolicy"], "player_frame"),
    ("fire:low", ["env.grid=[30,40]", "env.kwargs.breaks_per_step=2"], "8×30×40 float32"),
]


@pytest.mark.parametrize(("name", "settings", "seen"), MAKES_OTHER_SPACES)
def test_spaces_follow_what_the_environment_is_made_with(name: str, settings: list[str], seen: str) -> None:
    """Declared spaces are those of the declared arguments: with others the bill was that of another observation."""
    from legroom.environments.gym_spaces import from_gymnasium
    from legroom.environments.objects import resolve_object

    run = read(name, overrides=[tuple(each.split("=", 1)) for each in settings])
    assert run.env.spaces is not None
    assert sorted(describe(run.env.spaces.observation).split(" + "))[-1].startswith(seen)
    env = resolve_object(str(run.env.id))(**run.env.arguments)
    built, declared = (leaves(each) for each in (from_gymnasium(env.observation_space), run.env.spaces.observation))
    assert {key: describe(leaf) for key, leaf in built.items()} == {
        key: describe(leaf) for key, leaf in declared.items()
    }
    assert describe(from_gymnasium(env.action_space)) == describe(run.env.spaces.action)
    env.close()


def test_what_the_base_run_declares_does_not_outlive_other_arguments(tmp_path) -> None:
    file = tmp_path / "coarse.yaml"
    file.write_text("algo: MaskablePPO\nenv: {grid: [30, 30, 20]}\n")
    run = read(str(file), like="mine:small")
    assert run.env.spaces is not None
    assert describe(run.env.spaces.observation) == "17×30×30×20 float32"


def test_spaces_that_only_the_environment_knows_are_not_taken_from_the_file() -> None:
    """A wrapper may do anything: the figures are unknown until the environment is built, and never the old ones."""
    run = read("mine:small", overrides=[("env.wrappers", "['gymnasium.wrappers:FlattenObservation']")])
    assert run.env.spaces is None


@pytest.mark.parametrize("command", ["predict", "fit", "check"])
def test_a_larger_grid_does_not_fit_for_any_command(command: str) -> None:
    """The rollout alone is 8.1 GiB, and 2 GiB were said to be enough."""
    done = legroom(command, "mine:small", "--set", "env.grid=[100,100,50]", "--ram", "2GiB", "--json")
    text = json.loads(done.stdout)
    assert done.returncode == (0 if command == "fit" else 1), done.stderr
    if command == "predict":
        assert text["runs"][0]["fits"] is False
    if command == "fit":
        assert text["before"]["host"]["peak"] > 16 * 2**30
    if command == "check":
        assert "LR013" in {finding["code"] for finding in text["findings"]}


ASKED = [
    ("mine:full", "8GiB", []),
    ("mine:ultra_light", "1GiB", []),
    ("mine:small", "2GiB", ["--set", "env.grid=[100,100,50]"]),
    ("ninja:default", "2GiB", []),
    ("ninja:learn", "300MiB", ["--set", "n_envs=4"]),
    ("gameboy:fitted", "4GiB", ["--n-steps", "256", "--batch-size", "256"]),
    ("fire:low", "4GiB", ["--like", "fire:medium"]),
    ("robot:gpu_8gb", "8GiB", []),
    ("CartPole", "400MiB", []),
]


@pytest.fixture
def cartpole(tmp_path: Path) -> str:
    file = tmp_path / "cart.py"
    file.write_text('from stable_baselines3 import PPO\nPPO("MlpPolicy", "CartPole-v1").learn(10_000)\n')
    return str(file)


@pytest.mark.parametrize(("name", "ram", "settings"), ASKED)
def test_all_commands_answer_alike(name: str, ram: str, settings: list[str], cartpole: str) -> None:
    """What a run needs and whether it fits had other answers in predict, fit, check and train."""
    target = cartpole if name == "CartPole" else name
    given = [target, "--ram", ram, *settings]
    (said,) = json.loads(legroom("predict", *given, "--mode", "arithmetic", "--json").stdout)["runs"]
    plan = json.loads(legroom("fit", *given, "--mode", "arithmetic", "--json").stdout)
    checked = json.loads(legroom("check", *given, "--json").stdout)
    assert plan["before"]["host"] == said["host"]
    (summed,) = checked["summary"][0]["runs"]
    assert (summed["host"], summed["host_high"]) == (said["host"]["peak"], said["host"]["band"][1])
    assert (plan["fits"] and not plan["knobs"]) == (said["fits"] is True)
    exceeded = {each["code"] for each in checked["findings"]} & {"LR012", "LR013", "LR014", "LR032"}
    assert bool(exceeded) == (said["host"]["band"][1] > plan["budget"]["ram"])
    shown = legroom("predict", *given, "--mode", "arithmetic").stdout
    word = {True: "Fits: ", False: "Invalid" if said["findings"] and name.startswith("robot") else "Does not fit: "}
    assert shown.startswith(word[said["fits"]])


@pytest.mark.parametrize("workload", ["mine", "fire", "ninja", "gameboy"])
@pytest.mark.parametrize("ram", ["500MiB", "4GiB"])
def test_train_chooses_the_run_that_fit_recommends(workload: str, ram: str) -> None:
    """At 8 GiB fit recommended mine:ultra_light, and train --fit trained mine:full."""
    budget, machine = Budget(ram=parse_size(ram)), probe()

    def look(run: Run) -> Predictor:
        return Predictor(run, machine, mode="arithmetic", device="cpu")

    asked, found = choose(in_order(workload, read_all(workload)), look, budget, Silent())
    done = legroom("fit", workload, "--ram", ram, "--mode", "arithmetic", "--device", "cpu", "--json")
    recommended = json.loads(done.stdout)["recommended"]
    assert recommended == (None if found is None else asked.name)


class Silent:
    """A console nobody reads."""

    command = ""
    agrees = staticmethod(lambda question: False)
    tell = staticmethod(lambda line: None)
    busy = staticmethod(lambda text: nullcontext())


PRINTING = [
    ("fit", "mine:full", "--ram", "8GiB", "--n-steps", "512", "--set", "env.kwargs.within=grid"),
    ("fit", "mine:small", "--ram", "4GiB", "--batch-size", "16"),
    ("fit", "mine", "--ram", "450MiB", "--gamma", "0.9"),
    ("fit", "robot:gpu_8gb", "--gpu", "RTX 4060", "--num-envs", "256", "--reserve", "10%"),
    ("fit", "base.yaml", "--like", "mine:small", "--ram", "2GiB", "--device", "cpu"),
    ("fit", "mine:small", "--data", "deposit.csv", "--ram", "1GiB"),
    ("check", "robot:gpu_8gb", "--fix", "--set", "hyperparams.unroll_length=8"),
]


@pytest.mark.parametrize("words", PRINTING, ids=" ".join)
def test_printed_commands_are_about_the_run_that_was_asked_about(words: tuple[str, ...], tmp_path: Path) -> None:
    """`fit mine:full --data X.csv` printed a command that trains the sample deposit."""
    (tmp_path / "base.yaml").write_text("algo: MaskablePPO\nenv: {grid: [12, 12, 6]}\n")
    write_csv(generate((12, 10, 6), 1), tmp_path / "deposit.csv")
    arithmetic = [] if words[0] == "check" else ["--mode", "arithmetic"]
    done = legroom(*words, *arithmetic, cwd=tmp_path)
    printed = list(commands(done.stdout + done.stderr))
    assert printed, done.stdout + done.stderr
    for command, name, *options in printed:
        if words[0] == "check":  # the run as it was asked about, repaired
            assert set(words[3:]) < set(options)
            continue
        again = legroom("predict", name, *options, *AS_PREDICTED, cwd=tmp_path)
        asked = legroom("predict", name, *settings_of(words[2:]), *AS_PREDICTED, cwd=tmp_path)
        assert json.loads(again.stdout)["runs"][0]["host"] == json.loads(asked.stdout)["runs"][0]["host"]
        if command == "train":
            train = {each for one in options_of(COMMANDS["train"]) for each in one.names}
            assert {each for each in options if each.startswith("--")} <= {*train, "--data"}


AS_PREDICTED = ["--mode", "arithmetic", "--json"]


def settings_of(words: Sequence[str]) -> list[str]:
    """Return the words but what is only for the command that they were given to."""
    return [word for word in words if word != "--fix"]


def commands(text: str) -> Iterator[list[str]]:
    """Yield the commands of a screen whose lines may be broken, without --fit: command, run, options with values."""
    words = re.sub(r"[();]", " ", text).split()
    for at, word in enumerate(words):
        if word != "legroom" or words[at + 1] not in ("train", "fit", "predict"):
            continue
        found, rest = words[at + 1 : at + 3], words[at + 3 :]
        while rest and rest[0].startswith("--"):
            taken = 1 if rest[0] == "--fit" else 2
            found += rest[:taken] if taken == 2 else []
            rest = rest[taken:]
        yield found


@pytest.mark.parametrize(("name", "ram"), [("gameboy:default", "40GiB"), ("mine:memory_optimized", "40GiB")])
def test_check_and_grow_count_the_same_environments(name: str, ram: str) -> None:
    """LR024 said that 4 environments would fit where fit --grow found 6."""
    found = json.loads(legroom("check", name, "--ram", ram, "--n-envs", "1", "--json").stdout)["findings"]
    (said,) = [each["message"] for each in found if each["code"] == "LR024"]
    given = ("--ram", ram, "--n-envs", "1", "--mode", "arithmetic", "--json")
    grown = json.loads(legroom("fit", name, *given, "--grow").stdout)
    assert said.endswith(f": {grown['run']['env']['n_envs']:,} would fit")


def test_an_array_that_numpy_refuses_does_not_fit_however_little_of_it_is_written(tmp_path: Path) -> None:
    """A short run with a buffer of a million was said to fit, and died of a MemoryError in its first second."""
    machine = probe()
    rows = int(1.02 * (machine.ram + machine.swap)) // (8 * 4096)
    if not machine.maps_anything:
        with pytest.raises(MemoryError):
            np.zeros((rows, 4096))
    run = tmp_path / "run.yaml"
    spaces = "{observation: {type: box, shape: [4096], dtype: float64}, action: {type: box, shape: [2]}}"
    run.write_text(
        f"algo: SAC\ntotal_timesteps: 1000\nenv: {{id: 'own:Env', spaces: {spaces}}}\n"
        f"hyperparams: {{buffer_size: {rows}}}\n"
    )
    for given in ((), ("--ram", f"{rows * 8 * 4096 - 1}")):
        if not given and machine.maps_anything:
            continue
        (said,) = json.loads(legroom("predict", run, *given, "--mode", "arithmetic", "--json").stdout)["runs"]
        assert said["fits"] is False
        assert said["host"]["band"][1] < 2**30
        assert (
            "NumPy cannot allocate replay.observations"
            in legroom("predict", run, *given, "--mode", "arithmetic").stdout
        )
        assert "LR014" in {
            each["code"] for each in json.loads(legroom("check", run, *given, "--json").stdout)["findings"]
        }
        plan = json.loads(legroom("fit", run, *given, "--mode", "arithmetic", "--json").stdout)
        assert plan["fits"] is None  # the environment is the user's own, and was not built
