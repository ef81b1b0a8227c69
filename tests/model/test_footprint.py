"""The bill: peaks are phase totals anyone can recompute, and the verdict uses the upper end of the band."""

from dataclasses import replace

from legroom.model.footprint import Footprint, Item, Phase, Place
from legroom.model.verdict import Budget, fits

COLLECT = (Phase.COLLECT,)
ITEMS = (
    Item("base", 100, Place.HOST, "", error=3),
    Item("worker", 10, Place.WORKER, "", count=4, error=1),
    Item("rollout", 50, Place.HOST, "", phases=(Phase.COLLECT, Phase.UPDATE)),
    Item("copy", 50, Place.HOST, "", phases=(Phase.UPDATE,)),
    Item("gpu", 500, Place.GPU, "", phases=(Phase.UPDATE,), error=20),
    Item("disk", 9999, Place.DISK, ""),
)


def test_the_host_peak_is_the_largest_phase_total_of_host_workers_and_shared_memory():
    host = Footprint("x", ITEMS, "cpu").host
    assert (host.nbytes, host.phase) == (100 + 4 * 10 + 50 + 50, Phase.UPDATE)
    assert (host.low, host.high) == (240 - 5, 240 + 5)  # 3 and 4×1, independent: √(9+16)


def test_there_is_no_gpu_peak_on_the_cpu():
    assert Footprint("x", ITEMS, "cpu").gpu is None
    assert Footprint("x", ITEMS, "cuda").gpu.nbytes == 500


def test_it_fits_when_the_upper_end_of_the_band_does():
    on_cpu, on_gpu = Footprint("x", ITEMS, "cpu"), Footprint("x", ITEMS, "cuda")
    assert fits(on_cpu, Budget(ram=245)) is True
    assert fits(on_cpu, Budget(ram=244)) is False
    assert fits(on_cpu, Budget(ram=272, reserve=0.1)) is False  # 244.8 usable
    assert fits(on_cpu, Budget()) is None
    assert fits(on_gpu, Budget(ram=245)) is None  # no GPU budget
    assert fits(on_gpu, Budget(ram=245, host_only=True)) is True  # nobody asked about one
    assert fits(replace(on_gpu, unknown=("why",)), Budget(ram=245, host_only=True)) is None
    assert fits(on_gpu, Budget(ram=244)) is False  # whatever the GPU
    assert fits(on_gpu, Budget(ram=245, vram=520)) is True
    assert fits(on_gpu, Budget(ram=245, vram=519)) is False
