"""`--gpu NAME` must find the card people mean, however they write it, and never a larger one than they have."""

import pytest

from legroom.errors import BadInput
from legroom.machine.gpu_table import GPUS, ambiguity, find_gpu
from legroom.model.machine import Gpu
from legroom.units import GIB, MIB


@pytest.mark.parametrize(
    "text", ["RTX 4070", "rtx4070", "NVIDIA GeForce RTX 4070", "4070", "GeForce_RTX-4070", "RTX 4070 12GB"]
)
def test_one_card_by_many_spellings(text):
    card = find_gpu(text)
    assert (card.name, card.total, card.capability) == ("GeForce RTX 4070", 12282 * MIB, (8, 9))


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("A100 80GB", "A100 80GB"),
        ("A100-40GB", "A100 40GB"),
        ("A 100", "A100 40GB"),
        ("NVIDIA A100-SXM4-80GB", "A100 80GB"),
        ("NVIDIA A100 80GB PCIe", "A100 80GB"),
        ("NVIDIA H100 80GB HBM3", "H100 80GB"),
        ("H100", "H100 80GB"),
        ("h100 nvl", "H100 NVL"),
        ("Tesla T4", "Tesla T4"),
        ("T4 16 GB", "Tesla T4"),
        ("Tesla V100-SXM2-32GB", "Tesla V100 32GB"),
        ("4070ti", "GeForce RTX 4070 Ti"),
        ("RTX 4070Ti Super", "GeForce RTX 4070 Ti SUPER"),
        ("4070tisuper", "GeForce RTX 4070 Ti SUPER"),
        ("NVIDIA GeForce RTX 4070 Laptop GPU", "GeForce RTX 4070 Laptop"),
        ("NVIDIA RTX A6000", "RTX A6000"),
        ("NVIDIA RTX 6000 Ada Generation", "RTX 6000 Ada"),
        ("NVIDIA RTX PRO 6000 Blackwell Workstation Edition", "RTX PRO 6000 Blackwell"),
        ("NVIDIA TITAN RTX", "TITAN RTX"),
        ("titanxp", "TITAN Xp"),
    ],
)
def test_product_names_find_their_card(text, name):
    assert find_gpu(text).name == name


@pytest.mark.parametrize(
    ("text", "smaller_gb", "larger_gb"),
    [("RTX 4060 Ti", 8, 16), ("A100", 40, 80), ("V100", 16, 32)],
)
def test_a_name_with_two_sizes_is_the_smaller_unless_stated(text, smaller_gb, larger_gb):
    assert find_gpu(text).nominal_gb == smaller_gb
    assert find_gpu(f"{text} {larger_gb}GB").nominal_gb == larger_gb
    line = f"--gpu '{text}' means the one with {smaller_gb} GB; there is also '{text} {larger_gb}GB'"
    assert (ambiguity(text), ambiguity(f"{text} {larger_gb}GB"), ambiguity("RTX 4070")) == (line, None, None)


def test_of_a_gpu_that_nearly_everybody_has_with_more_memory_that_one_is_meant():
    assert [find_gpu(text).nominal_gb for text in ("RTX 3060", "RTX 3060 8GB", "GTX 1060")] == [12, 8, 6]
    assert ambiguity("3060") == "--gpu '3060' means the one with 12 GB; there is also '3060 8GB'"


def test_every_card_is_found_by_its_own_name():
    for card in GPUS:
        assert find_gpu(card.name) == card
        assert find_gpu("nvidia-" + card.name.lower().replace(" ", "-")) == card


def test_the_table_reaches_from_gtx_1060_to_b200():
    assert len(GPUS) >= 40
    assert find_gpu("1060").capability == (6, 1)
    assert find_gpu("B200").capability == (10, 0)
    for card in GPUS:
        # a slip of a digit would show: NVIDIA's GB are GiB, and firmware and ECC take at most 7 %
        assert 0.93 <= card.total / (card.nominal_gb * GIB) <= 1.05, card.name


def test_an_idle_card_has_all_its_memory_free():
    assert find_gpu("T4").as_gpu() == Gpu("Tesla T4", 15360 * MIB, 15360 * MIB, (7, 5))


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("RTX 4071", "unknown GPU 'RTX 4071' (did you mean GeForce RTX 4070"),
        ("4070 to", "did you mean GeForce RTX 4070"),
        ("", "--vram 12GiB"),
        ("rtx", "--vram 12GiB"),
        ("Radeon RX 7900 XTX", "unknown GPU 'Radeon RX 7900 XTX' (give its memory instead"),
        ("A100 48GB", "that GPU has 40 GB or 80 GB"),
        ("RTX 4070 16GB", "that GPU has 12 GB"),
    ],
)
def test_an_unknown_card_is_refused_with_a_way_out(text, says):
    with pytest.raises(BadInput) as refused:
        find_gpu(text)
    assert says in str(refused.value)
    assert "\n" not in str(refused.value)
