"""If these fail, `--data` bills another deposit than the user's own, or only some commands know it."""

import json
import subprocess
import sys

import pytest

from legroom.cli.main import main
from legroom.errors import BadInput
from legroom.reading import read
from legroom.units import GIB
from legroom_workloads.mine.csv_file import write_csv
from legroom_workloads.mine.deposit import generate
from legroom_workloads.mine.env import MineEnv

GRID = (10, 10, 5)  # 500 blocks


@pytest.fixture
def deposit(tmp_path):
    file = tmp_path / "deposit.csv"
    write_csv(generate(GRID, 1), file)
    return file


def asked(capsys, *arguments):
    with pytest.raises(SystemExit) as end:
        main([*arguments])
    said = capsys.readouterr()
    return end.value.code, said.out, said.err


def test_the_grid_of_the_deposit_makes_the_spaces(deposit):
    run = read("mine:full", overrides=[("--data", str(deposit))])
    env = MineEnv(**run.env.kwargs, grid=run.env.grid)
    assert env.observation_space.shape == run.env.spaces.observation.shape == (17, *GRID)
    assert env.action_space.n == run.env.spaces.action.n == 100
    on_a_grid = read("mine:ultra_light", overrides=[("--data", str(deposit))])
    assert on_a_grid.env.spaces == read("mine:ultra_light").env.spaces


def test_predict_bills_that_deposit_and_imports_nothing_heavy(deposit):
    code = (
        "import sys\nfrom legroom.cli.main import main\n"
        f"try: main(['predict', 'mine:full', '--data', {str(deposit)!r}, '--mode', 'arithmetic', '--json'])\n"
        "except SystemExit: pass\n"
        "print([m for m in ('torch', 'gymnasium', 'scipy') if m in sys.modules], file=sys.stderr)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=120)
    (run,) = json.loads(done.stdout)["runs"]
    assert run["host"]["peak"] < 8 * GIB  # the sample's own grid would need 211
    rollout = 2048 * 4 * 17 * 500 * 4
    assert any(item["nbytes"] * item["count"] == rollout for item in run["items"])
    assert done.stderr.strip() == "[]"


@pytest.mark.parametrize("command", ["predict", "fit", "train", "profile", "check"])
def test_every_command_takes_it_and_says_what_is_wrong_with_the_file(command, tmp_path, capsys):
    (tmp_path / "deposit.csv").write_text("x,y\n1,2\n")
    code, _, said = asked(capsys, command, "mine:full", "--data", str(tmp_path / "deposit.csv"))
    assert code == 2 and said.count("\n") == 1 and "columns are missing" in said


def test_an_option_of_another_workload_is_refused_in_one_line(capsys):
    code, _, said = asked(capsys, "predict", "mine:full", "--rasters", "3")
    assert code == 2 and said.count("\n") == 1
    assert "--rasters is an option of fire, which mine:full does not belong to" in said
    with pytest.raises(BadInput, match="--rasters is an option of fire"):
        read("mine:full", overrides=[("--rasters", "3")])


def test_help_shows_the_options_of_the_workload_that_is_named(capsys):
    _, of_mine, _ = asked(capsys, "train", "mine", "--help")
    assert "--data FILE" in of_mine and "--rom FILE" not in of_mine
    assert "--data FILE" not in asked(capsys, "train", "--help")[1]  # a screen is for what everybody needs
    _, of_all, _ = asked(capsys, "fit", "--help-all")
    assert all(option in of_all for option in ("--data FILE", "--rom FILE", "--cartridge FILE", "--rasters N|DIR"))
