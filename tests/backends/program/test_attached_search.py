"""Which savings are recommended for a program: the cheapest that fit, of the memory that is short, each one tried."""

from __future__ import annotations

from dataclasses import replace

from legroom.backends.program.attached_search import find_savings, price_of
from legroom.model.footprint import Footprint, Item, Place
from legroom.model.program_plan import Attached, AttachedNote, ProgramPlan, Savings
from legroom.model.rehearsal import HostSeen, ProgramPrediction, Rehearsal
from legroom.model.verdict import Budget, fits
from legroom.rendering.attached_text import attached_plan_document
from legroom.rendering.layout import draw

HOST = HostSeen(peak=0, last=0, workers=0, processes=1)
BUDGET = Budget(ram=1000, vram=1000)


class Program:
    """Takes what its parts take; savings lower it."""

    def __init__(self, host: int, gpu: int, saves: dict[str, tuple[int, int]]) -> None:
        self.host, self.gpu, self.saves = host, gpu, saves
        self.tried: list[dict[str, int | None]] = []

    def __call__(self, savings: Savings) -> Attached:
        self.tried.append(dict(savings))
        mine = [self.saves[name] for name in savings if name in self.saves]
        host, gpu = self.host - sum(each[0] for each in mine), self.gpu - sum(each[1] for each in mine)
        if "micro_batch" in savings and "micro_batch" in self.saves:
            gpu += savings["micro_batch"] or 0  # smaller pieces save more
        items = (Item("host.program", host, Place.HOST, ""), Item("gpu.batch", gpu, Place.GPU, ""))
        footprint = Footprint("train.py", items, "cuda")
        rehearsal = Rehearsal(("python",), 0, "finished", updates=1, repeats=0, seconds=1.0, host=HOST)
        notes = tuple(AttachedNote(name, name in self.saves, "") for name in savings)
        prediction = ProgramPrediction(rehearsal, footprint, BUDGET, fits(footprint, BUDGET))
        return Attached(savings, price_of(savings), prediction, notes, frozenset({"workers", "redo", "allocator"}))


def test_a_program_that_fits_is_left_as_it_is() -> None:
    program = Program(500, 500, {})
    plan = find_savings(program)
    assert plan.best is plan.plain and program.tried == [{}]


def test_free_savings_come_first_and_are_not_asked_for() -> None:
    plan = find_savings(Program(1200, 500, {"workers": (400, 0)}))
    assert plan.best is not None and plan.best.price == "free"
    assert plan.best.effective == ("workers",) and plan.best.to_ask_for == ()


def test_only_what_saves_the_memory_that_is_short_is_tried() -> None:
    program = Program(500, 1500, {"lean": (400, 0), "micro_batch": (0, 800)})
    plan = find_savings(program)
    assert plan.best is not None and plan.best.to_ask_for == ("micro_batch=256",)
    assert not any("lean" in tried for tried in program.tried)


def test_both_are_tried_where_both_are_short() -> None:
    plan = find_savings(Program(1300, 1100, {"lean": (400, 0), "micro_batch": (0, 900)}))
    assert plan.best is not None and plan.best.to_ask_for == ("lean", "micro_batch=256")
    assert plan.best.price == "slower"


def test_a_buffer_that_is_refused_before_a_gpu_is_used_is_short_of_host_memory() -> None:
    # such as a DQN's replay, made before its networks: its footprint is of nothing that would not fit
    tried: list[dict[str, int | None]] = []

    def program(savings: Savings) -> Attached:
        tried.append(dict(savings))
        rehearsal = Rehearsal(("python",), 1, "out-of-memory", updates=0, repeats=0, seconds=1.0, host=HOST)
        rehearsal = replace(rehearsal, had_card=True)
        footprint = Footprint("train.py", (Item("host.program", 100, Place.HOST, ""),), "cpu")
        return Attached(savings, price_of(savings), ProgramPrediction(rehearsal, footprint, BUDGET, False))

    find_savings(program)
    assert any("lean" in savings for savings in tried) and not any("micro_batch" in savings for savings in tried)


def test_what_does_not_help_is_not_recommended() -> None:
    program = Program(500, 5000, {})
    plan = find_savings(program)
    assert plan.best is None and plan.fits is False
    assert len(program.tried) == 3  # as it is, the free ones, micro-batches of one size: there is nothing to attach to
    told = draw(attached_plan_document(plan, ["python", "train.py"]), width=100, colour=False)
    assert told.count("nothing to attach to") == 1  # one row for what had the same effect


def test_a_program_that_fails_is_not_said_to_be_too_large() -> None:
    rehearsal = Rehearsal(("python",), 1, "failed", updates=0, repeats=0, seconds=1.0, host=HOST, failure="no game")
    footprint = Footprint("train.py", (Item("host.program", 2000, Place.HOST, ""),), "cpu")
    plain = Attached({}, "free", ProgramPrediction(rehearsal, footprint, BUDGET, fits(footprint, BUDGET)))
    told = draw(attached_plan_document(ProgramPlan((plain,)), ["python", "train.py"]), width=100, colour=False)
    assert told.startswith("The program failed when it was rehearsed: no game.\n")
    assert "its own output: legroom predict -- python train.py" in told and "--param" not in told


def test_a_plan_ends_with_the_command_and_the_line_that_attach_it() -> None:
    plan = find_savings(Program(1300, 500, {"lean": (400, 0)}))
    told = draw(attached_plan_document(plan, ["python", "train.py"]), width=100, colour=False)
    assert "run it with: legroom train --with lean -- python train.py\n" in told
    assert 'or put this at the top of your program: import legroom; legroom.attach("lean")' in told
