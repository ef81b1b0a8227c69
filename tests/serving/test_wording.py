"""The verdict in words, with numbers computed by hand."""

import pytest

from legroom.model.footprint import Footprint, Item, Place
from legroom.model.prediction import Prediction
from legroom.model.verdict import Budget, fits
from legroom.reading import read
from legroom.serving.wording import verdict, with_article
from legroom.units import GIB


def _verdict(host_gib, gpu_gib, budget, card=None):
    items = [Item("rollout.observations", host_gib * GIB, Place.HOST, "why")]
    if gpu_gib:
        items.append(Item("update.activations", gpu_gib * GIB, Place.GPU, "why"))
    footprint = Footprint("a run", tuple(items), "cuda" if gpu_gib else "cpu")
    return verdict(
        Prediction(read("mine:small"), footprint, footprint, budget, fits(footprint, budget)), card
    )  # fmt: skip


def test_it_says_what_is_to_spare_and_where():
    told = _verdict(5, 9, Budget(16 * GIB, 12 * GIB, 0.0, "available on this machine", "free on a GeForce RTX 4070"),
                    "GeForce RTX 4070")  # fmt: skip
    assert told["words"] == "Fits with 3.0 GiB to spare on an RTX 4070, and 11.0 GiB of RAM to spare on this machine."
    assert (told["fits"], told["gpu"]["spare"], told["host"]["spare"]) == (True, 3 * GIB, 11 * GIB)


def test_it_says_what_is_missing():
    told = _verdict(20, 0, Budget(16 * GIB, None, 0.0, "available on this machine"))
    assert told["words"] == ("Does not fit: it may need 20.0 GiB of RAM, 4.0 GiB more than this machine has available.")
    told = _verdict(1, 13, Budget(16 * GIB, 12 * GIB, 0.0, "given", "free on a Tesla T4"), "Tesla T4")
    assert told["words"] == "Does not fit: it may need 13.0 GiB of GPU memory, 1.0 GiB more than a Tesla T4 has."


def test_a_reserve_is_kept():
    told = _verdict(15, 0, Budget(16 * GIB, None, 0.1, "given"))  # 14.4 may be used
    assert told["fits"] is False and "614.4 MiB more than given" in told["words"]


def test_a_gpu_of_unknown_size_is_not_judged():
    told = _verdict(1, 2, Budget(16 * GIB, None, 0.0, "given"))
    assert told["words"] == "Fits with 15.0 GiB of RAM to spare in 16.0 GiB. Choose a GPU to check GPU memory."


@pytest.mark.parametrize(
    ("card", "said"),
    [("NVIDIA GeForce RTX 4070", "an RTX 4070"), ("A100 80GB", "an A100 80GB"), ("H200", "an H200"), ("L4", "an L4"),
     ("GeForce GTX 1650", "a GTX 1650"), ("Tesla T4", "a Tesla T4"), ("TITAN V", "a TITAN V"), ("B200", "a B200")],
)  # fmt: skip
def test_cards_are_called_as_one_says_them(card, said):
    assert with_article(card) == said
