"""Batches that a loop over a DataLoader is not handed were looked at: the largest of each kind are handed out."""

from __future__ import annotations

import gc
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch")
from torch.nn.utils.rnn import pad_sequence  # noqa: E402
from torch.utils.data import DataLoader, Dataset, IterableDataset, TensorDataset, dataloader  # noqa: E402

from legroom.hollow import epochs  # noqa: E402
from legroom.hollow.batch_shapes import BatchKinds, ListsUnderWay  # noqa: E402

COUNT = 400


class Follower:
    """A process that is followed, without a card."""

    def __init__(self) -> None:
        self.following, self.optimizer_steps, self.cards, self.journal = True, 0, (), self
        self.told: list[dict[str, Any]] = []

    def json(self, kind: str, **content: Any) -> None:
        self.told.append({"kind": kind, **content})

    def give_back(self) -> None:
        """Nothing is held."""

    @property
    def looked(self) -> dict[str, Any]:
        (told,) = [each for each in self.told if each["kind"] == "batches"]
        return told


class Texts(Dataset):
    """Texts of 5 tokens; item 301 has 90, and items 100 to 107 have 7."""

    def __init__(self, seconds: float = 0.0) -> None:
        self.fetched: list[int] = []
        self._seconds = seconds

    def __len__(self) -> int:
        return COUNT

    def __getitem__(self, item: int) -> Any:
        self.fetched.append(item)
        if self._seconds:
            import time

            time.sleep(self._seconds)
        random.random(), np.random.rand(), torch.rand(1)  # as augmentations do
        return torch.zeros(90 if item == 301 else 7 if 100 <= item < 108 else 5, dtype=torch.long)


def padded(items: Any) -> Any:
    return {"ids": pad_sequence(items, batch_first=True)}


@pytest.fixture
def follower(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Follower]:
    yield from installed(tmp_path, monkeypatch, 20.0)


@pytest.fixture
def hurried(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Follower]:
    yield from installed(tmp_path, monkeypatch, 0.15)


def installed(folder: Path, monkeypatch: pytest.MonkeyPatch, seconds: float) -> Iterator[Follower]:
    base, several = dataloader._BaseDataLoaderIter, dataloader._MultiProcessingDataLoaderIter
    monkeypatch.setattr(base, "__next__", base.__next__)
    monkeypatch.setattr(several, "_next_index", several._next_index, raising=False)
    follower = Follower()
    epochs.install(follower, str(folder), seconds)
    follower.asking = Path(epochs.asking_file(str(folder), __import__("os").getpid()))  # type: ignore[attr-defined]
    yield follower


def trained(loader: Any, follower: Any, asked_at: int = 3) -> list[tuple[int, ...]]:
    """Return the shapes that a loop over the loader is handed, asked after so many of them."""
    shapes = []
    for batch in loader:
        shapes.append(tuple((batch["ids"] if isinstance(batch, dict) else batch[0]).shape))
        follower.optimizer_steps += 1
        if len(shapes) == asked_at:
            follower.asking.touch()
    return shapes


@pytest.mark.parametrize("workers", [0, 2])
def test_a_long_item_in_the_middle_is_handed_out(follower: Follower, workers: int) -> None:
    loader = DataLoader(Texts(), batch_size=4, collate_fn=padded, num_workers=workers)
    shapes = trained(loader, follower)
    assert (4, 90) in shapes[3:] and len(shapes) < 15
    assert (follower.looked["seen"], follower.looked["total"]) == (100, 100)
    assert not follower.looked["alike"]
    assert any("skipped" in each.get("text", "") for each in follower.told)


def test_workers_that_stay_are_used_again(follower: Follower) -> None:
    loader = DataLoader(Texts(), batch_size=4, collate_fn=padded, num_workers=1, persistent_workers=True)
    assert (4, 90) in trained(loader, follower)
    assert len(trained(loader, follower, asked_at=-1)) == 100  # the second epoch is run in full


def test_the_longest_and_the_most_items_may_be_two_batches(follower: Follower) -> None:
    buckets = [[301], *([item, item + 1] for item in range(100)), list(range(100, 108)), list(range(60))]
    shapes = trained(DataLoader(Texts(), batch_sampler=[[0]] * 5 + buckets + [[1]] * 3, collate_fn=padded), follower)
    assert {(1, 90), (60, 5)} <= set(shapes) and len(shapes) < 12


def test_a_loop_that_counts_its_batches_gets_the_largest_first_and_all_others(follower: Follower) -> None:
    batches, shapes = iter(DataLoader(Texts(), batch_size=4, collate_fn=padded)), []
    for number in range(100):
        shapes.append(tuple(next(batches)["ids"].shape))
        follower.optimizer_steps += 1
        if number == 2:
            follower.asking.touch()  # type: ignore[attr-defined]
    assert shapes[3] == (4, 90) and not follower.looked["ends"]


def test_random_numbers_are_as_they_were(follower: Follower) -> None:
    for seed in (random.seed, np.random.seed, torch.manual_seed):
        seed(3)
    for number, _ in enumerate(DataLoader(Texts(), batch_size=4, collate_fn=padded, shuffle=True)):
        follower.optimizer_steps += 1
        if number == 3:
            follower.asking.touch()  # type: ignore[attr-defined]
        elif number == 4:  # the look was before this batch
            break
    drawn = random.random(), np.random.rand(), float(torch.rand(1))
    for seed in (random.seed, np.random.seed, torch.manual_seed):
        seed(3)
    torch.empty((), dtype=torch.int64).random_(), torch.empty((), dtype=torch.int64).random_()  # by the loader
    for _ in range(5 * 4):
        Texts()[0]
    assert drawn == (random.random(), np.random.rand(), float(torch.rand(1)))
    assert follower.looked["seen"] == 100


def test_where_there_is_no_time_some_are_looked_at_and_it_is_said_how_many(hurried: Follower) -> None:
    data = Texts(seconds=0.01)
    trained(DataLoader(data, batch_size=4, collate_fn=padded), hurried)
    assert 3 < hurried.looked["seen"] < 20 and hurried.looked["total"] == 100


def test_rows_of_a_tensor_need_not_be_fetched(hurried: Follower) -> None:
    data = TensorDataset(torch.zeros(200_001, 1))
    shapes = trained(DataLoader(data, batch_size=2), hurried)
    assert set(shapes) == {(2, 1), (1, 1)} and len(shapes) < 8
    assert hurried.looked["seen"] == hurried.looked["total"] == 100_001


def test_a_stream_is_left_alone_and_told_of(follower: Follower) -> None:
    class Stream(IterableDataset):
        def __iter__(self) -> Iterator[Any]:
            return (torch.zeros(1 + number % 2) for number in range(50))

    shapes = trained(DataLoader(Stream(), batch_size=None, collate_fn=lambda item: [item]), follower)
    assert len(shapes) == 50
    assert follower.looked["total"] is None and not follower.looked["alike"]


def test_a_validation_goes_the_same_way(follower: Follower) -> None:
    trained(DataLoader(TensorDataset(torch.zeros(40, 1))), follower)
    handed = [tuple(batch["ids"].shape) for batch in DataLoader(Texts(), batch_size=4, collate_fn=padded)]
    assert (4, 90) in handed and len(handed) < 20


def test_an_item_that_fails_is_the_programs_own_failure(follower: Follower) -> None:
    class Broken(Texts):
        def __getitem__(self, item: int) -> Any:
            if item == 250:
                raise ValueError("damaged")
            return super().__getitem__(item)

    with pytest.raises(ValueError, match="damaged"):
        trained(DataLoader(Broken(), batch_size=4, collate_fn=padded), follower)


def largest(*batches: Any) -> set[int]:
    kinds = BatchKinds()
    for number, batch in enumerate(batches):
        kinds.add(batch, number)
    return set(kinds.largest())


def test_kinds_and_their_largest() -> None:
    ids, mask = torch.zeros(2, 3), torch.zeros(2, 3, 3)
    assert largest((ids, 1), (mask, 1), (ids, 1)) == {0, 1}  # two ranks are two kinds
    assert largest(["a" * 8, "b"], ["c" * 20], ["d", "e", "f"]) == {1, 2}  # the longest text, the most texts
    assert largest({"x": ids, "lengths": torch.tensor([3, 9])}, {"x": ids, "lengths": torch.tensor([5, 5])}) == {0}
    crops = [[torch.zeros(3, n, n) for n in sizes] for sizes in ((9, 1), (5, 5, 5, 5), (1, 1))]
    assert largest(*crops) == {0, 1}
    # bytes, length, and bytes times length are largest in three batches
    assert largest(torch.zeros(100, 50), torch.zeros(64, 70), torch.zeros(2, 200), torch.zeros(2, 3)) == {0, 1, 2}


def test_loaders_side_by_side_and_a_second_training_are_looked_at_too(follower: Any) -> None:
    small = DataLoader(TensorDataset(torch.zeros(400, 1)), batch_size=4)
    shapes = []
    for number, (_, batch) in enumerate(zip(small, DataLoader(Texts(), batch_size=4, collate_fn=padded), strict=False)):
        follower.optimizer_steps += 1
        shapes.append(tuple(batch["ids"].shape))
        if number == 2:
            follower.asking.touch()
    assert len([each for each in follower.told if each["kind"] == "batches"]) == 2
    assert (4, 90) in shapes
    follower.told.clear()
    assert (4, 90) in trained(DataLoader(Texts(), batch_size=4, collate_fn=padded), follower)


@pytest.mark.parametrize("shape", ["list", "dict", "enumerated", "generator"])
def test_of_a_list_it_is_told_whether_the_largest_has_come(follower: Follower, shape: str) -> None:
    items = [torch.zeros(90 if place == 40 else 5) for place in range(60)]
    ways = {
        "list": lambda: items,
        "dict": lambda: dict(enumerate(items)).values(),
        "enumerated": lambda: (item for _, item in enumerate(items)),
        "generator": lambda: (item for item in items),
    }
    lists = ListsUnderWay(follower)
    for number, _ in enumerate(ways[shape]()):
        if number in (10, 45):
            lists.look(gc.get_objects())
    told = [each for each in follower.told if each["kind"] == "batches" and each["total"] == 60]
    assert [each["seen"] for each in told] == [11, 60] and not told[0]["alike"]


def test_of_a_list_whose_items_are_alike_nothing_is_told(follower: Follower) -> None:
    lists, names = ListsUnderWay(follower), [f"{number}.png" * (number % 5) for number in range(60)]
    for number, _ in enumerate(zip([torch.zeros(5) for _ in range(60)], names, strict=True)):
        if number == 10:
            lists.look(gc.get_objects())
    assert not [each for each in follower.told if each["kind"] == "batches" and each["total"] == 60]
