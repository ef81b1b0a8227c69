"""A run file names its deposit, and the deposit is there: generated, from CSV, on any grid."""

from __future__ import annotations

import subprocess
import sys

import numpy as np
import pytest

from legroom.errors import BadInput
from legroom_workloads.mine.csv_file import write_csv
from legroom_workloads.mine.deposit import generate
from legroom_workloads.mine.files import data_files
from legroom_workloads.mine.models import load_model


def test_a_csv_file_by_its_path(tmp_path):
    model = generate((4, 3, 5), 1)
    write_csv(model, tmp_path / "pit.csv")
    assert np.array_equal(load_model(tmp_path / "pit.csv").channels, model.channels)
    assert load_model(str(tmp_path / "pit.csv"), (2, 3, 5)).shape == (2, 3, 5)
    assert data_files(tmp_path / "pit.csv") == [tmp_path / "pit.csv"]
    assert data_files("sample") == []


def test_what_is_not_there_is_said_in_one_line(tmp_path):
    with pytest.raises(
        BadInput, match=r"there is no block model 'simple' \(sample, a CSV file, or a MineLib instance\)"
    ):
        load_model("simple")
    with pytest.raises(BadInput, match="is a directory"):
        load_model(tmp_path)
    with pytest.raises(BadInput, match="grid 0x1x1"):
        load_model("sample", (0, 1, 1))
    for odd in ("", ".", "/", "\0"):
        with pytest.raises(BadInput):
            load_model(odd)


def test_reading_a_deposit_does_not_bring_scipy_into_a_worker():
    code = "import sys; from legroom_workloads.mine.models import load_model; load_model('sample', (4, 4, 4))"
    heavy = "print([name for name in ('scipy', 'torch', 'gymnasium', 'pandas') if name in sys.modules])"
    done = subprocess.run([sys.executable, "-c", f"{code}; {heavy}"], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
