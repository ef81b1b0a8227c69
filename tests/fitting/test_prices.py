"""If these fail, two commands name different prices for the same setting."""

from __future__ import annotations

from pathlib import Path

import pytest

from legroom.backends.base import all_knobs, backends, knob_named
from legroom.explaining import explain_file
from legroom.model.evidence import Evidence
from legroom.model.machine import Machine
from legroom.model.plan import PRICES
from legroom.reading import read
from legroom.serving.controls import control_by_key

TEXTS = Path(__file__).parents[1] / "explaining/texts"
UNPROBED = Evidence(Machine(ram=1, limit=None, available=1, swap=0, shm=0), "cpu", base=None)


@pytest.mark.parametrize("name", ["mine:full", "fire:original", "robot:default"])
def test_the_page_and_a_plan_name_the_same_price(name: str) -> None:
    run = read(name)
    controls = {key: each for key, each in control_by_key(run).items() if each["label"] != "n-step returns"}
    for knob in all_knobs():
        for key in {knob.key, *knob.also} & set(controls):
            assert controls[key]["price"] == knob.price_for(run, UNPROBED)


def test_an_explanation_names_the_prices_of_the_knobs() -> None:
    told = {one.knob.partition("=")[0]: one.price for path in TEXTS.iterdir() for one in explain_file(path).advice}
    knobs = {key: knob for key in told if (knob := knob_named(key)) is not None}
    assert {"memory.rollout", "memory.replay", "memory.micro_batch", "memory.xla_preallocate"} <= set(knobs)
    assert {key: told[key] for key in knobs} == {key: knob.unprobed_price for key, knob in knobs.items()}
    assert told["memory.rollout"] == "slower"  # nothing was measured


def test_the_table_has_every_knob_once_and_the_cheapest_first() -> None:
    said = [(knob.key, knob.say) for knob in all_knobs()]
    assert len(said) == len(set(said))
    assert set(said) == {(knob.key, knob.say) for backend in backends() for knob in backend.fitter.knobs}
    prices = [PRICES.index(knob.price) for knob in all_knobs()]
    assert prices == sorted(prices)
