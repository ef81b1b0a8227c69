"""If these fail, workers compute the pit over and over, keep scipy in memory, or dig yesterday's deposit."""

import json

import numpy as np
import pytest

from legroom_workloads.mine import prepared as module
from legroom_workloads.mine.blocks import COLUMNS
from legroom_workloads.mine.economics import block_values
from legroom_workloads.mine.env import MineEnv
from legroom_workloads.mine.models import load_model
from legroom_workloads.mine.pit import ultimate_pit

GRID = (6, 6, 5)


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch):
    """Return an empty cache directory of the test's own."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    module._get.cache_clear()
    return tmp_path / "cache"


@pytest.fixture
def no_child(monkeypatch):
    """Do the child's work here, which is quicker; some tests leave it to a real one."""
    monkeypatch.setattr(module, "_prepare_in_child", lambda request, folder: module.main(request, str(folder)))


def never(*_):
    raise AssertionError("prepared again")


def entries(cache):
    return [path for path in (cache / "legroom" / "mine").iterdir() if path.is_dir()]


def test_it_is_the_model_priced_with_its_pit(no_child):
    found = module.prepared("sample", GRID)
    model = load_model("sample", grid=GRID)
    values, destination = block_values(model)
    assert np.array_equal(found.values, values) and np.array_equal(found.destination, destination)
    assert np.array_equal(found.pit, ultimate_pit(values, found.size_m)) and found.pit.any()
    assert np.array_equal(found.ground[:13], model.channels[:13])
    assert (found.name, found.size_m, found.shape) == (model.name, model.size_m, GRID)


def test_what_is_there_is_not_prepared_again(cache, no_child, monkeypatch):
    first = module.prepared("sample", GRID)
    assert module.prepared("sample", GRID) is first  # one process shares the arrays
    monkeypatch.setattr(module, "_prepare_in_child", never)
    monkeypatch.setattr(module, "_compute", never)
    module._get.cache_clear()  # another process
    assert np.array_equal(module.prepared("sample", GRID).values, first.values)
    assert len(entries(cache)) == 1


@pytest.mark.parametrize("damage", ["cut", "gone", "no json"])
def test_a_damaged_entry_is_prepared_again(cache, damage, no_child):
    first = np.array(module.prepared("sample", GRID).values)
    module._get.cache_clear()
    (entry,) = entries(cache)
    if damage == "cut":
        values = entry / "values.npy"
        values.write_bytes(values.read_bytes()[:-100])
    elif damage == "gone":
        (entry / "ground.npy").unlink()
    else:
        (entry / "deposit.json").write_text("{")
    assert np.array_equal(module.prepared("sample", GRID).values, first)
    assert json.loads((entry / "deposit.json").read_text())["name"] == "sample"


def test_without_a_place_for_the_cache_it_still_works(tmp_path, monkeypatch):
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    assert module.prepared("sample", GRID).pit.any()


def write_csv(path, cu):
    names = ("x", "y", "z", *COLUMNS[:6], "ton", *COLUMNS[6:12])
    rows = [
        (20 * x, 20 * y, 15 * z, cu, 0.01, 0, 1, 12, 90, 16000, *[0.1] * 6)
        for x in range(3) for y in range(3) for z in range(2)
    ]  # fmt: skip
    path.write_text("\n".join([",".join(names), *(",".join(map(str, row)) for row in rows)]) + "\n")


def test_a_file_that_changed_is_another_deposit(tmp_path, no_child):
    path = tmp_path / "model.csv"
    write_csv(path, cu=0.9)
    first = module.prepared(str(path)).values[0, 0, 0]
    write_csv(path, cu=1.2)
    assert module.prepared(str(path)).values[0, 0, 0] > first
    env = MineEnv(data=str(path))
    assert env.observation_space.shape == (17, 3, 3, 2)
    assert env.reset()[0][0].max() == np.float32(1.2)
