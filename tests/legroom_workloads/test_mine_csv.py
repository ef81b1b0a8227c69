"""Reading block models: what users' files look like, and what is wrong with them said by line."""

from __future__ import annotations

import numpy as np
import pytest

from legroom.errors import BadInput
from legroom_workloads.mine.blocks import COLUMNS, BlockModel
from legroom_workloads.mine.csv_file import FILE_COLUMNS, read_csv, write_csv
from legroom_workloads.mine.deposit import generate

HEADER = ",".join(FILE_COLUMNS)


def rows(xs=(10, 30), ys=(10, 30, 50), zs=(7.5, 22.5)) -> list[str]:
    """One row per block of a grid; ton is the row's number, cu a hundredth of it."""
    centres = [(x, y, z) for x in xs for y in ys for z in zs]
    return [
        f"{x},{y},{z},{i / 100},0.01,0.001,2.5,13,88,{i},0.1,0.2,0.3,0.01,0.02,1.5"
        for i, (x, y, z) in enumerate(centres, start=1)
    ]


def write(tmp_path, lines, name="model.csv", header=HEADER, end="\n"):
    path = tmp_path / name
    path.write_bytes(end.join([header, *lines, ""]).encode())
    return path


def problem(path, **options) -> str:
    with pytest.raises(BadInput) as caught:
        read_csv(path, **options)
    text = str(caught.value)
    assert "\n" not in text
    assert text.startswith(str(path))
    return text[len(str(path)) :]


# ---- files as they come


def test_centres_in_metres_become_a_grid_with_the_highest_bench_first(tmp_path):
    model = read_csv(write(tmp_path, rows()))
    assert model.shape == (2, 3, 2)
    assert model.size_m == (20, 20, 15)
    assert model.name == "model"
    # row 1 is x 10, y 10, z 7.5, the lower bench; row 2 the same column at 22.5, the top
    assert model.column("ton")[0, 0].tolist() == [2, 1]
    assert model.column("ton")[1, 2].tolist() == [12, 11]
    assert model.column("cu")[0, 0, 0] == np.float32(0.02)
    assert model.column("molibdenite")[0, 0, 0] == np.float32(0.02)
    assert not model.column("upl").any()


def test_other_block_sizes_and_negative_and_rounded_coordinates(tmp_path):
    # centres of 12.5 m blocks, rounded to whole metres, as some packages export them
    model = read_csv(write(tmp_path, rows((-119, -106, -94, -81), (6, 19, 31, 44, 56, 69), (1005, 1015))))
    assert model.shape == (4, 6, 2)
    assert model.size_m == pytest.approx((12.67, 12.6, 10), abs=0.01)


def reordered(separator=",", quote=""):
    """The same table with its columns reversed, an extra text column in front."""
    names = ["rock", *reversed([name.upper() for name in FILE_COLUMNS])]
    lines = [["porphyry", *reversed(row.split(","))] for row in rows()]
    return [separator.join(f"{quote}{cell}{quote}" for cell in line) for line in [names, *lines]]


@pytest.mark.parametrize("quote", ["", '"'])
@pytest.mark.parametrize("separator", [",", ", ", " ,"])
@pytest.mark.parametrize("end", ["\n", "\r\n", "\r"])
@pytest.mark.parametrize("start", ["", "\ufeff"])
def test_every_way_of_writing_the_same_table(tmp_path, quote, separator, end, start):
    if quote and separator == " ,":
        separator = ","  # no package puts a blank behind a closing quote
    header, *lines = reordered(separator, quote)
    path = write(tmp_path, lines, header=start + header, end=end)
    assert np.array_equal(read_csv(path).channels, read_csv(write(tmp_path, rows(), "plain.csv")).channels)


def test_what_is_written_is_read_back_bit_for_bit(tmp_path):
    model = generate((6, 4, 5), 2, size_m=(25, 12.5, 10))
    odd = np.array(model.channels)
    odd[COLUMNS.index("cu"), 0, 0, :4] = [1 / 3, 1e-30, 99.99999, np.float32(0.1) * 3]
    model = BlockModel(odd, "odd", model.size_m)
    write_csv(model, tmp_path / "odd.csv")
    again = read_csv(tmp_path / "odd.csv")
    assert np.array_equal(again.channels, model.channels)
    assert again.size_m == pytest.approx(model.size_m)
    assert [path.name for path in tmp_path.iterdir()] == ["odd.csv"]


# ---- what is wrong with them


def test_missing_columns_are_all_named(tmp_path):
    header = HEADER.replace("bwi,", "").replace(",pyrite", "")
    assert problem(write(tmp_path, [], header=header)).startswith(":1: 2 columns are missing: bwi, pyrite (found: x, y")
    assert "separate columns by commas, not by ';'" in problem(write(tmp_path, [], header=HEADER.replace(",", ";")))


def test_empty_files_and_files_without_blocks(tmp_path):
    empty = tmp_path / "empty.csv"
    empty.write_bytes(b"\xef\xbb\xbf\r\n")
    assert "the file is empty" in problem(empty)
    assert "a header and no block" in problem(write(tmp_path, []))
    header_only = tmp_path / "header.csv"
    header_only.write_text(HEADER)
    assert "a header and no block" in problem(header_only)


def test_files_that_are_not_there_or_not_text(tmp_path):
    assert "cannot read: No such file" in problem(tmp_path / "absent.csv")
    assert "cannot read: Is a directory" in problem(tmp_path)
    latin = tmp_path / "latin.csv"
    latin.write_bytes(f"{HEADER}\n1,2\nn\xe3o".encode("latin-1"))
    assert problem(latin) == ":3: is not UTF-8 text (export it as CSV in UTF-8)"


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("88", "nan", "rec is nan, not a finite number"),
        ("88", "-inf", "rec is -inf, not a finite number"),
        ("88", "1e39", "rec is 1e+39, not a finite number"),
        ("88", "108", "rec is 108, over 100 % (give percent, not ppm or g/t)"),
        ("88", "-8", "rec is -8, negative (air is a block with ton 0)"),
        ("88", "high", "rec is 'high', not a number"),
        ("88", "", "rec is empty"),
        ("88", "88,5", "17 values, the header has 16 (a decimal comma counts as a separator: use points)"),
        (",88", "", "15 values, the header has 16 (a decimal comma counts as a separator: use points)"),
        (",4,0.1", ",-4,0.1", "ton is -4, negative (air is a block with ton 0)"),
        ("10,30,22.5", "nan,30,22.5", "x is nan, not a finite number"),
    ],
)
def test_one_bad_row_is_named_by_its_line(tmp_path, old, new, message):
    table = rows()
    assert table[3].count(old) == 1
    table[3] = table[3].replace(old, new)
    assert problem(write(tmp_path, table)) == f":5: {message}"


def test_absent_blocks_are_listed_and_can_be_air(tmp_path):
    table = rows()
    path = write(tmp_path, table[:3] + table[4:10] + table[11:])
    message = problem(path)
    assert ": 2 of the 12 blocks of the grid 2x3x2 are absent: (10, 30, 22.5), (30, 50, 7.5)" in message
    assert "fill_absent=True" in message
    model = read_csv(path, fill_absent=True)
    assert model.column("ton")[0, 1].tolist() == [0, 3]
    assert (model.channels[:, 0, 1, 0] == 0).all()
    assert model.column("ton").sum() == sum(range(1, 13)) - 4 - 11


@pytest.mark.parametrize("seed", range(40))
def test_damaged_files_never_end_in_a_traceback(tmp_path, seed):
    rng = np.random.default_rng(seed)
    content = bytearray(("\n".join([HEADER, *rows()]) + "\n").encode())
    for _ in range(rng.integers(1, 6)):
        at = int(rng.integers(0, len(content)))
        content[at : at + int(rng.integers(0, 3))] = bytes(rng.integers(0, 256, int(rng.integers(0, 3))).tolist())
    path = tmp_path / "damaged.csv"
    path.write_bytes(content)
    try:
        read_csv(path)
    except BadInput as caught:
        assert "\n" not in str(caught)
