"""Environments side by side in real worker processes, and how many fit."""

import pytest

from legroom.model.trace import ParallelRow
from legroom.watching.profile import env_task, find_run, measure_parallel
from legroom.watching.side_by_side import _fits, _line

MIB = 1 << 20


def side_by_side(env, counts):
    return measure_parallel(env_task(find_run(f"profile_test_envs:{env}")), counts)


def test_one_more_costs_what_the_environment_has_for_itself():
    plain, heavy = (side_by_side(env, (2, 4)) for env in ("Shows", "EightMegabytes"))
    for found in (plain, heavy):
        assert [row.envs for row in found["parallel"]] == [2, 4]
        assert all(row.pss > row.uss_per_env > 0 and row.shared > 0 for row in found["parallel"])
        assert found["scaling"].why == "" and found["fits_envs"] > 4
    more = heavy["scaling"].marginal - plain["scaling"].marginal
    assert 7 * MIB < more < 9 * MIB
    assert heavy["fits_envs"] < plain["fits_envs"]


def test_masks_are_respected_in_workers_too():
    found = side_by_side("Masked", (2,))
    assert found["scaling"].why == "" and len(found["parallel"]) == 1


@pytest.mark.parametrize(
    ("env", "rows", "words"),
    [("OnlyOnce", 1, "could not start 2 in worker processes: env 'profile_test_envs:OnlyOnce' raised: BlockingIOError"),
     ("Nested", 0, "not arrays of a fixed shape")],
)  # fmt: skip
def test_an_environment_that_cannot_run_in_workers_says_why_in_one_line(env, rows, words):
    found = side_by_side(env, (1, 2, 4))
    assert len(found["parallel"]) == rows
    assert words in found["scaling"].why and "\n" not in found["scaling"].why
    assert found["fits_envs"] == (1 if rows else None)


def test_the_line_goes_through_the_forked_rows_only():
    rows = [ParallelRow(1, 90 * MIB, 80 * MIB, 0, False)]
    rows += [ParallelRow(n, (20 + 5 * n) * MIB, 4 * MIB, 20 * MIB, True) for n in (2, 4, 8)]
    marginal, (low, high) = _line(rows)
    assert marginal == 5 * MIB and low < marginal < high < 6 * MIB
    assert _fits(rows, marginal, 160 * MIB) == 28  # 60 MiB for 8, 100 MiB for 20 more
    assert _fits(rows, marginal, 10 * MIB) == 0  # not even one


def test_one_row_is_no_line():
    assert _line([ParallelRow(8, 60 * MIB, 4 * MIB, 20 * MIB, True)]) == (4 * MIB, None)
    assert _line([]) == (None, None)
