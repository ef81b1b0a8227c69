"""MineLib instances: a hand-made one of six blocks is read, solved and scheduled; broken ones are named by line.

The instance is a slope of two benches, three columns along x. z grows upwards, so blocks 3, 4, 5 at z = 1 are the top:

    z = 1   3: -2   4: -1   5: -4
    z = 0   0: -9   1:  6   2: 12     block 1 needs 3 and 4, block 2 needs 4 and 5 (its own rule, not nine over one)

The best pit is {4, 5, 2} = -1 - 4 + 12 = 7, and with {3, 1} it gains another 6 - 2 = 4: 11 in all; block 0 stays.
"""

from __future__ import annotations

import numpy as np
import pytest

from legroom.errors import BadInput
from legroom_workloads.mine.economics import block_values
from legroom_workloads.mine.minelib import read_minelib
from legroom_workloads.mine.models import load_model

BLOCKS = """\
% id x y z rock tonnes
0 0 0 0 WASTE 10
1 1 0 0 ORE   11
2 2 0 0 ORE   12
3 0 0 1 WASTE 13
4 1 0 1 WASTE 14
5 2 0 1 WASTE 15
"""
PREC = """\
0 2 3 4
1 2 3 4
2 2 4 5
3 0
4 0
5 0
"""
UPIT = """\
NAME: tiny
TYPE: UPIT
NBLOCKS: 6
OBJECTIVE_FUNCTION:
0 -9
1 6.0
2 1.2E+01
3 -2
4 -1
5 -4
EOF
"""
CPIT = """\
NAME: tiny
TYPE: CPIT
NBLOCKS: 6
NPERIODS: 2
NRESOURCE_SIDE_CONSTRAINTS: 2
DISCOUNT_RATE: 0.1
RESOURCE_CONSTRAINT_LIMITS:
0 0 L 40
0 1 I 5 40
1 0 G 3
1 1 L 30
OBJECTIVE_FUNCTION:
0 -9
1 6
2 12
3 -2
4 -1
5 -4
RESOURCE_CONSTRAINT_COEFFICIENTS:
0 0 10
1 0 11
2 0 12
3 0 13
4 0 14
5 0 15
1 1 11
2 1 12
EOF
"""
FILES = {".blocks": BLOCKS, ".prec": PREC, ".upit": UPIT, ".cpit": CPIT}


def instance(tmp_path, **changes):
    """Write the instance, with the files given instead (by suffix without the dot; None leaves one out)."""
    for suffix, text in (FILES | {f".{kind}": text for kind, text in changes.items()}).items():
        if text is not None:
            (tmp_path / f"tiny{suffix}").write_text(text)
    return tmp_path / "tiny"


def problem(path) -> str:
    with pytest.raises(BadInput) as caught:
        read_minelib(path)
    text = str(caught.value)
    assert "\n" not in text
    return text.replace(f"{path.parent}/", "")


def test_all_four_files_are_read(tmp_path):
    found = read_minelib(instance(tmp_path))
    assert (found.name, found.n_blocks) == ("tiny", 6)
    assert found.coordinates[5].tolist() == [2, 0, 1]
    assert np.isnan(found.attributes[:, 0]).all()
    assert found.attributes[:, 1].tolist() == [10, 11, 12, 13, 14, 15]
    assert found.precedence.toarray()[1].nonzero()[0].tolist() == [3, 4]
    assert found.precedence.nnz == 6
    assert found.values.tolist() == found.cpit.values.tolist() == [-9, 6, 12, -2, -1, -4]
    assert (found.upit.periods, found.cpit.periods, found.cpit.discount_rate) == (None, 2, 0.1)
    assert found.cpit.amounts.tolist() == [[10, 11, 12, 13, 14, 15], [0, 11, 12, 0, 0, 0]]
    assert found.cpit.upper.tolist() == [[40, 40], [np.inf, 30]]
    assert found.cpit.lower.tolist() == [[-np.inf, 5], [3, -np.inf]]


def test_it_becomes_a_block_model_with_its_own_values(tmp_path):
    model = load_model(instance(tmp_path))
    assert model.shape == (3, 1, 2)
    assert model.values_usd[:, 0].tolist() == [[-2, -9], [-1, 6], [-4, 12]]  # z = 0 is the top
    assert model.column("ton")[:, 0].tolist() == [[13, 10], [14, 11], [15, 12]]  # the resource that every block takes
    values, destination = block_values(model)
    assert np.array_equal(values, model.values_usd)
    assert destination[:, 0, 1].tolist() == [0, 1, 1]
    coarse = load_model(instance(tmp_path), grid=(1, 1, 2))
    assert coarse.values_usd.ravel().tolist() == pytest.approx([-7, 9])


@pytest.mark.parametrize(
    ("suffix", "old", "new", "message"),
    [
        (".blocks", "2 2 0 0 ORE   12", "2 2 0 0 ORE", "tiny.blocks:4: 5 values where 6 are expected (id x y z …)"),
        (".blocks", "2 2 0 0", "1 2 0 0", "tiny.blocks:4: block 1 is already in line 3"),
        (".blocks", "2 2 0 0", "6 2 0 0", "tiny.blocks:4: block 6, there are 6, counted from 0"),
        (".blocks", "2 2 0 0", "2 two 0 0", "tiny.blocks:4: 'two' where a number is expected"),
        (".blocks", "2 2 0 0", "2 nan 0 0", "tiny.blocks:4: 'nan' where a number is expected"),
        (".prec", "2 2 4 5", "2 3 4 5", "tiny.prec:3: block 2: 3 predecessors announced, 2 given (id n predecessor…)"),
        (".prec", "2 2 4 5", "2 2 4 6", "tiny.prec:3: predecessor 6, there are 6, counted from 0"),
        (".prec", "2 2 4 5", "-1 2 4 5", "tiny.prec:3: block -1, there are 6, counted from 0"),
        (".prec", "2 2 4 5", "2 2 4 x", "tiny.prec:3: '2 2 4 x' is not `id n predecessor…`"),
        (".prec", "2 2 4 5", "2", "tiny.prec:3: '2' is not `id n predecessor…`"),
        (".upit", "NBLOCKS: 6", "NBLOCKS: 7", "tiny.upit:3: NBLOCKS is 7, the .blocks file has 6"),
        (".upit", "NBLOCKS: 6", "NBLOCKS: six", "tiny.upit:3: 'six' where a number is expected"),
        (".upit", "1 6.0", "1 6.0 3", "tiny.upit:6: 3 values where `block value` is expected"),
        (".upit", "1 6.0", "1 inf", "tiny.upit:6: 'inf' where a number is expected"),
        (".upit", "1 6.0\n", "", "tiny.upit: OBJECTIVE_FUNCTION has no value for 1 blocks, block 1 first"),
        (".upit", "OBJECTIVE_FUNCTION:\n", "", "tiny.upit:4: '0 -9' belongs to no section"),
        (".cpit", "0 0 L 40", "0 0 X 40", "tiny.cpit:8: limit 'X 40' (L most, G least, or I least most)"),
        (".cpit", "0 1 I 5 40", "0 1 I 5", "tiny.cpit:9: limit 'I 5' (L most, G least, or I least most)"),
        (".cpit", "0 1 I 5 40", "0 2 L 5", "tiny.cpit:9: period 2, there are 2, counted from 0"),
        (".cpit", "1 1 11", "1 2 11", "tiny.cpit:26: resource 2, there are 2, counted from 0"),
        (".cpit", "NPERIODS: 2", "NPERIODS: 99999999", "tiny.cpit:4: 99999999 periods and 2 resources"),
    ],
)
def test_what_is_wrong_is_named_by_file_and_line(tmp_path, suffix, old, new, message):
    text = FILES[suffix]
    assert text.count(old) == 1
    assert problem(instance(tmp_path, **{suffix[1:]: text.replace(old, new)})) == message


def test_files_that_are_no_instance(tmp_path):
    assert "there is no block in it" in problem(instance(tmp_path, blocks="% nothing\n"))
    (tmp_path / "tiny.blocks").write_bytes(b"\xff\xfe\x00")
    assert "is not text" in problem(tmp_path / "tiny")
    lonely = tmp_path / "lonely.upit"
    lonely.write_text(UPIT)
    with pytest.raises(BadInput, match=r"put lonely.blocks beside it"):
        read_minelib(lonely)
    table = tmp_path / "table.csv"
    table.write_text("x,y,z\n")
    with pytest.raises(BadInput, match="is not a MineLib instance"):
        read_minelib(table)
