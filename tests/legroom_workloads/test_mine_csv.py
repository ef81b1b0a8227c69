"""Reading block models: what users' files look like, and what is wrong with them said by line."""

from __future__ import annotations

import time

import numpy as np
import pytest

from legroom.errors import BadInput
from legroom_workloads.mine.blocks import COLUMNS, BlockModel
from legroom_workloads.mine.csv_file import FILE_COLUMNS, read_csv, write_csv
from legroom_workloads.mine.csv_numbers import parse_quickly
from legroom_workloads.mine.deposit import generate, sample

QUOTED = '"'
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


def test_counted_blocks_are_a_grid_of_standard_blocks(tmp_path):
    model = read_csv(write(tmp_path, rows((0, 1), (0, 1, 2), (5, 6))))
    assert (model.shape, model.size_m) == ((2, 3, 2), (20, 20, 15))
    assert model.column("ton")[0, 0].tolist() == [2, 1]


def test_other_block_sizes_and_negative_and_rounded_coordinates(tmp_path):
    # centres of 12.5 m blocks, rounded to whole metres, as some packages export them
    model = read_csv(write(tmp_path, rows((-119, -106, -94, -81), (6, 19, 31, 44, 56, 69), (1005, 1015))))
    assert model.shape == (4, 6, 2)
    assert model.size_m == pytest.approx((12.67, 12.6, 10), abs=0.01)


def test_rows_in_any_order(tmp_path):
    shuffled = np.random.default_rng(0).permutation(rows()).tolist()
    a, b = read_csv(write(tmp_path, shuffled)), read_csv(write(tmp_path, rows(), "b.csv"))
    assert np.array_equal(a.channels, b.channels)


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


def test_blank_lines_and_a_missing_last_newline(tmp_path):
    path = tmp_path / "model.csv"
    table = rows()
    path.write_text("\n".join([HEADER, *table[:5], "", *table[5:], "", ""]).rstrip("\n"))
    assert np.array_equal(read_csv(path).channels, read_csv(write(tmp_path, table, "plain.csv")).channels)


def test_numbers_in_every_notation_are_read_as_python_reads_them():
    texts = ["0", "-0.0", "1e-05", "+3", ".5", "5.", "123456789.123456", "0.1", "-12.75", "1E3", "0.30000000000000004"]
    texts += ["4.35", "9007199254740993", "00012", "2.675", "1e-320", " 7 ", "999999999999999", "0.000000000000001"]
    body = "".join(f"{text},{text}\n" for text in texts).encode()
    found = parse_quickly(body, 2, [1])
    expected = [float(text) for text in texts]
    assert found[:, 0].tolist() == expected
    assert np.signbit(found[1, 0])


def test_quick_reading_equals_pythons_on_random_numbers():
    rng = np.random.default_rng(1)
    texts = [f"{v:.{int(d)}f}" for v, d in zip(rng.normal(0, 1e4, 30_000), rng.integers(0, 9, 30_000), strict=True)]
    body = "".join(f"{a},{b},{c}\n" for a, b, c in zip(*[iter(texts)] * 3, strict=True)).encode()
    assert parse_quickly(body, 3, [0, 1, 2]).ravel().tolist() == [float(text) for text in texts]


@pytest.mark.parametrize("cell", ["", "abc", "1.2.3", "--1", "1-2", "1_000", '1"2', "0x10", "1 2", "-", "."])
def test_quick_reading_gives_up_at_what_is_no_number(cell):
    assert parse_quickly(f"1,{cell},2\n".encode(), 3, [0, 1, 2]) is None
    if QUOTED not in cell:  # unless nobody wants it
        assert parse_quickly(f"1,{cell},2\n".encode(), 3, [0, 2]).tolist() == [[1, 2]]


def test_the_pit_column_is_read_and_written(tmp_path):
    model = read_csv(write(tmp_path, [f"{row},{i % 2}" for i, row in enumerate(rows())], header=f"{HEADER},upl"))
    assert model.column("upl").sum() == 6
    write_csv(model, tmp_path / "again.csv")
    assert np.array_equal(read_csv(tmp_path / "again.csv").channels, model.channels)


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


def test_two_hundred_thousand_rows_are_read_at_the_pace_of_numpy(tmp_path):
    model = sample()
    write_csv(model, tmp_path / "sample.csv")
    begin = time.process_time()  # beside NumPy's own reader, since machines differ; about twice its time
    np.loadtxt(tmp_path / "sample.csv", delimiter=",", skiprows=1)
    between = time.process_time()
    again = read_csv(tmp_path / "sample.csv")
    assert time.process_time() - between < 6 * (between - begin)
    assert np.array_equal(again.channels, model.channels)


# ---- what is wrong with them


def test_missing_columns_are_all_named(tmp_path):
    header = HEADER.replace("bwi,", "").replace(",pyrite", "")
    assert problem(write(tmp_path, [], header=header)).startswith(":1: 2 columns are missing: bwi, pyrite (found: x, y")
    assert "separate columns by commas, not by ';'" in problem(write(tmp_path, [], header=HEADER.replace(",", ";")))


def test_a_column_given_twice(tmp_path):
    assert problem(write(tmp_path, [], header=f"{HEADER},CU")).startswith(":1: column cu is there twice")


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


def test_blank_lines_do_not_shift_the_line_numbers(tmp_path):
    table = rows()
    table[3] = table[3].replace("88", "nan")
    table.insert(2, "")
    assert problem(write(tmp_path, table)).startswith(":6: rec is nan")


def test_many_bad_rows_are_counted_and_the_first_named(tmp_path):
    table = [row.replace("88", "-1") if i % 2 else row for i, row in enumerate(rows(ys=range(10, 200, 20)))]
    assert problem(write(tmp_path, table)).startswith(
        ":3: rec is -1, negative (20 rows: lines 3, 5, 7, 9, 11, …) (air is"
    )
    table = [row + ",1" if i % 2 else row for i, row in enumerate(rows())]
    assert ":3: 17 values, the header has 16 (6 rows: lines 3, 5, 7, 9, 11, …)" in problem(write(tmp_path, table))


def test_rows_too_long_and_too_short_do_not_cancel_out(tmp_path):
    table = rows()
    table[0], table[1] = table[0] + ",1", table[1].rsplit(",", 1)[0]
    assert problem(write(tmp_path, table)).startswith(":2: 17 values, the header has 16 (2 rows: lines 2, 3)")


def test_a_quote_that_never_ends(tmp_path):
    table = rows()
    table[2] = '"' + table[2]
    assert "1 values, the header has 16" in problem(write(tmp_path, table))


def test_blocks_given_twice(tmp_path):
    table = rows()
    table[5], table[8] = table[1], table[1]
    message = problem(write(tmp_path, table), fill_absent=True)
    assert message.startswith(":7: the block at (10, 10, 22.5) is already in line 3 (2 rows: lines 7, 10)")


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


def test_a_bench_that_is_missing_altogether(tmp_path):
    message = problem(write(tmp_path, rows(zs=(7.5, 22.5, 52.5, 67.5))))
    assert "6 of the 30 blocks of the grid 2x3x5 are absent: (10, 10, 37.5)" in message


def test_stray_centres_are_named(tmp_path):
    table = rows()
    table[4] = table[4].replace("10,50,7.5", "10,57,7.5")
    assert problem(write(tmp_path, table)).startswith(
        ":6: the centre (10, 57, 7.5) is not on the grid (blocks of 20 x 20 x 15 m fit most rows; a model with"
    )
    message = problem(write(tmp_path, rows((10, 30, 50, 70, 90, 104))))
    assert "the centre (104, 10, 7.5) is not on the grid (6 rows: lines 32, 33, 34, 35, 36, …)" in message


def test_coordinates_that_span_half_the_world(tmp_path):
    table = rows()
    table[0] = table[0].replace("10,10,7.5", "9999990,9999990,9999997.5")
    message = problem(write(tmp_path, table))
    assert "the centres span a grid of 500000x500000x666667" in message
    assert "are the coordinates those of a regular grid?" in message


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
