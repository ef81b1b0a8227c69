"""What journals say, added up by hand: peaks, roles, lines, repeats, leaks."""

from pathlib import Path

import pytest
from journal_writer import MIB, JournalWriter

from legroom.backends.program.allocation_ledger import ProcessBook, card_seen
from legroom.backends.program.journals import Alloc, DamagedJournal, Free, Journals, Site
from legroom.backends.program.leaks import find_leaks, storing_line
from legroom.backends.program.rehearsing import ProgramSeen, RehearsalPlan
from legroom.backends.program.steady_state import RepeatFinder


def read(folder: Path) -> ProgramSeen:
    seen = ProgramSeen(RehearsalPlan(card=None))
    for pid, record in Journals(folder).new_records():
        seen.take(pid, record)
    return seen


def book_of(folder: Path) -> ProcessBook:
    (book,) = read(folder).books
    return book


def test_records_come_out_as_they_went_in(tmp_path: Path) -> None:
    writer = JournalWriter(tmp_path, pid=7)
    site = writer.site("a.py", 3, "f", module="Net.fc")
    block = writer.alloc(512, site, phase=1, flags=1, reserved=2 * MIB)
    writer.free(block)
    journals = Journals(tmp_path)
    assert list(journals.new_records()) == [
        ("journal-7.9", Site(1, (("a.py", 3, "f"),), "Net.fc")),
        ("journal-7.9", Alloc(1, 512, 512, 512, 2 * MIB, 1, 0, 1, True)),
        ("journal-7.9", Free(1, 0, 2 * MIB, 0)),
    ]
    assert list(journals.new_records()) == []
    writer.alloc(1024, site)
    assert [record.rounded for _, record in journals.new_records()] == [1024]


def test_a_kill_in_mid_record_loses_only_that_record(tmp_path: Path) -> None:
    writer = JournalWriter(tmp_path, pid=7)
    writer.alloc(512, writer.site("a.py", 1))
    writer.half_a_record()
    assert book_of(tmp_path).total_allocated == 512


def test_a_file_that_is_no_journal_is_refused(tmp_path: Path) -> None:
    (tmp_path / "journal-1").write_bytes(b"x" * 100)
    with pytest.raises(DamagedJournal):
        list(Journals(tmp_path).new_records())


def training(writer: JournalWriter, steps: int, *, kept: int = 0, each_s: float = 1.0) -> None:
    """Write a training: 100 weights, and per step 300 activations, 50 temporaries, 100 gradients, 200 of Adam's."""
    to_card, forward = writer.site("train.py", 5), writer.site("net.py", 8, "forward", module="Net.fc")
    batch, back, step = writer.site("train.py", 10), writer.site("train.py", 12), writer.site("train.py", 13)
    hold = writer.site("train.py", 11)
    weights = writer.alloc(100 * MIB, to_card)
    state = None
    for number in range(steps):
        inputs = writer.alloc(30 * MIB, batch)
        activations = writer.alloc(300 * MIB, forward)
        if kept:
            writer.alloc(kept, hold)
        temporary = writer.alloc(50 * MIB, back, phase=1)
        gradients = writer.alloc(100 * MIB, back, phase=1)
        writer.free(activations)
        writer.free(temporary)
        if state is None:
            state = writer.alloc(200 * MIB, step, phase=2)
        if number < 3:
            writer.json("roles", t=number * each_s, parameters=[weights], gradients=[gradients], optimizer=[state])
        writer.step(t=(number + 0.5) * each_s)
        writer.free(gradients)
        writer.free(inputs)


def test_peak_roles_and_lines_are_those_counted_by_hand(tmp_path: Path) -> None:
    training(JournalWriter(tmp_path), 6)
    card = card_seen([book_of(tmp_path)])
    assert card is not None
    # from the second step on: 100 weights + 200 optimizer + 30 batch + 300 activations + 50 temporary + 100 gradients
    assert (card.peak_allocated, card.peak_reserved) == (780 * MIB, 780 * MIB)
    assert dict(card.roles) == {
        "weights": 100 * MIB, "gradients": 100 * MIB, "optimizer": 200 * MIB, "activations": 300 * MIB,
        "batch": 30 * MIB, "temporaries": 50 * MIB,
    }  # fmt: skip
    assert card.at is not None
    assert (card.at.file, card.at.line, card.phase, card.interval) == ("train.py", 12, "backward", 1)
    assert {(line.file, line.line, line.role): line.nbytes // MIB for line in card.lines} == {
        ("net.py", 8, "activations"): 300, ("train.py", 13, "optimizer"): 200, ("train.py", 12, "gradients"): 100,
        ("train.py", 12, "temporaries"): 50, ("train.py", 5, "weights"): 100, ("train.py", 10, "batch"): 30,
    }  # fmt: skip


@pytest.mark.parametrize(("seconds", "needed"), [(5.0, 3), (2.0, 8), (0.01, 12)])
def test_a_training_repeats_after_three_steps_without_news_or_more_where_they_are_quick(
    tmp_path: Path, seconds: float, needed: int
) -> None:
    # the second step has the peak, with Adam's state; those after it repeat
    training(JournalWriter(tmp_path), needed + 1, each_s=seconds)
    finder = RepeatFinder(book_of(tmp_path))
    finder.update()
    assert (finder.repeats, finder.is_repeating) == (needed - 1, False)
    training(JournalWriter(tmp_path), needed + 2, each_s=seconds)
    finder = RepeatFinder(book_of(tmp_path))
    finder.update()
    assert (finder.repeats, finder.is_repeating) == (needed, True)


def test_growth_is_no_repeat_but_a_leak(tmp_path: Path) -> None:
    training(JournalWriter(tmp_path), 12, kept=MIB)
    book = book_of(tmp_path)
    finder = RepeatFinder(book)
    finder.update()
    assert not finder.is_repeating
    (leak,) = find_leaks(book)
    assert (leak.file, leak.line, leak.nbytes, leak.steps) == ("train.py", 11, MIB, 10)
    training(JournalWriter(tmp_path), 12)
    assert not list(find_leaks(book_of(tmp_path)))


def test_minibatches_do_not_repeat_before_the_next_rollout_was_seen(tmp_path: Path) -> None:
    writer = JournalWriter(tmp_path)
    act, update = writer.site("ppo.py", 10), writer.site("ppo.py", 20)

    def rollout(t: float) -> None:
        for _ in range(5):
            writer.free(writer.alloc(MIB, act))
        writer.json("note", t=t + 4, text="")

    def minibatches(t: float) -> None:
        for number in range(15):
            writer.free(writer.alloc(2 * MIB, update))
            writer.step(t=t + 4 + 0.1 * number)

    rollout(0)
    minibatches(0)
    book = book_of(tmp_path)
    finder = RepeatFinder(book)
    finder.update()
    assert finder.repeats >= 12 and not finder.is_repeating  # 1.4 s of minibatches after 4 s of acting
    rollout(10)
    minibatches(10)
    finder = RepeatFinder(book_of(tmp_path))
    finder.update()
    assert finder.is_repeating


def test_a_list_that_is_cleared_every_epoch_is_no_leak(tmp_path: Path) -> None:
    writer = JournalWriter(tmp_path)
    site, kept = writer.site("a.py", 1), []
    for number in range(40):
        if number % 10 == 0:
            for block in kept:
                writer.free(block)
            kept = []
        kept.append(writer.alloc(512, site))
        writer.step(t=number)
    assert not list(find_leaks(book_of(tmp_path)))


def test_a_queue_of_fixed_length_is_no_leak(tmp_path: Path) -> None:
    writer = JournalWriter(tmp_path)
    site, kept = writer.site("a.py", 1), []
    for number in range(60):
        kept.append(writer.alloc(512, site))
        if len(kept) > 10:
            writer.free(kept.pop(0))
        writer.step(t=number)
    assert not list(find_leaks(book_of(tmp_path)))


@pytest.mark.parametrize(
    ("body", "made", "held"),
    [
        ("loss = f(x)\nloss.backward()\nlosses.append(loss)", 1, 3),
        ("loss = f(x)\nlosses.append(loss.item())", 1, None),
        ("loss = f(x)\ntotal = total + 1\ntotal_loss += loss", 1, 3),
        ("out = net(x)\nself.last = out", 1, 2),
        ("cache[step] = net(x)", 1, 1),
        ("log.append(net(x).mean())", 1, 1),
        ("loss = f(x)\nwriter.add_scalar('loss', loss.item(), 1)", 1, None),
        ("loss = f(x)\nhistory['loss'].append(loss.detach())", 1, 2),
    ],
)
def test_the_line_that_stores_a_tensor(tmp_path: Path, body: str, made: int, held: int | None) -> None:
    file = tmp_path / "train.py"
    file.write_text(body)
    assert storing_line(str(file), made) == held


def test_a_leak_names_the_line_that_keeps_the_loss_not_those_of_the_graph(tmp_path: Path) -> None:
    script = tmp_path / "train.py"
    script.write_text(
        "for x in data:\n    out = net(x)\n    loss = out.mean()\n    loss.backward()\n    kept.append(loss)\n"
    )
    journal = tmp_path / "journals"
    journal.mkdir()
    writer = JournalWriter(journal)
    inner, loss = writer.site(tmp_path / "net.py", 3, "forward", "Net"), writer.site(script, 3)
    for number in range(10):
        writer.alloc(10 * MIB, inner)
        writer.alloc(512, loss)
        writer.step(t=number)
    (leak,) = find_leaks(book_of(journal))
    assert (leak.file, leak.line, leak.made) == (str(script), 5, (str(script), 3))
    assert leak.nbytes == 10 * MIB + 512
