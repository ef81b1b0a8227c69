"""The page and the terminal text of a rehearsed program."""

from __future__ import annotations

import re

from legroom.backends.program.program_bill import predicted
from legroom.model.footprint import Assumed, Footprint, Item, Place
from legroom.model.plan import Prediction
from legroom.model.rehearsal import (
    CardSeen,
    Filling,
    HostSeen,
    Leak,
    OutOfMemory,
    ProgramPrediction,
    Rehearsal,
    SourceLine,
)
from legroom.model.verdict import Budget
from legroom.reading import read
from legroom.rendering.layout import draw
from legroom.rendering.page import whole_page
from legroom.rendering.prediction_text import comparison_document
from legroom.rendering.program_text import program_document
from legroom.units import GIB, MIB

LINES = (
    SourceLine("/x/net.py", 8, 300 * MIB, "forward", "Net.fc", "activations"),
    SourceLine("/x/train.py", 12, 100 * MIB, "main", "", "gradients"),
    SourceLine("/x/train.py", 5, 100 * MIB, "main", "", "weights"),
)
CARD = CardSeen(
    device=0, processes=1, peak_allocated=500 * MIB, peak_reserved=512 * MIB, lines=LINES, at=LINES[1],
    roles=(("weights", 100 * MIB), ("gradients", 100 * MIB), ("activations", 300 * MIB)), phase="backward", interval=1,
)  # fmt: skip


def rehearsed(**changes: object) -> Rehearsal:
    given: dict[str, object] = dict(
        command=("python", "train.py"), exit_code=None, stopped="repeats", updates=9, repeats=3, seconds=12.3,
        host=HostSeen(GIB, GIB, 0, 1), card=CARD, had_card=True, torch="2.6.0", cuda_build=True,
        points=((0.0, 100 * MIB, 200 * MIB), (1.0, 500 * MIB, 512 * MIB), (2.0, 100 * MIB, 512 * MIB)),
        step_times=(1.0, 2.0),
    )  # fmt: skip
    return Rehearsal(**(given | changes))  # type: ignore[arg-type]


def shown(prediction: ProgramPrediction) -> str:
    return draw(program_document(prediction), width=100, colour=False)


def test_the_verdict_is_first_and_the_bill_adds_up() -> None:
    prediction = predicted(rehearsed(), Budget(16 * GIB, 8 * GIB, 0.0, "given", "given"))
    text = shown(prediction)
    assert text.startswith(
        "Fits so far: needs up to 1.0 GiB of RAM, 16.0 GiB given; up to 988.9 MiB of GPU memory, 8.0 GiB\n"
    )
    assert "train.py: 9 optimizer steps in 12 s, 3 repeats, stopped because nothing new happened" in text
    assert "at /x/train.py:12, backward of step 2" in text
    assert re.search(r"/x/net.py:8 +300.0 MiB +60%", text)
    assert "not seen: what comes later" in text
    assert prediction.footprint.gpu is not None
    assert prediction.footprint.gpu.nbytes == 512 * MIB + 400_000_000


def test_what_does_not_fit_says_where_and_what_to_try() -> None:
    oom = OutOfMemory(
        "/x/train.py", 12, "CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has", 2 * GIB, GIB, False
    )
    seen = rehearsed(
        stopped="out-of-memory", out_of_memory=(oom,), command=("python", "train.py", "--batch-size", "512")
    )
    prediction = predicted(seen, Budget(16 * GIB, 2 * GIB))
    assert (prediction.fits, prediction.exit_code) == (False, 1)
    text = shown(prediction)
    assert text.startswith("Does not fit: out of GPU memory at /x/train.py:12: CUDA out of memory. Tried to allocate")
    assert "legroom predict --vram 2GiB -- python train.py --batch-size 256" in " ".join(text.split())


def test_a_buffer_is_forecast_with_its_line() -> None:
    filling = Filling(28 * GIB, GIB, 27 * GIB / (3.4 * 3600), 0.0, "/x/buffers.py", 212)
    prediction = predicted(rehearsed(host=HostSeen(2 * GIB, 2 * GIB, 0, 1, (filling,))), Budget(16 * GIB, 8 * GIB))
    assert prediction.fits is False
    text = " ".join(shown(prediction).split())
    assert "2.0 GiB now; 30.0 GiB once the arrays made at buffers.py:212 are full, in about 3 h 24 min" in text
    assert "buffers.py:212 28.0 GiB 1.0 GiB written so far; full in about 3 h 24 min [measured]" in text
    idle = Filling(28 * GIB, GIB, 0.0)
    seen = rehearsed(host=HostSeen(2 * GIB, 2 * GIB, 0, 1, (idle,)))
    assert predicted(seen, Budget(16 * GIB, 8 * GIB)).fits is None  # nobody knows whether it is ever written
    assert predicted(seen, Budget(64 * GIB, 8 * GIB)).fits is True


def test_leaks_and_assumptions_are_shown() -> None:
    seen = rehearsed(
        stopped="seconds",
        leaks=(Leak("/x/train.py", 20, 3 * MIB, 40, ("/x/train.py", 12)),),
        assumed=(Assumed("/x/train.py", 30, "a value is 0", 7),),
    )
    prediction = predicted(seen, Budget(16 * GIB, 8 * GIB))
    text = " ".join(shown(prediction).split())
    assert (prediction.fits, prediction.exit_code) == (None, 1)
    assert "leak: train.py:20 keeps 3.0 MiB of GPU memory from each of 40 steps (made in train.py:12)" in text
    assert "assumed: /x/train.py:30: a value is 0, 7 times" in text


def test_an_old_torch_leaves_it_unknown() -> None:
    prediction = predicted(rehearsed(torch="2.2.1+cpu"), Budget(16 * GIB, 8 * GIB))
    assert prediction.fits is None
    assert "torch 2.2.1+cpu is too old to be rehearsed; 2.3 or newer is needed" in " ".join(shown(prediction).split())
    assert predicted(rehearsed(torch="2.10.0"), Budget(16 * GIB, 8 * GIB)).fits is True


def test_the_page_has_a_timeline_with_steps_and_no_script() -> None:
    page = whole_page(program_document(predicted(rehearsed(), Budget(16 * GIB, 8 * GIB)), everything=True))
    assert "<script" not in page and "http://" not in page.replace("http://www.w3.org", "")
    assert "optimizer step 2" in page


def test_a_large_bill_leaves_a_screen_and_all_of_it_is_asked_for() -> None:
    roles = ("weights", "gradients", "optimizer", "activations", "batch", "temporaries")
    lines = tuple(
        SourceLine("/x/net.py", at, (200 >> at // 3) * MIB + 9, "forward", f"Net.layer{at}", roles[at % 6])
        for at in range(40)
    )
    whole = sum(line.nbytes for line in lines)
    card = CardSeen(0, 1, whole, whole + 2 * MIB, tuple((role, whole // 6) for role in roles), lines, lines[0], "", 0)
    assumed = tuple(Assumed("/x/train.py", at, "a value is 0", 7) for at in range(20))
    filling = tuple(Filling(MIB << at, 0, 1.0, 0.0, "/x/buffers.py", at) for at in range(12))
    seen = rehearsed(card=card, assumed=assumed, host=HostSeen(GIB, GIB, 0, 1, filling))
    prediction = predicted(seen, Budget(16 * GIB, 8 * GIB))
    text = shown(prediction)
    assert len(text.splitlines()) <= 40
    assert "others" in text and "--all lists them" in text and not re.search(r" 0%( |$)", text, re.M)
    everything = draw(program_document(prediction, everything=True), width=100, colour=False)
    assert all(f"net.py:{line.line} " in everything for line in lines) and everything.count("assumed: ") == 20


def test_a_program_that_failed_before_its_first_step_gets_no_bill() -> None:
    seen = rehearsed(stopped="failed", exit_code=1, updates=0, card=None, points=(), failure="No module named 'x'")
    text = shown(predicted(seen, Budget(16 * GIB, 8 * GIB)))
    assert "No module named 'x'" in text and "host peak" not in text and "on the host at the peak" not in text
    assert "the program failed (exit code 1)" in text


def test_what_is_alike_is_one_row_and_what_is_noted_of_several_runs_is_one_note() -> None:
    worker = Filling(GIB, 0, 0.0, 0.0, "/x/buffers.py", 9)
    prediction = predicted(rehearsed(host=HostSeen(GIB, GIB, 0, 1, (worker,) * 5)), Budget(16 * GIB, 8 * GIB))
    text = shown(prediction)
    assert len(re.findall(r"^\S*buffers.py:9 ", text, re.M)) == 1 and "5.0 GiB" in text
    runs = [
        Footprint(name, (Item("runtime.base", GIB, Place.HOST, ""),), "cpu", notes=("as XLA says",)) for name in "ab"
    ]
    predictions = [Prediction(read("mine:small"), one, one, Budget(16 * GIB), True) for one in runs]
    assert draw(comparison_document(predictions), width=100, colour=False).count("as XLA says") == 1
