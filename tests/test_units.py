"""Sizes: what people write is understood, and what is printed can be trusted to the digit."""

import pytest

from legroom.errors import BadInput
from legroom.units import format_size, parse_size


@pytest.mark.parametrize(
    ("text", "nbytes"),
    [
        ("16GiB", 16 * 2**30), ("16G", 16 * 2**30), ("16 gib", 16 * 2**30), ("8GB", 8_000_000_000),
        ("1048576", 1_048_576),
        ("1.5TiB", 1_649_267_441_664), ("16_777_216", 16_777_216), ("100 MB", 100_000_000), ("3.68GiB", 3_951_369_912),
    ],
)  # fmt: skip
def test_sizes_as_people_write_them(text: str, nbytes: int) -> None:
    assert parse_size(text) == nbytes


@pytest.mark.parametrize(
    "text", ["", "lots", "-1GiB", "0", "1e400GiB", "nan", "16 XB", "9999999999TiB", "GiB", "1,5GiB"]
)
def test_what_is_no_size_is_refused_with_the_way_out(text: str) -> None:
    with pytest.raises(BadInput, match="16GiB"):
        parse_size(text, what="--ram")


@pytest.mark.parametrize(
    ("nbytes", "text"),
    [
        (0, "0 B"), (1023, "1023 B"), (1024, "1.0 KiB"), (2**30 - 1, "1.0 GiB"), (2**30, "1.0 GiB"),
        (2048 * 4 * 17 * 49 * 71 * 58 * 4, "104.7 GiB"), (2**63, "8.0 EiB"),
    ],
)  # fmt: skip
def test_sizes_as_they_are_printed(nbytes: int, text: str) -> None:
    assert format_size(nbytes) == text
