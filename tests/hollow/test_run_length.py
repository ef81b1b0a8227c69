"""How many optimizer steps a program will make, by the loops that it is in."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterator
from typing import Any

import pytest

torch = pytest.importorskip("torch")
from torch.utils.data import DataLoader, TensorDataset  # noqa: E402

from legroom.hollow.run_length import RunLength  # noqa: E402

EPOCHS = 3


class Followed:
    def __init__(self) -> None:
        self.left_out, self.batches = False, 0


@pytest.fixture
def step(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[], float | None]]:
    """Make one optimizer step; return how many there will be. The frames of pytest are no loops of the program."""
    from legroom.hollow import source_lines

    plain = source_lines.kind_of
    monkeypatch.setattr(source_lines, "kind_of", lambda file: plain(file) if file == __file__ else source_lines.SKIP)
    follower = Followed()
    looking, count = RunLength(follower), 0

    def stepped() -> float | None:
        nonlocal count
        count += 1
        return looking.look(count)

    stepped.follower = follower  # type: ignore[attr-defined]
    yield stepped


def test_ranges_of_arguments_attributes_and_arithmetic(step: Any) -> None:
    args = argparse.Namespace(total=1_000, batch=10)
    for number in range(2, args.total // args.batch + 2):
        found = step()
        if number == 20:
            break
    assert found == pytest.approx(100, rel=0.02)


def test_loops_inside_loops_and_several_steps_in_each(step: Any) -> None:
    def train(epochs: int) -> float | None:
        for _ in range(epochs):
            for at, row in enumerate([1, 2, 3, 4, 5, 6, 7, 8]):
                step()
                found = step()  # as a GAN does
                if at == 6 and row:
                    return found  # type: ignore[no-any-return]
        return None

    assert train(EPOCHS) == pytest.approx(2 * 3 * 8, abs=6)


def test_a_variable_that_an_inner_loop_overwrites_counts_nothing(step: Any) -> None:
    found = None
    for _ in range(100):
        for _ in {"a": 1}:
            found = step()
        if found is not None:
            break
    assert found is None


def test_while_loops_that_count(step: Any) -> None:
    done, found = 0, None
    while done < 4_000:
        done += 4
        found = step()
        if done == 400:
            break
    assert found == pytest.approx(1_000, rel=0.02)
    other = 0
    while True:
        other += 1
        found = step()
        if other >= 500:
            break
        if other > 40:
            break
    assert found == pytest.approx(600, rel=0.02)


def test_a_loop_over_a_loader_counts_its_batches(step: Any) -> None:
    loader = DataLoader(TensorDataset(torch.zeros(64, 1)), batch_size=4)
    for epoch in range(10):
        for number, _ in enumerate(loader):
            found = step()
            if number == 8:
                break
        if epoch == 0:
            break
    assert found == pytest.approx(160, rel=0.02)
    for _ in loader:
        step.follower.batches += 1
        found = step()
        if step.follower.batches == 8:
            break
    assert found == pytest.approx(9 + 16, abs=1)


def test_once_batches_are_left_out_the_length_stays(step: Any) -> None:
    for number in range(1_000):
        step.follower.left_out = number > 10
        found = step()
        if number == 10:
            expected = found
        if number == 500:
            break
    assert found == expected == pytest.approx(1_000, rel=0.02)


@pytest.mark.parametrize("loop", ["while True", "for _ in iter(int, 1)", "for _ in forever()"])
def test_loops_without_an_end_are_not_known(step: Any, loop: str, tmp_path: Any, monkeypatch: Any) -> None:
    from legroom.hollow import source_lines

    monkeypatch.setattr(
        source_lines, "kind_of", lambda file: source_lines.USER if file.startswith(str(tmp_path)) else source_lines.SKIP
    )
    script = tmp_path / "program.py"
    script.write_text(
        "def forever():\n    while True: yield 1\n"
        f"{loop}:\n    for _ in range(50):\n        found.append(step())\n    if over(): break\n"
    )
    found: list[Any] = []
    exec(
        compile(script.read_text(), str(script), "exec"),
        {"found": found, "step": step, "over": lambda: len(found) > 99},
    )
    assert found == [None] * 100


def test_a_comprehension_hides_the_length(step: Any) -> None:
    assert [step() for _ in range(3)] == [None] * 3


def test_no_local_variable_is_kept_alive(step: Any) -> None:
    import weakref

    class Held:
        pass

    def inside() -> Any:
        held = Held()
        seen = weakref.ref(held)
        for _ in range(3):
            step()
        del held
        return seen()

    assert inside() is None
