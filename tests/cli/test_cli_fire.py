"""If these fail, `train fire --fit` trains another run than the machine could, or tiles are mistaken for landscapes."""

from __future__ import annotations

import pytest

from legroom.cli.train_steps import Terminal
from legroom.errors import BadInput
from legroom.fitting.predictor import Predictor
from legroom.fitting.tiers import in_order
from legroom.model.machine import Machine
from legroom.model.verdict import Budget
from legroom.reading import read, read_all
from legroom.reading.workload_options import with_options
from legroom.training.prepare import choose
from legroom.units import GIB, MIB
from legroom_workloads.fire.generator import main as generate

MACHINE = Machine(ram=64 * GIB, limit=None, available=64 * GIB, swap=0, shm=32 * GIB, cores=8)
ROOM = 64 * GIB


def with_rasters(run, rasters):
    return with_options(run, {} if rasters is None else {"--rasters": rasters})


def chosen(budget, capsys):
    asked_for = []

    def look(run):
        asked_for.append(run.name)
        return Predictor(run, MACHINE, mode="arithmetic", device="cuda")

    asked, fitted = choose(in_order("fire", read_all("fire")), look, budget, Terminal(quiet=True))
    return asked.name, fitted, asked_for, capsys.readouterr().err


def test_a_card_with_room_gets_the_original_as_it_is(capsys):
    name, (run, footprint), asked_for, told = chosen(Budget(ROOM, 8 * GIB), capsys)
    assert name == "fire:original" and asked_for == ["fire:original"]
    assert run.memory.micro_batch is None and footprint.gpu.high <= 8 * GIB
    assert "fire:original fits" in told


def test_the_document_s_card_gets_the_original_in_pieces_and_is_told_why(capsys):
    vram = int(3.68 * GIB)
    name, (run, footprint), _, told = chosen(Budget(ROOM, vram), capsys)
    assert name == "fire:original"
    assert run.hyperparams == read(name).hyperparams and run.policy == read(name).policy  # the same learning
    assert 0 < run.memory.micro_batch < 64 and footprint.gpu.high <= vram
    assert "fire:original needs" in told and "micro_batch" in told and "same results" in told


def test_where_no_piece_is_small_enough_a_smaller_network_is_trained(capsys):
    name, (_, footprint), asked_for, told = chosen(Budget(ROOM, 560 * MIB), capsys)
    assert asked_for[0] == "fire:original" and asked_for[-1] == name
    assert footprint.gpu.high <= 560 * MIB
    for passed_over in asked_for[:-1]:
        assert f"{passed_over} needs" in told
    assert told.count("it cannot fit without changing the training") == len(asked_for) - 1


def test_nothing_that_learns_the_same_leaves_the_choice_to_the_knobs_that_change_it(capsys):
    name, fitted, asked_for, _ = chosen(Budget(ROOM, 64 * MIB), capsys)
    assert (name, fitted) == ("fire:original", None)
    assert asked_for == ["fire:original", "fire:medium", "fire:low", *asked_for[3:]]


def test_rasters_is_a_number_or_a_folder_of_tiles(tmp_path):
    run = read("fire:low")
    assert with_rasters(run, None) is run
    many = with_rasters(run, "20")
    assert many.env.kwargs["rasters"] == 20 and many.env.spaces == run.env.spaces
    folder = tmp_path / "tiles"
    assert generate(["--rasters", "2", "--out", str(folder), "--grid", "20", "24"]) == 0
    assert sorted(file.name for file in folder.iterdir()) == ["landscape-0.tif", "landscape-1.tif"]
    own = with_rasters(run, str(folder))
    assert own.env.kwargs["rasters"] == str(folder) and own.env.spaces is None and own.env.grid is None


def test_tiles_are_not_mixed_with_others(tmp_path, capsys):
    (tmp_path / "note.txt").write_text("mine")
    assert generate(["--rasters", "1", "--out", str(tmp_path)]) == 2
    assert "is not empty" in capsys.readouterr().err
    assert generate(["--rasters", "0", "--out", str(tmp_path / "none")]) == 2


@pytest.mark.parametrize(
    ("run", "rasters", "message"),
    [
        ("mine:small", "3", "--rasters is an option of fire, which mine:small does not belong to"),
        ("fire:low", "0", "--rasters 0"),
        ("fire:low", "no/such", "no such folder"),
    ],
)
def test_bad_rasters_are_one_line(run, rasters, message):
    with pytest.raises(BadInput, match=message):
        with_rasters(read(run), rasters)


def test_a_folder_without_tiles_is_refused(tmp_path):
    with pytest.raises(BadInput, match="no tiles"):
        with_rasters(read("fire:low"), str(tmp_path))
