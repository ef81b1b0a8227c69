"""What people notice whose run does not fit: the plan holds, turns little, and tells the truth when nothing does."""

from __future__ import annotations

import itertools
import json
import random
from pathlib import Path

import pytest
from random_runs import random_budget, random_run

from legroom.backends.base import backend_of
from legroom.errors import BadInput, Unknown
from legroom.fitting.changes import with_changes, with_settings
from legroom.fitting.predictor import Predictor
from legroom.fitting.search import fit
from legroom.fitting.tiers import grown, tiers
from legroom.model.machine import Machine
from legroom.model.plan import PRICES, Plan
from legroom.model.run import Run
from legroom.model.verdict import Budget, fits
from legroom.named_runs import run_names
from legroom.predicting.constraints import broken_rules
from legroom.predicting.predict import predict
from legroom.reading import read, run_from_dict
from legroom.rendering.plan_text import plan_data
from legroom.rendering.run_file import plan_file, run_file
from legroom.units import GIB, MIB, format_size

MACHINE = Machine(ram=64 * GIB, limit=None, available=64 * GIB, swap=0, shm=32 * GIB, cores=8)
PAIRS = 200


def planned(run: Run, budget: Budget, **how: object) -> tuple[Plan, Predictor]:
    device = "cpu" if budget.vram is None else "cuda"
    predictor = Predictor(run, MACHINE, mode="arithmetic", device=device)
    return fit(predictor.run, budget, predictor, **how), predictor  # type: ignore[arg-type]


def predicted_again(run: Run, budget: Budget) -> bool:
    """Whether the run, predicted afresh by nobody who knows of the plan, fits with its whole band."""
    device = "cpu" if budget.vram is None else "cuda"
    return fits(predict(run, MACHINE, mode="arithmetic", device=device), budget) is True


def broken(run: Run) -> list[str]:
    must_hold = backend_of(run).fitter.must_hold
    return [each.name for each in broken_rules(run) if each.severity == "error" or each.name in must_hold]


@pytest.mark.parametrize("seed", range(PAIRS))
def test_a_random_run_fits_its_random_budget_or_truthfully_cannot(seed: int) -> None:
    rng = random.Random(seed)
    run, budget = random_run(rng), random_budget(rng)
    plan, predictor = planned(run, budget)
    if plan.fits:
        assert broken(plan.run) == []
        assert predicted_again(plan.run, budget)
    else:
        assert not any(fits(predictor.footprint(each), budget) for each in cheapest_settings(plan.asked, predictor))
        host, gpu = plan.needed["host"], plan.needed.get("gpu", 0)
        assert host > budget.usable(budget.ram or 0) or gpu > budget.usable(budget.vram or 0)


def cheapest_settings(run: Run, predictor: Predictor) -> list[Run]:
    """Every knob fully turned, one after the other, in several orders: nobody could turn more."""
    variants, knobs = [], backend_of(run).fitter.knobs
    for order in (knobs, tuple(reversed(knobs)), knobs[8:] + knobs[:8]):
        turned = run
        for knob in (*order, *order):
            rungs = [each for each in knob.ladder(turned, predictor.evidence(turned)) if not broken(each)]
            turned = rungs[-1] if rungs else turned
        variants.append(turned)
    return variants


@pytest.mark.parametrize("seed", range(40))
def test_no_turned_knob_could_stay_where_it_was(seed: int) -> None:
    rng = random.Random(1000 + seed)
    run, budget = random_run(rng), random_budget(rng)
    plan, predictor = planned(run, budget)
    if not plan.fits:
        return
    for turn in plan.turns:
        without = with_changes(plan.run, turn.changes, undo=True)
        assert broken(without) or not fits(predictor.footprint(without), budget), turn.name


def test_a_network_without_published_layers_is_not_fitted_by_arithmetic() -> None:
    own = read("fire:learn", overrides=[("policy.features_extractor", "bench.more_nets:Excited")])
    with pytest.raises(Unknown, match=r"the layers of .*Excited"):
        planned(own, Budget(3 * GIB, None))


@pytest.mark.parametrize("name", run_names())
def test_named_runs_are_fitted_in_order_of_price(name: str) -> None:
    plan, _predictor = planned(read(name), Budget(3 * GIB, None))
    assert plan.fits
    turns = [turn for turn in plan.turns if turn.name != "hyperparams.num_minibatches"]  # brax's own rule, mended first
    prices = [PRICES.index(turn.price) for turn in turns]
    assert prices == sorted(prices)
    # a dearer knob is only turned where all cheaper ones together do not do
    if prices and prices[-1] > 0:
        cheaper, _ = planned(read(name), Budget(3 * GIB, None), allow=PRICES[: prices[-1]])
        assert not cheaper.fits


def test_a_run_that_fits_stays_as_it_is() -> None:
    run = read("mine:ultra_light")
    plan, _ = planned(run, Budget(16 * GIB))
    assert (plan.turns, plan.run, plan.fits) == ((), run, True)


def test_the_limit_of_lean_storage_is_what_was_counted_and_what_the_budget_leaves(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another budget is another limit, so that a probe that was wrong spills no sooner than it has to; it is said."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))  # what other tests measured counts what it keeps otherwise
    for budget in (12 * GIB, 14 * GIB):
        plan, _ = planned(read("fire:low"), Budget(budget))
        stored = [item for item in plan.after.items if item.name == "replay.observations"]
        left = (budget - plan.after.host.high) >> 20 << 20
        assert plan.run.memory.replay == "lean" and left > 0
        assert plan.run.memory.max_bytes == sum(item.nbytes + item.error for item in stored) + left
        assert f"lean storage beyond {format_size(plan.run.memory.max_bytes)} would go to disk" in plan.notes


def test_a_fitted_limit_leaves_no_room_for_a_decoded_copy() -> None:
    """Without a probe the most that there can be is counted: that limit would let it be kept decoded too."""
    plan, _ = planned(read("mine:memory_optimized"), Budget(8 * GIB))
    assert plan.fits
    assert (plan.run.memory.rollout, plan.run.memory.max_bytes) == ("lean", None)
    assert "rollout.decoded copy" not in {item.name for item in plan.after.items}


def test_the_minibatch_of_a_fitted_run_divides_its_rollout() -> None:
    run = run_from_dict({
        "algo": "PPO", "env": {"id": "CartPole-v1", "n_envs": 3}, "hyperparams": {"n_steps": 100, "batch_size": 64},
    })  # fmt: skip
    plan, _ = planned(run, Budget(16 * GIB))
    assert plan.run.hyperparams["batch_size"] == 60  # of the divisors of 300 the nearest to 64
    assert [turn.price for turn in plan.turns] == ["changes-learning"]


def test_brax_recommendations_that_brax_refuses_are_mended() -> None:
    for envs, batch, minibatches in ((512, 128, 2), (1536, 384, 6), (1024, 128, 4)):
        run = read("robot:gpu_8gb")
        run = with_settings(run, env={"n_envs": envs})
        run = with_settings(run, hyperparams={"batch_size": batch, "num_minibatches": minibatches})
        plan, _ = planned(run, Budget(16 * GIB, 8 * GIB))
        hyper = plan.run.hyperparams
        assert plan.fits
        assert hyper["batch_size"] * hyper["num_minibatches"] % plan.run.env.n_envs == 0


def test_a_run_its_library_refuses_for_good_is_bad_input() -> None:
    run = run_from_dict({"algo": "DQN", "env": {"id": "Pendulum-v1"}})
    with pytest.raises(BadInput, match="discrete"):
        planned(run, Budget(16 * GIB))


def test_nothing_fits_says_what_would() -> None:
    plan, _ = planned(read("mine:full"), Budget(200 * MIB))
    assert not plan.fits
    again, _ = planned(read("mine:full"), Budget(plan.needed["host"]))
    assert again.fits


@pytest.mark.parametrize(("name", "ram"), [("gameboy:default", 32), ("mine:small", 8), ("fire:low", 24)])
def test_growing_uses_the_budget_and_never_more(name: str, ram: int) -> None:
    budget = Budget(ram * GIB)
    run = with_settings(read(name))
    plan, predictor = planned(run, budget)
    larger = grown(plan, predictor)
    assert predicted_again(larger.run, budget)
    assert broken(larger.run) == []
    assert larger.after.host.nbytes > plan.after.host.nbytes


def test_a_run_at_a_third_of_the_memory_grows_to_more_envs() -> None:
    plan, predictor = planned(read("gameboy:default"), Budget(32 * GIB))
    larger = grown(plan, predictor)
    assert plan.after.host.nbytes < 0.4 * 32 * GIB
    # 8192 steps of 270 KiB, twice: 4.2 GiB more per environment
    assert larger.run.env.n_envs == 7
    assert larger.after.host.nbytes > 0.85 * 32 * GIB


def test_every_tier_satisfies_the_constraints_and_larger_cards_need_no_smaller_pieces() -> None:
    for name in ("gameboy:default", "fire:original", "robot:gpu_8gb"):
        predictor = Predictor(read(name), MACHINE, mode="arithmetic", device="cuda")
        rows = list(tiers([8, 2, 4, 24, 80], Budget(64 * GIB), predictor))
        assert [row.vram for row in rows] == [n * GIB for n in (2, 4, 8, 24, 80)]
        for row in rows:
            assert row.plan.fits
            assert broken(row.plan.run) == []
        pieces = [row.micro_batch or row.batch for row in rows]
        assert all(a <= b for a, b in itertools.pairwise(pieces))


@pytest.mark.parametrize("name", run_names())
def test_a_fitted_run_file_reads_back_as_the_same_run(name: str, tmp_path: object) -> None:
    plan, _ = planned(read(name), Budget(2 * GIB))
    path = tmp_path / "fitted.yaml"  # type: ignore[operator]
    path.write_text(plan_file(plan, "legroom fit"))
    again = read(str(path))
    assert again.replace(name=plan.run.name, source=None) == plan.run.replace(source=None)
    path.write_text(run_file(plan.run))
    assert read(str(path)).replace(name=plan.run.name, source=None) == plan.run.replace(source=None)


def test_the_json_has_what_the_contract_names() -> None:
    plan, _ = planned(read("fire:original"), Budget(8 * GIB, 2 * GIB))
    data = json.loads(json.dumps(plan_data(plan)))
    assert data["fits"] is True
    assert data["budget"]["ram"] == 8 * GIB
    assert data["after"]["gpu"]["band"][1] <= 2 * GIB < data["before"]["gpu"]["band"][1]
    assert {"name", "from", "to", "price", "saved"} <= set(data["knobs"][0])
    assert run_from_dict(data["run"]).env.n_envs == 32


def test_a_minibatch_over_the_rollout_is_mended_for_nothing() -> None:
    """SB3 takes the whole rollout then: saying so changes no number."""
    run = with_settings(read("gameboy:default"), hyperparams={"n_steps": 64, "batch_size": 4096})
    plan, _ = planned(run, Budget(ram=64 * GIB))
    assert [turn.price for turn in plan.turns] == ["free"]
    assert plan.run.hyperparams["batch_size"] == 64 * run.env.n_envs
