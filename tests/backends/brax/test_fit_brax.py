"""brax runs: the most environments that memory and the data of an update allow; what is turned before the learning."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from legroom.backends.brax.facts import env_steps_per_training_step
from legroom.backends.brax.knobs import MOST_STEPS_PER_UPDATE, steps_cap
from legroom.fitting.changes import with_settings
from legroom.fitting.predictor import Predictor
from legroom.fitting.search import fit
from legroom.fitting.tiers import Tier, tiers
from legroom.model.machine import Machine
from legroom.model.plan import Plan
from legroom.model.run import Run
from legroom.model.verdict import Budget, fits
from legroom.predicting.constraints import broken_rules
from legroom.reading import read
from legroom.rendering.layout import draw
from legroom.rendering.tier_table import tiers_document, tiers_json
from legroom.units import GIB

MACHINE = Machine(ram=64 * GIB, limit=None, available=64 * GIB, swap=0, shm=32 * GIB, cores=8)
SIZES = (8, 12, 16, 24, 48, 80)


@pytest.fixture(autouse=True)
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))  # nothing that was compiled on this machine


def predictor_of(run: Run, device: Any = "cuda") -> Predictor:
    return Predictor(run, MACHINE, mode="arithmetic", device=device)


def rows(run: Run, **how: Any) -> list[Tier]:
    return list(tiers(SIZES, Budget(64 * GIB), predictor_of(run), **how))


def errors(run: Run) -> list[str]:
    return [each.name for each in broken_rules(run) if each.severity == "error"]


@pytest.mark.parametrize("name", ["robot:default", "robot:gpu_8gb", "robot:gpu_16gb", "robot:production"])
def test_every_row_is_valid_fits_and_says_what_bounds_it(name: str) -> None:
    run = read(name)
    for row in rows(run):
        assert errors(row.plan.run) == []
        assert row.plan.fits
        assert env_steps_per_training_step(row.plan.run) == row.most.steps_per_update
        assert row.most.steps_per_update is not None and row.most.steps_per_update <= steps_cap(run)
        assert row.most.bound == "env steps per update"
        assert row.most.by_memory is not None and row.most.by_memory >= row.n_envs


def test_memory_binds_where_an_update_may_learn_from_any_number_of_steps() -> None:
    run = read("robot:default")
    found = rows(run, most_steps=2**30)
    counts = [row.n_envs for row in found]
    assert counts == sorted(set(counts))  # each larger card takes more of them
    assert {row.most.bound for row in found} == {"memory"}
    predictor = predictor_of(run)
    for row in found:  # and the next larger batch would not fit
        more = with_settings(row.plan.run, hyperparams={"batch_size": row.batch + 32})
        more = with_settings(more, env={"n_envs": (row.batch + 32) * (row.minibatches or 1)})
        assert fits(predictor.footprint(more), row.plan.budget) is not True


def test_more_environments_with_the_same_data_per_update_come_first() -> None:
    run = with_settings(read("robot:default"), env={"n_envs": 64})  # 16 unrolls of every robot per update
    row = rows(run, most_steps=env_steps_per_training_step(run))[0]
    assert (row.n_envs, row.batch, row.minibatches) == (1024, 256, 4)
    assert "as many env steps per update (10,240)" in row.plan.turns[-1].say


def test_the_cap_leaves_a_short_run_its_updates_and_a_large_one_its_own_wish() -> None:
    run = read("robot:default")
    assert steps_cap(run) == MOST_STEPS_PER_UPDATE
    short = run.replace(total_timesteps=2_000_000)
    assert steps_cap(short) == 20_000  # a hundred updates
    assert steps_cap(run.replace(total_timesteps=1000)) == env_steps_per_training_step(run)


def test_the_table_says_which_of_memory_and_data_per_update_binds() -> None:
    capped = draw(tiers_document("robot:default", rows(read("robot:default"))), width=80, colour=False)
    assert "steps/update" in capped and "at most 131,072 env steps" in capped
    assert max(map(len, capped.splitlines())) <= 80
    free = draw(tiers_document("robot:default", rows(read("robot:default"), most_steps=2**30)), width=80, colour=False)
    assert "learn little" not in free
    (first, *_) = json.loads(tiers_json(rows(read("robot:default"))))["tiers"]
    assert (first["bound_by"], first["most_env_steps_per_update"]) == ("env steps per update", 131_072)
    assert first["num_envs_by_memory_alone"] > first["num_envs"]


def planned(run: Run, budget: Budget, **how: Any) -> Plan:
    predictor = predictor_of(run, "cpu" if budget.vram is None else "cuda")
    return fit(predictor.run, budget, predictor, **how)


def test_the_loss_is_rematerialised_before_anything_is_learned_otherwise() -> None:
    run = with_settings(read("robot:default"), hyperparams={"batch_size": 8192, "num_minibatches": 1})
    needed = predictor_of(run).footprint(run).gpu
    assert needed is not None
    plan = planned(run, Budget(64 * GIB, int(needed.high * 0.95)))
    assert plan.fits
    assert [turn.price for turn in plan.turns] in (["free"], ["slower"], ["free", "slower"])
    assert env_steps_per_training_step(plan.run) == env_steps_per_training_step(run)


def test_knobs_that_keep_the_data_of_an_update_are_turned_before_those_that_do_not() -> None:
    run = read("robot:production")
    needed = predictor_of(run).footprint(run).gpu
    assert needed is not None
    plan = planned(run, Budget(64 * GIB, int(needed.high * 0.97)))  # most of it is the context
    assert plan.fits
    assert env_steps_per_training_step(plan.run) == env_steps_per_training_step(run)
    assert errors(plan.run) == []
